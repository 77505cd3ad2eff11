package linear

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/lockcheck/lockcheck/history"
)

func randomConfig(r *rand.Rand, n int) config {
	return config{
		clients: 2 + r.IntN(6),
		n:       n,
		info:    []float64{0, 0.02, 0.1, 0.3}[r.IntN(4)],
		polling: r.Float64(),
		chaos:   []float64{0, 0.05, 0.3}[r.IntN(3)],
		tokens:  r.IntN(3) > 0,
		session: r.IntN(3) == 0,
		plain:   r.IntN(4) == 0,
		quiet:   r.IntN(3) == 0,
		seed:    r.Uint64(),
	}
}

// TestServiceIsLegal lets honest locks run, with losses and accidents of every
// kind, and allows no alarm. What is Unknown must be rare.
func TestServiceIsLegal(t *testing.T) {
	unknown, searched := 0, 0
	total := histories / 100
	for i := range total {
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		c := randomConfig(r, 20+r.IntN(200))
		ops, _ := c.history()
		res := judge(t, history.Header{}, ops)[0]
		switch {
		case res.Verdict == Illegal:
			for _, k := range res.Ops {
				t.Logf("%d: %s", k, history.AppendJSON(nil, &ops[k]))
			}
			t.Fatalf("%+v: %s", c, res.Reason)
		case res.Verdict == Unknown:
			unknown++
			t.Logf("%+v: %s", c, res.Reason)
		}
		if res.Searched {
			searched++
		}
		if res.Certificate != nil {
			if err := Verify(res.Operations, res.Certificate); err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
		} else if res.Verdict == Legal && !res.Searched {
			t.Fatalf("%+v: no certificate", c)
		}
	}
	t.Logf("%d histories, %d searched, %d unknown", total, searched, unknown)
	if unknown > total/1000 {
		t.Errorf("%d of %d legal histories are unknown", unknown, total)
	}
}

// slow asks the search, for as long as is bearable.
func slow(ops []Op) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(describedModel(nil), operations(ops), 100*time.Millisecond)
}

// TestServiceBugIsFound lets the server grant a held lock once. Nearly every time
// it must be found: only a session's holder may have lost its lock unseen, and the
// history may end before anybody notices.
func TestServiceBugIsFound(t *testing.T) {
	found, struck := 0, 0
	for i := range histories / 400 {
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		c := randomConfig(r, 50+r.IntN(200))
		c.bug, c.chaos, c.session = true, 0, false
		ops, hit := c.history()
		res := judge(t, history.Header{}, ops)[0]
		if !hit {
			continue
		}
		struck++
		if res.Verdict != Illegal {
			if slow(res.Operations) == porcupine.Illegal {
				t.Errorf("%s: %+v", res.Verdict, c)
			}
			continue
		}
		found++
		if len(res.names) > 2 || len(res.Window) > 8 {
			t.Errorf("%d grants, %d operations to show: %s", len(res.names), len(res.Window), res.Reason)
		}
	}
	t.Logf("%d of %d found", found, struck)
	if found < struck*3/4 || found < histories/1000 {
		t.Errorf("only %d of %d found", found, struck)
	}
}
