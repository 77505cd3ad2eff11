package nemesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockcheck/lockcheck/nemesis/skew"
)

var clockStrobeEntry = clockEntry(Entry{
	Name:  "clock-strobe",
	About: "the clocks of servers, or of workers, jump to and fro every few milliseconds, by half of the TTL up to eight",
	Draw: func(rng *rand.Rand, cfg Config, s *Step) {
		s.Offset = drawOffset(rng, cfg, s.Form)
		s.Period = spread(rng, minPeriod, cfg.TTL/4)
	},
	New: func(_ context.Context, sys System, s Step) (Fault, error) {
		return ClockStrobe{Clocks: sys.Clocks, By: s.Offset, Every: s.Period}, nil
	},
}, OfWorkers) // a monotonic clock does not go to and fro

// minPeriod keeps a strobe from taking a processor.
const minPeriod = time.Millisecond

// ClockStrobe makes the time of day of its targets jump to and fro.
type ClockStrobe struct {
	Clocks Clocks
	By     time.Duration
	Every  time.Duration // from one jump to the next
	// Move replaces what moves a clock, for the test.
	Move func(c *skew.Control, k skew.Clock, to time.Duration) error
}

// Name is "clock-strobe".
func (ClockStrobe) Name() string { return clockStrobeEntry.Name }

// Inject begins to move the clocks. The evidence is that the memory of each
// process was seen to say the one offset and the other.
func (s ClockStrobe) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	if s.Move == nil {
		s.Move = (*skew.Control).Set
	}
	m := &mover{clocks: s.Clocks, clock: skew.Realtime, name: s.Name()}
	var jumps atomic.Int64
	stop := make(chan struct{})
	var movers sync.WaitGroup
	var once sync.Once
	heal := func(hctx context.Context) (Evidence, error) {
		once.Do(func() { close(stop) })
		movers.Wait()
		ev, err := m.heal(hctx)
		ev["jumps"] = jumps.Load()
		return ev, err
	}
	ev, _, err := m.inject(ctx, ts, func(c movedClock) error {
		if err := s.Move(c.control, skew.Realtime, s.By); err != nil {
			return err
		}
		movers.Go(func() { s.strobe(c, stop, &jumps) })
		return nil
	}, s.prove)
	if err != nil {
		return nil, nil, undone(ctx, heal, provedWithin, err)
	}
	ev["every_ms"] = ms(s.Every)
	return ev, heal, nil
}

// strobe goes on although its target may be gone: another one takes its place,
// with the same clock.
func (s ClockStrobe) strobe(c movedClock, stop <-chan struct{}, jumps *atomic.Int64) {
	tick := time.NewTicker(max(s.Every, minPeriod))
	defer tick.Stop()
	to := s.By
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		to = s.By - to
		if s.Move(c.control, skew.Realtime, to) == nil {
			jumps.Add(1)
		}
	}
}

func (s ClockStrobe) prove(ctx context.Context, c movedClock, pid int) (Evidence, error) {
	seen := map[time.Duration]bool{}
	err := poll(ctx, provedWithin+4*s.Every, func() (bool, error) {
		r, err := c.control.ReadBack(pid)
		seen[r.Realtime] = true
		return seen[0] && seen[s.By], err
	})
	if err != nil {
		return nil, fmt.Errorf("it is not seen to go to and fro: %w", err)
	}
	return Evidence{"offsets_ms": []float64{0, ms(s.By)}}, nil
}
