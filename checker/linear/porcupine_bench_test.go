package linear

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/lockcheck/lockcheck/history"
)

// How long the general search may take: on what it can decide, and where it is
// known to come to no end.
const (
	patience = 5 * time.Minute
	giveUp   = 20 * time.Second
)

// BenchmarkAgainstPorcupine decides the same operations by the decision and by
// porcupine, one after the other: "times-faster" and "times-less-memory" (of all
// that was allocated) are its promise. Porcupine runs once. Where it comes to no
// end, both are lower bounds, and "gave-up" is 1.
func BenchmarkAgainstPorcupine(b *testing.B) {
	for _, c := range []struct {
		name    string
		keys, n int
		info    float64
		planted bool
	}{
		{"1-key/ops=1e4/legal", 1, 1e4, 0, false},
		{"1-key/ops=1e5/legal", 1, 1e5, 0, false},
		{"1000-keys/ops=1e6/legal", 1000, 1e3, 0, false},
		{"1-key/ops=1e3/planted", 1, 1e3, 0.01, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			keys := make([]*keyOps, c.keys)
			for i := range keys {
				keys[i] = seededKey(c.n, c.info, uint64(i+1))
				if c.planted {
					keys[i].ops = listOf(plant(keys[i].ops.flat()))
					keys[i].grants++
				}
			}
			want := Legal
			if c.planted {
				want = Illegal
			}
			before := allocated()
			for b.Loop() {
				for _, k := range keys {
					lim := newLimits(context.Background(), Options{}.withDefaults())
					if d := decide(k.ops, int(k.grants), lim, false); d.verdict != want {
						b.Fatal(d.verdict, d.reason)
					}
				}
			}
			own := b.Elapsed() / time.Duration(b.N)
			memory := (allocated() - before) / uint64(b.N)
			within := patience
			if c.planted {
				within = giveUp
			}
			general, spent, gaveUp := porcupineOn(b, keys, !c.planted, within)
			b.ReportMetric(own.Seconds()*1e3, "ms")
			b.ReportMetric(general.Seconds()*1e3, "porcupine-ms")
			b.ReportMetric(general.Seconds()/own.Seconds(), "times-faster")
			b.ReportMetric(float64(spent)/float64(max(memory, 1)), "times-less-memory")
			b.ReportMetric(gaveUp, "gave-up")
		})
	}
}

// porcupineOn is the time and the memory that porcupine takes, with the keys side
// by side as it does it by itself. It must not come to another verdict.
func porcupineOn(b *testing.B, keys []*keyOps, legal bool, within time.Duration) (took time.Duration, spent uint64, gaveUp float64) {
	parts := make(chan []porcupine.Operation, len(keys))
	for _, k := range keys {
		parts <- lean(k.ops.flat())
	}
	close(parts)
	runtime.GC()
	before, start := allocated(), time.Now()
	results := make(chan porcupine.CheckResult, len(keys))
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for ops := range parts {
				results <- porcupine.CheckOperationsTimeout(describedModel(nil), ops, max(within-time.Since(start), time.Millisecond))
			}
		})
	}
	wg.Wait()
	close(results)
	took, spent = time.Since(start), allocated()-before
	for r := range results {
		switch {
		case r == porcupine.Unknown:
			gaveUp = 1
		case (r == porcupine.Ok) != legal:
			b.Fatal("porcupine comes to another verdict: ", r)
		}
	}
	return took, spent, gaveUp
}

// seededKey is a history as oneKey makes it.
func seededKey(n int, info float64, seed uint64) *keyOps {
	b := NewBuilder(history.Header{})
	c := config{clients: 20, n: n, info: info, polling: 0.5, tokens: true, quiet: true, seed: seed}
	c.run(b.Add)
	b.closeOpen()
	return b.keys[0]
}

// plant adds, near the end, a second holder inside a hold that was released well
// after it. Its token is nobody else's, between the holder's and the next one's.
func plant(ops []Op) []Op {
	for i := range ops {
		ops[i].Token *= 2
	}
	at := map[int32]int{}
	for i := range ops {
		if ops[i].Kind == Acquire && ops[i].Outcome == OK {
			at[ops[i].Grant] = i
		}
	}
	for i := len(ops) * 9 / 10; i < len(ops); i++ {
		r := ops[i]
		a, held := at[r.Grant]
		if r.Kind != Release || r.Outcome != OK || !held || r.Call-ops[a].Return < 3 {
			continue
		}
		second := ops[a]
		second.Call, second.Return = ops[a].Return+1, r.Call-1
		second.Process += 1 << 20
		second.Token++
		return withGrant(ops, second)
	}
	panic("no hold to plant a second holder in")
}

// withGrant adds an acquire as the next grant.
func withGrant(ops []Op, o Op) []Op {
	o.Grant = 0
	for i := range ops {
		o.Grant = max(o.Grant, ops[i].Grant+1)
	}
	return append(ops, o)
}

// BenchmarkGrowth is the decision on one key; "times-10" is the time for ten times
// the operations by the time for these.
func BenchmarkGrowth(b *testing.B) {
	for _, n := range []int{1e4, 1e5, 1e6} {
		b.Run(fmt.Sprintf("ops=%d", n), func(b *testing.B) {
			few, many := oneKey(n, 0.01), oneKey(10*n, 0.01)
			var short, long time.Duration
			for b.Loop() {
				short += timed(b, few)
				long += timed(b, many)
			}
			b.ReportMetric(long.Seconds()/short.Seconds(), "times-10")
		})
	}
}

func timed(b *testing.B, k *keyOps) time.Duration {
	runtime.GC()
	start := time.Now()
	if d := decide(k.ops, int(k.grants), newLimits(context.Background(), Options{}.withDefaults()), false); d.verdict != Legal {
		b.Fatal(d.verdict, d.reason)
	}
	return time.Since(start)
}
