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
	d := decide(ops, grants, testLimits(), true)
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
