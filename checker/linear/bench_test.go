package linear

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/lockcheck/lockcheck/history"
)

// oneKey is a legal history of one hot key, 20 clients, half of them polling.
func oneKey(n int, info float64) *keyOps { return seededKey(n, info, 1) }

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1e4, 1e5, 1e6} {
		for _, info := range []float64{0, 0.01, 0.1} {
			b.Run(fmt.Sprintf("ops=%d/info=%v", n, info), func(b *testing.B) {
				k := oneKey(n, info)
				lim := newLimits(context.Background(), Options{}.withDefaults())
				b.ReportAllocs()
				before := allocated()
				for b.Loop() {
					if d := decide(k.ops, int(k.grants), lim, false); d.verdict != Legal {
						b.Fatal(d.verdict, d.reason)
					}
				}
				perRecord(b, k.ops.len(), before)
			})
		}
	}
}

// BenchmarkPorcupine is the general search on the same operations, with an expiry
// only where no ok release makes it needless. With a tenth of the outcomes unknown
// it comes to no end, not even on a thousand operations.
func BenchmarkPorcupine(b *testing.B) {
	for _, info := range []float64{0, 0.01, 0.1} {
		b.Run(fmt.Sprintf("ops=10000/info=%v", info), func(b *testing.B) {
			ops := lean(oneKey(1e4, info).ops.flat())
			b.ReportAllocs()
			before := allocated()
			for b.Loop() {
				if r := porcupine.CheckOperationsTimeout(describedModel(nil), ops, 20*time.Second); r != porcupine.Ok {
					b.Skipf("%s after 20 s", r)
				}
			}
			perRecord(b, 1e4, before)
		})
	}
}

func lean(ops []Op) []porcupine.Operation {
	released := map[int32]bool{}
	for i := range ops {
		if ops[i].Kind == Release && ops[i].Outcome == OK {
			released[ops[i].Grant] = true
		}
	}
	var out []porcupine.Operation
	for _, o := range operations(ops) {
		if in := o.Input.(*input); in.op == nil && released[in.grant] {
			continue
		}
		out = append(out, o)
	}
	return out
}

func perRecord(b *testing.B, n int, before uint64) {
	records := float64(b.N) * float64(n)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/records, "ns/record")
	b.ReportMetric(float64(allocated()-before)/records, "B/record")
}

// BenchmarkBuild is what it takes to keep the operations of a history.
func BenchmarkBuild(b *testing.B) {
	c := config{clients: 20, n: 1e5, info: 0.01, polling: 0.5, tokens: true, quiet: true, seed: 1}
	events, _ := c.history()
	b.ReportAllocs()
	var k *keyOps
	for b.Loop() {
		bd := NewBuilder(history.Header{})
		for i := range events {
			bd.Add(&events[i])
		}
		bd.closeOpen()
		k = bd.keys[0]
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/event")
	runtime.KeepAlive(k)
}

// TestMemory holds the promise of issue 4: at most a hundred bytes for each
// operation of a key, of which some stay from its first event on and the others are
// what the decision allocates.
func TestMemory(t *testing.T) {
	for _, info := range []float64{0, 0.01, 0.1} {
		t.Run(fmt.Sprintf("info=%v", info), func(t *testing.T) {
			c := config{clients: 20, n: 50_000, info: info, polling: 0.5, tokens: true, quiet: true, seed: 1}
			events, _ := c.history()
			before := live()
			b := NewBuilder(history.Header{})
			for i := range events {
				b.Add(&events[i])
			}
			b.closeOpen()
			k := b.keys[0]
			n := float64(k.ops.len())
			kept := float64(live()-before) / n
			runtime.KeepAlive(events)
			lim := newLimits(context.Background(), Options{}.withDefaults())
			start := allocated()
			d := decide(k.ops, int(k.grants), lim, false)
			decided := float64(allocated()-start) / n
			if d.verdict != Legal {
				t.Fatal(d.verdict, d.reason)
			}
			t.Logf("%.0f operations, %.0f bytes each, and %.0f for the decision", n, kept, decided)
			if kept+decided > 100 {
				t.Errorf("%.0f bytes an operation", kept+decided)
			}
		})
	}
}

// live is the memory that is in use, in bytes.
func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
