package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockcheck/lockcheck/nemesis/skew"
)

var clockJumpEntry = clockEntry(Entry{
	Name:  "clock-jump",
	About: "the clocks of servers, or of workers, jump forward or back by half of the TTL up to eight, and back again with the heal",
	Draw:  func(rng *rand.Rand, cfg Config, s *Step) { s.Offset = drawOffset(rng, cfg, s.Form) },
	New: func(_ context.Context, sys System, s Step) (Fault, error) {
		return ClockJump{Clocks: sys.Clocks, Clock: clockOf(s.Form), By: s.Offset}, nil
	},
}, OfWorkers, ServersMonotonic, WorkersMonotonic)

// drawOffset is how far a clock jumps: some jumps end a lease and some do not,
// some leave a lock that nobody releases stuck for longer than is tolerated.
func drawOffset(rng *rand.Rand, cfg Config, form string) time.Duration {
	d := spread(rng, cfg.TTL/2, 8*cfg.TTL)
	if rng.IntN(2) == 0 && clockOf(form) == skew.Realtime {
		return -d
	}
	return d
}

// ClockJump moves the clocks of its targets in one step.
type ClockJump struct {
	Clocks Clocks
	Clock  skew.Clock
	By     time.Duration
	// Move replaces what moves a clock, for the test that a jump which does not
	// happen is not believed.
	Move func(c *skew.Control, k skew.Clock, to time.Duration) error
}

// Name is "clock-jump".
func (ClockJump) Name() string { return clockJumpEntry.Name }

// Inject moves the clocks. The evidence is what the memory of each process holds,
// from the symbols of its vDSO to the page that they lead to, and what the server
// answers to the question what time it is, where it can be asked.
func (j ClockJump) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	move := j.Move
	if move == nil {
		move = (*skew.Control).Set
	}
	m := &mover{clocks: j.Clocks, clock: j.Clock, name: j.Name()}
	return m.inject(ctx, ts,
		func(c movedClock) error { return move(c.control, j.Clock, c.from+j.By) },
		func(ctx context.Context, c movedClock, pid int) (Evidence, error) { return j.prove(ctx, c, pid) })
}

func (j ClockJump) prove(ctx context.Context, c movedClock, pid int) (Evidence, error) {
	r, err := c.control.ReadBack(pid)
	if err != nil {
		return nil, err
	}
	if got := r.Offset(j.Clock); got != c.from+j.By {
		return nil, fmt.Errorf("its memory says %v ahead and not %v", got, c.from+j.By)
	}
	ev := Evidence{"offset_ms": ms(r.Offset(j.Clock)), "symbols": r.Symbols, "changes": r.Generation}
	if c.t.Node == "" || j.Clock != skew.Realtime {
		return ev, nil
	}
	said, err := told(ctx, j.Clocks, c.t.Node, r.Realtime)
	ev["told_ms"] = said
	return ev, err
}

// toldWithin bounds the question to a server, which may be stopped.
const toldWithin = time.Second

// told asks a server what time it is, and wants that to be so far ahead of the
// real one. A server that does not answer proves nothing either way.
func told(ctx context.Context, clocks Clocks, node string, ahead time.Duration) (any, error) {
	tctx, cancel := context.WithTimeout(ctx, toldWithin)
	defer cancel()
	before := time.Now()
	t, coarse, err := clocks.Told(tctx, node)
	after := time.Now()
	if errors.Is(err, ErrUntold) {
		return nil, nil
	}
	if err != nil {
		return err.Error(), nil
	}
	least, most := t.Sub(after), t.Add(coarse).Sub(before)
	if ahead < least || ahead > most {
		return nil, fmt.Errorf("by its own word it is %v to %v ahead, and not %v", least, most, ahead)
	}
	return ms(least), nil
}
