package linear

import (
	"context"
	"math/rand/v2"
	"testing"

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
		ops := c.history()
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
		certified(t, ops, &res)
	}
	t.Logf("%d histories, %d searched, %d unknown", total, searched, unknown)
	if unknown > total/1000 {
		t.Errorf("%d of %d legal histories are unknown", unknown, total)
	}
}

func certified(t *testing.T, events []history.Op, res *Result) {
	if res.Verdict != Legal || res.Searched {
		return
	}
	b := NewBuilder(history.Header{})
	for i := range events {
		b.Add(&events[i])
	}
	b.closeOpen()
	if err := Verify(b.keys[0].ops, res.Certificate); err != nil {
		t.Fatal(err)
	}
}

// TestServiceBugIsFound lets the server grant a held lock once. With tokens or
// without, with leases, sessions or neither, most must be found, and each must be
// shown by a small part.
func TestServiceBugIsFound(t *testing.T) {
	found, tried, unknown := 0, 0, 0
	for i := range histories / 400 {
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		c := randomConfig(r, 50+r.IntN(200))
		c.bug, c.chaos = true, 0
		res := judge(t, history.Header{}, c.history())[0]
		tried++
		switch res.Verdict {
		case Illegal:
			found++
			if g := len(res.names); g > 5 && res.Searched == false && len(res.Window) > 40 {
				t.Errorf("%d grants, %d operations: %s", g, len(res.Window), res.Reason)
			}
		case Unknown:
			unknown++
		}
	}
	t.Logf("%d of %d found, %d unknown", found, tried, unknown)
	if found < tried*6/10 {
		t.Errorf("only %d of %d found", found, tried)
	}
}

var _ = context.Background
