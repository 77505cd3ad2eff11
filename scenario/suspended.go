package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/runner"
)

var suspended = Scenario{
	Name:     "suspended",
	About:    "A and B hold a lock each and lose the ensemble, not the store. A goes on while SUSPENDED, B pauses until it is CONNECTED or LOST; C takes both locks when the sessions have expired, and writes",
	Workers:  3,
	Backends: []string{"zookeeper"},
	Faults:   []string{"client-cut"},
	Require:  required,
	TTL:      3 * time.Second,
	Run:      playSuspended,
	Theory: func(c Case) Expectation {
		e := lateWriteOf(c)
		if c.Fence {
			e.Seen["writes_refused"] = atLeastOne
		}
		e.Seen["stale_accesses_sent"] = atLeastOne
		return e
	},
}

// staleWanted is how many writes A is to send after C's.
const staleWanted = 3

func playSuspended(ctx context.Context, s *Stage) error {
	const c = 2
	two := []*holder{{i: a, Stage: *s}, {i: b, Stage: *s, pauses: true}}
	two[1].Key += "/b"
	for _, h := range two {
		var err error
		if h.grant, h.value, err = h.begin(ctx, h.i); err != nil {
			return err
		}
	}
	for _, h := range two {
		if _, err := s.fault(ctx, nemesis.Step{Fault: "client-cut", Target: fmt.Sprintf("w%d", h.i), Links: nemesis.EveryNode, Way: nemesis.Both}); err != nil {
			return err
		}
	}
	wctx, stop := context.WithCancel(ctx)
	defer stop()
	var working sync.WaitGroup
	for _, h := range two {
		working.Go(func() { h.goOnWriting(wctx) })
	}
	for _, h := range two {
		g, err := h.work(ctx, c)
		if err == nil {
			err = h.release(ctx, c, g)
		}
		if err != nil {
			return err
		}
	}
	enough := two[a].wrote.Load() + staleWanted
	if err := s.until(ctx, "A has gone on", func() bool { return two[a].wrote.Load() >= enough }); err != nil {
		return err
	}
	s.heal(ctx)
	for _, h := range two {
		if err := s.until(ctx, fmt.Sprintf("worker %d is told that its lock is lost", h.i), func() bool { return s.Runner.Worker(h.i).Lost(h.grant) }); err != nil {
			return err
		}
	}
	working.Wait()
	if err := errors.Join(two[a].err, two[b].err); err != nil {
		return err
	}
	return s.close(ctx, a, b, c)
}

// A holder is a worker that writes under its grant until it is told that it is
// lost.
type holder struct {
	Stage
	i      int
	grant  uint64
	value  int64
	pauses bool // while its client says that the connection is in doubt
	wrote  atomic.Int64
	err    error
}

func (h *holder) goOnWriting(ctx context.Context) {
	w := h.Runner.Worker(h.i)
	for ctx.Err() == nil && !w.Lost(h.grant) {
		if !h.pauses || !w.Suspended() {
			h.value++
			switch err := h.write(ctx, h.i, h.grant, h.value); {
			case errors.Is(err, runner.ErrLost), ctx.Err() != nil:
				return
			case err != nil:
				h.err = err
				return
			}
			h.wrote.Add(1)
		}
		if h.sleep(ctx, h.Retry) != nil {
			return
		}
	}
}
