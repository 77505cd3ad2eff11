package linear

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// crashedAcquires is the history that exhausts a general search: acquires of
// unknown outcome that stay open, pairs of acquires and releases, and near the end
// a second holder. Its twin has the release that makes it legal.
func crashedAcquires(crashed, pairs int, tokens, twin bool) []history.Op {
	var ops []history.Op
	add := func(p history.Process, typ history.Type, f string, grant int, e string) {
		o := history.Op{Index: len(ops), Time: int64(len(ops)+1) * 1e6, Process: p, Type: typ, F: f, Key: "k", Error: e}
		if grant > 0 {
			o.Grant = history.Some(uint64(grant))
			if typ == history.OK && f == history.Acquire && tokens {
				o.Token = history.Some(uint64(grant))
			}
		}
		ops = append(ops, o)
	}
	for i := range crashed {
		add(history.Process(100+i), history.Invoke, history.Acquire, 0, "")
	}
	for i := range crashed {
		add(history.Process(100+i), history.Info, history.Acquire, 0, history.ErrCrashed)
	}
	for g := 1; g <= pairs; g++ {
		p := history.Process(g % 5)
		add(p, history.Invoke, history.Acquire, 0, "")
		add(p, history.OK, history.Acquire, g, "")
		if g == pairs-3 && !twin {
			continue // never released, and the next one is granted all the same
		}
		add(p, history.Invoke, history.Release, g, "")
		add(p, history.OK, history.Release, g, "")
	}
	return ops
}

// TestD11 is the regression input D11: the verdict must come at once and from
// little memory, whatever the number of unknown outcomes.
func TestD11(t *testing.T) {
	for _, tokens := range []bool{false, true} {
		for _, crashed := range []int{14, 2000} {
			before := allocated()
			bad := judge(t, history.Header{}, crashedAcquires(crashed, 200, tokens, false))[0]
			if bad.Verdict != Illegal || bad.Searched || !strings.Contains(bad.Reason, "never released") {
				t.Errorf("tokens %v: %s: %s", tokens, bad.Verdict, bad.Reason)
			}
			if len(bad.Window) != 2 && len(bad.Window) != 3 {
				t.Errorf("%d operations to show", len(bad.Window))
			}
			good := judge(t, history.Header{}, crashedAcquires(crashed, 200, tokens, true))[0]
			if good.Verdict != Legal {
				t.Errorf("twin: %s: %s", good.Verdict, good.Reason)
			}
			// A search would allocate without end; BenchmarkD11 has the time.
			if mem := allocated() - before; mem > 64<<20 {
				t.Errorf("%d crashed, tokens %v: %d MB allocated", crashed, tokens, mem>>20)
			}
		}
	}
}

// BenchmarkD11 has to stay under a second.
func BenchmarkD11(b *testing.B) {
	for _, crashed := range []int{14, 2000} {
		b.Run(fmt.Sprintf("crashed=%d", crashed), func(b *testing.B) {
			events := crashedAcquires(crashed, 200, true, false)
			for b.Loop() {
				if r := judge(b, history.Header{}, events)[0]; r.Verdict != Illegal {
					b.Fatal(r.Verdict, r.Reason)
				}
			}
		})
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestAnyEventsAreTaken feeds events without rhyme or reason, as in D12: package
// history refuses them, but nothing here may fall over.
func TestAnyEventsAreTaken(t *testing.T) {
	fs := []string{history.Acquire, history.Release, history.Renew, history.Close, history.Write, history.Check,
		history.Renewed, history.Lost, history.Mark, faultKill}
	errs := []string{"", history.ErrHeld, history.ErrNotHeld, history.ErrCrashed + ": x"}
	values := []string{"", "[1]", "7", `{"fault":1,"phase":"asked","targets":[1,2]}`,
		`{"fault":1,"phase":"skipped"}`, `{"fault":1,"phase":"done","grants":[1,2],"targets":[0]}`, `{"fault":2,"phase":"done"}`, "{"}
	for i := range histories / 10 {
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		b := NewBuilder(history.Header{Reentrant: r.IntN(2) == 0})
		for k := range r.IntN(40) {
			o := history.Op{Index: k, Time: r.Int64N(50), Process: history.Process(r.IntN(5) - 2),
				Type: history.Invoke + history.Type(r.IntN(4)), F: fs[r.IntN(len(fs))], Key: []string{"", "a"}[r.IntN(2)],
				Error: errs[r.IntN(len(errs))], Session: r.IntN(4) == 0, Value: []byte(values[r.IntN(len(values))])}
			extremes := []int64{Dawn, -1, 0, 5, 60, Forever}
			if r.IntN(2) == 0 {
				o.Grant = history.Some(uint64(r.IntN(6)))
			}
			if r.IntN(2) == 0 {
				o.Token = history.Some(uint64(r.IntN(6)))
			}
			if r.IntN(2) == 0 {
				o.Valid = history.Some(extremes[r.IntN(len(extremes))])
			}
			if r.IntN(2) == 0 {
				o.From = history.Some(extremes[r.IntN(len(extremes))])
			}
			if r.IntN(50) == 0 {
				o.Time = extremes[r.IntN(len(extremes))]
			}
			b.Add(&o)
		}
		for _, res := range b.Finish(context.Background(), Options{Certificate: true}) {
			checkResult(t, i, &res)
		}
	}
}

// checkResult holds what is true of every result.
func checkResult(t *testing.T, i int, r *Result) {
	t.Helper()
	switch {
	case r.Verdict != Legal && r.Reason == "":
		t.Fatalf("history %d: %s without a reason", i, r.Verdict)
	case r.Verdict == Illegal && (len(r.Window) == 0 || len(r.Ops) == 0):
		t.Fatalf("history %d: illegal without a witness: %+v", i, r)
	case r.Certificate != nil:
		if err := Verify(r.Operations, r.Certificate); err != nil {
			t.Fatalf("history %d: %v", i, err)
		}
	}
	if r.Verdict == Illegal && i%50 == 0 {
		var page strings.Builder
		if err := Visualize(&page, *r); err != nil {
			t.Fatal(err)
		}
	}
}

// hard is a history that no pass decides and no search gets through. Each of n
// gaps has two refusals: a session without a token explains the first and was gone
// by the second, which needs an acquire of unknown outcome; there is one too few.
func hard(n int) ([]Op, int) {
	var ops []Op
	g := int32(0)
	on := func(kind Kind, outcome Outcome, call, ret, deadline int64) {
		ops = append(ops, Op{Kind: kind, Outcome: outcome, Call: call, Return: ret, Deadline: deadline, Grant: g})
	}
	for range n - 1 {
		on(Acquire, Info, 0, Forever, 0)
		g++
	}
	for i := range n {
		at := int64(10 * (i + 1))
		on(Acquire, OK, at, at, Forever)
		on(Release, OK, at, at, 0)
		g++
		on(Acquire, OK, at+1, at+3, Dawn)
		on(Release, Denied, at+4, at+5, 0)
		g++
		for _, call := range []int64{at + 3, at + 7} {
			ops = append(ops, Op{Kind: Acquire, Outcome: Denied, Call: call, Return: call + 1, Grant: NoGrant})
		}
	}
	on(Acquire, OK, int64(10*n+10), int64(10*n+10), Forever)
	return ops, int(g) + 1
}

// TestSearchTells lets the search find that there is no order, and shows it.
func TestSearchTells(t *testing.T) {
	ops, grants := hard(3)
	k := keyOps{name: "k", ops: listOf(ops), grants: int32(grants)}
	r := k.decide(testLimits(), Options{})
	if r.Verdict != Illegal || !r.Searched || !strings.HasPrefix(r.Reason, "no order of these ") {
		t.Fatalf("%s, searched %v: %s", r.Verdict, r.Searched, r.Reason)
	}
	t.Log(r.Reason)
	var page strings.Builder
	if err := Visualize(&page, r); err != nil {
		t.Error(err)
	}
}

func TestSearchIsLimited(t *testing.T) {
	ops, grants := hard(40)
	for _, opts := range []Options{
		{Timeout: 200 * time.Millisecond, Memory: 4 << 30},
		{Timeout: time.Minute, Memory: 8 << 20},
	} {
		d := decide(listOf(ops), grants, newLimits(context.Background(), opts), true) // comes back, that is the test
		if d.verdict != Unknown || !strings.Contains(d.reason, "gave up") {
			t.Errorf("%s: %s", d.verdict, d.reason)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if d := decide(listOf(ops), grants, newLimits(ctx, Options{}.withDefaults()), false); d.verdict == Legal {
		t.Error("legal without a search")
	}
}
