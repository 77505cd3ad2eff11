package linear

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/lockcheck/lockcheck/history"
)

var (
	soak = flag.Int("soak", 0, "histories to compare with the search instead of the usual number")
	seed = flag.Uint64("seed", 1, "of the random histories")
)

// oracleTime is what a search of a test history may take. None should come near.
const oracleTime = 30 * time.Second

func testLimits() *limits {
	return newLimits(context.Background(), Options{Timeout: time.Minute, Memory: 1 << 30})
}

// oracle searches the whole history, the plain way.
func oracle(ops []Op) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(describedModel(nil), operations(ops), oracleTime)
}

// tally counts what the random histories were.
type tally map[string]int

// agree compares the decision on one history with the search, in both directions.
func agree(ops []Op, grants int, legal bool, n tally) error {
	d := decide(listOf(ops), grants, testLimits(), true)
	want := oracle(ops)
	if legal && want != porcupine.Ok {
		return fmt.Errorf("the simulated history is %s by the search: the simulator is wrong", want)
	}
	n[d.verdict.String()]++
	if d.searched {
		n["searched"]++
	}
	if d.problem.odd != "" {
		n["odd: "+d.problem.odd]++
	}
	switch {
	case d.verdict == Unknown:
		if d.problem.broken == "" {
			return fmt.Errorf("unknown: %s", d.reason)
		}
	case (d.verdict == Legal) != (want == porcupine.Ok):
		return fmt.Errorf("decided %s, searched %s", d.verdict, want)
	}
	if d.verdict == Legal && !d.searched {
		n["certified"]++
		if err := Verify(ops, d.certificate); err != nil {
			return fmt.Errorf("certificate: %w: %+v", err, d.certificate)
		}
	}
	if p := d.problem; p.odd != "" && p.broken == "" && p.relaxed() == nil {
		// The windows have to come to the same verdict when nothing was guessed first.
		alone := decided{verdict: Unknown}
		gaveUp := p.searchWindows(testLimits(), &alone)
		n["windows: "+alone.verdict.String()]++
		if gaveUp == "" && alone.verdict != d.verdict {
			return fmt.Errorf("decided %s, by windows %s", d.verdict, alone.verdict)
		}
	}
	if d.verdict == Illegal {
		return witnessed(&d, n)
	}
	return nil
}

// witnessed checks that the part shown is illegal on its own, before and after it
// was made smaller.
func witnessed(d *decided, n tally) error {
	n[fmt.Sprintf("rule %d", d.violation.rule)]++
	part := d.problem.witness(d.violation)
	if part == nil {
		part = d.violation.ops
	}
	if d.violation.rule < noHolder {
		if g := len(grantsOf(part)); g > 2 {
			return fmt.Errorf("%d grants in the witness of a chain", g)
		}
	}
	if oracle(part) != porcupine.Illegal {
		return fmt.Errorf("rule %d: the witness is legal: %+v", d.violation.rule, part)
	}
	if small := shrink(part); oracle(small) != porcupine.Illegal {
		return fmt.Errorf("rule %d: the small witness is legal: %+v", d.violation.rule, small)
	}
	return nil
}

// draw makes one random history. legal tells that it was not tampered with.
func draw(r *rand.Rand, most int) (ops []Op, grants int, legal bool) {
	n := 2 + r.IntN(most-1)
	if r.IntN(10) == 0 {
		ops, grants = noise(r, n)
		return ops, grants, false
	}
	ops, grants = legalHistory(r, n, randomStyle(r))
	k := r.IntN(4)
	for range k {
		ops = mutate(r, ops)
	}
	return ops, grants, k == 0
}

func TestDecisionAgreesWithSearch(t *testing.T) {
	total := histories
	if *soak > 0 {
		total = *soak
	}
	const workers = 2
	var wg sync.WaitGroup
	var mu sync.Mutex
	all := tally{}
	for w := range workers {
		wg.Go(func() {
			n := tally{}
			for i := range total / workers {
				s := uint64(i*workers + w)
				r := rand.New(rand.NewPCG(*seed, s))
				ops, grants, legal := draw(r, 9)
				if err := agree(ops, grants, legal, n); err != nil {
					t.Errorf("seed %d, history %d: %v", *seed, s, err)
					for i := range ops {
						t.Logf("%d: %+v", i, ops[i])
					}
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for k, v := range n {
				all[k] += v
			}
		})
	}
	wg.Wait()
	t.Log(all)
}

// TestLongerHistoriesAgree compares histories that are too long for a plain search
// to come to an end each time: those where it gives up are counted, not judged.
func TestLongerHistoriesAgree(t *testing.T) {
	n := tally{}
	for i := range histories / 100 {
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		ops, grants := longer(r)
		d := decide(listOf(ops), grants, testLimits(), true)
		n[d.verdict.String()]++
		if d.searched {
			n["searched"]++
		}
		if d.verdict == Legal && !d.searched {
			if err := Verify(ops, d.certificate); err != nil {
				t.Fatalf("seed %d, history %d: %v", *seed, i, err)
			}
		}
		found, gaveUp := newLimits(context.Background(), Options{Timeout: time.Minute, Memory: 2 << 20}).search(ops)
		switch {
		case gaveUp != "":
			n["search gave up"]++
		case d.verdict == Unknown || found != (d.verdict == Legal):
			t.Fatalf("seed %d, history %d: decided %s, searched %v", *seed, i, d.verdict, found)
		}
	}
	t.Log(n)
}

// longer makes a history of up to a hundred operations, half of them by a service
// with all its accidents, and moves a few stamps.
func longer(r *rand.Rand) (ops []Op, grants int) {
	if r.IntN(2) == 0 {
		ops, grants = legalHistory(r, 10+r.IntN(30), randomStyle(r))
	} else {
		b := NewBuilder(history.Header{})
		randomConfig(r, 20+r.IntN(80)).run(b.Add)
		b.closeOpen()
		ops, grants = b.keys[0].ops.flat(), int(b.keys[0].grants)
	}
	for range r.IntN(4) {
		ops = mutate(r, ops)
		shift(r, ops)
	}
	return ops, grants
}

// shift moves an operation by about as much as operations take.
func shift(r *rand.Rand, ops []Op) {
	o, other := &ops[r.IntN(len(ops))], &ops[r.IntN(len(ops))]
	if other.Outcome == Info || o.Kind == Acquire && o.Outcome == Info {
		return
	}
	by := r.Int64N(2*(other.Return-other.Call)+1) - (other.Return - other.Call)
	o.Call += by
	if o.Outcome != Info {
		o.Return += by
	}
}

// TestNextButOneBoundsPhantom has a phantom that must be over before the next grant
// begins, which must itself be over before the one after it: the slack of the next
// grant alone would be enough for the phantom, the slack of both is not.
func TestNextButOneBoundsPhantom(t *testing.T) {
	for _, c := range []struct {
		lease int64 // of the phantom: it holds until then
		want  Verdict
	}{{50, Legal}, {51, Illegal}} {
		ops := []Op{
			{Kind: Acquire, Outcome: Info, Call: 0, Return: Forever, Deadline: c.lease, Grant: 0},
			{Kind: Acquire, Outcome: Denied, Call: 5, Return: 10, Grant: NoGrant},
			{Kind: Acquire, Outcome: OK, Call: 20, Return: 100, Deadline: Dawn, Grant: 1, Token: 1, HasToken: true},
			{Kind: Acquire, Outcome: OK, Call: 20, Return: 50, Deadline: Dawn, Grant: 2, Token: 2, HasToken: true},
		}
		verdicts := tally{}
		if err := agree(ops, 3, false, verdicts); err != nil || verdicts[c.want.String()] == 0 {
			t.Errorf("a phantom until %d: %v %v, want %s", c.lease, verdicts, err, c.want)
		}
	}
}

// TestManyOpenGrants wants the time to stay small where each tenth grant is a
// session without a token that ended without a release, so that its place is open,
// and something is wrong somewhere.
func TestManyOpenGrants(t *testing.T) {
	b := NewBuilder(history.Header{})
	config{clients: 20, n: histories / 10, info: 0.02, polling: 0.7, chaos: 0.2, session: true, quiet: true, seed: 3}.run(b.Add)
	b.closeOpen()
	verdicts := tally{}
	for i := range 20 {
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		ops := b.keys[0].ops.flat()
		for range 1 + i {
			o := &ops[r.IntN(len(ops))]
			by := r.Int64N(4_000_000) - 2_000_000
			o.Call += by
			if o.Outcome != Info {
				o.Return += by
			}
		}
		start := time.Now()
		d := decide(listOf(ops), int(b.keys[0].grants), newLimits(context.Background(), Options{}.withDefaults()), false)
		verdicts[d.verdict.String()]++
		if d.searched {
			verdicts["searched"]++
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: %s after %v", d.verdict, d.reason, took)
		}
	}
	t.Log(verdicts)
}
