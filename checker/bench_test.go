package checker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// workload makes a legal history of about n events: workers that poll for keys,
// read, write and release, with the store's entries.
func workload(n, workers, keys int) []history.Op {
	rng := rand.New(rand.NewPCG(1, 2))
	var ops []history.Op
	now := int64(0)
	add := func(o history.Op) {
		now += 1 + rng.Int64N(20000)
		o.Index, o.Time = len(ops), now
		ops = append(ops, o)
	}
	grant, seq := uint64(0), uint64(0)
	value := make([]int64, keys)
	for len(ops) < n {
		k := rng.IntN(keys)
		key := fmt.Sprintf("orders/%d", k)
		p, other := history.Process(rng.IntN(workers)), history.Process(0)
		for other = p; other == p; {
			other = history.Process(rng.IntN(workers))
		}
		grant++
		g, tok := history.Some(grant), history.Some(grant)
		add(history.Op{Process: p, Type: history.Invoke, F: history.Acquire, Key: key, TTL: history.Some(int64(1e9))})
		add(history.Op{Process: p, Type: history.OK, F: history.Acquire, Key: key, Grant: g, Token: tok, Valid: history.Some(int64(1e9))})
		add(history.Op{Process: other, Type: history.Invoke, F: history.Acquire, Key: key, TTL: history.Some(int64(1e9))})
		add(history.Op{Process: other, Type: history.Fail, F: history.Acquire, Key: key, Error: history.ErrHeld})
		for _, f := range []string{history.Read, history.Write} {
			if f == history.Write {
				value[k]++
			}
			v := fmt.Appendf(nil, "%d", value[k])
			seq++
			add(history.Op{Process: p, Type: history.Invoke, F: f, Key: key, Grant: g, Token: tok, Value: v})
			add(history.Op{Process: history.Store, Type: history.OK, F: f, Key: key, Grant: g, Token: tok, Value: v, Seq: history.Some(seq)})
			add(history.Op{Process: p, Type: history.OK, F: f, Key: key, Grant: g, Token: tok, Value: v})
		}
		add(history.Op{Process: p, Type: history.Invoke, F: history.Release, Key: key, Grant: g})
		add(history.Op{Process: p, Type: history.OK, F: history.Release, Key: key, Grant: g})
	}
	return ops
}

// BenchmarkJudge is all seven properties over a history in memory.
func BenchmarkJudge(b *testing.B) {
	for _, c := range []struct{ n, keys int }{{1e5, 1}, {1e6, 1}, {1e6, 1000}} {
		b.Run(fmt.Sprintf("events=%d/keys=%d", c.n, c.keys), func(b *testing.B) {
			ops := workload(c.n, 20, c.keys)
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				j := New(history.Header{})
				for i := range ops {
					j.Add(&ops[i])
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				r := j.Finish(context.Background())
				if r.Verdict != Valid {
					b.Fatal(r.Verdict)
				}
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(ops)), "kept-B/event")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ops)), "ns/event")
		})
	}
}
