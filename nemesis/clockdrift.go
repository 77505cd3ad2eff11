package nemesis

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/lockcheck/lockcheck/nemesis/skew"
)

var clockDriftEntry = clockEntry(Entry{
	Name:  "clock-drift",
	About: "the clocks of servers, or of workers, run fast or slow, by 1 % up to three times too fast or ten times too slow; the heal ends it and sets them right",
	Draw: func(rng *rand.Rand, _ Config, s *Step) {
		// Locks that allow for a drift allow for 1 %.
		if s.Drift = drawDrift(rng, 2_000_000); rng.IntN(2) == 0 {
			s.Drift = -drawDrift(rng, 900_000)
		}
	},
	New: func(_ context.Context, sys System, s Step) (Fault, error) {
		return ClockDrift{Clocks: sys.Clocks, Clock: clockOf(s.Form), PPM: s.Drift}, nil
	},
}, OfWorkers, ServersMonotonic, WorkersMonotonic)

// drawDrift is from 1 % up to most ppm, small ones as often as large ones.
func drawDrift(rng *rand.Rand, most float64) int64 {
	const least = 10_000
	return int64(math.Round(least * math.Pow(most/least, rng.Float64())))
}

// ClockDrift makes the clocks of its targets run at another speed.
type ClockDrift struct {
	Clocks Clocks
	Clock  skew.Clock
	PPM    int64
	// Move replaces what changes the speed, for the test.
	Move func(c *skew.Control, k skew.Clock, ppm float64) error
}

// Name is "clock-drift".
func (ClockDrift) Name() string { return clockDriftEntry.Name }

// driftProof is for how long a drift is watched.
const driftProof = 50 * time.Millisecond

// Inject changes the speeds. The evidence is how far each clock has come, as the
// memory of its process says at two times.
func (d ClockDrift) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	move := d.Move
	if move == nil {
		move = (*skew.Control).SetDrift
	}
	m := &mover{clocks: d.Clocks, clock: d.Clock, name: d.Name()}
	return m.inject(ctx, ts,
		func(c movedClock) error { return move(c.control, d.Clock, float64(d.PPM)) },
		d.prove)
}

func (d ClockDrift) prove(ctx context.Context, c movedClock, pid int) (Evidence, error) {
	var first sample
	err := poll(ctx, provedWithin, func() (_ bool, err error) { // a new speed begins some milliseconds ahead
		first, err = d.sample(c, pid)
		return first.ahead != c.from, err
	})
	if err != nil {
		return nil, fmt.Errorf("by its memory it does not drift: %w", err)
	}
	wait(ctx, driftProof)
	second, err := d.sample(c, pid)
	if err != nil {
		return nil, err
	}
	came := second.ahead - first.ahead
	shortest, longest := second.before.Sub(first.after), second.after.Sub(first.before)
	rate := float64(d.PPM) / 1e6
	a, b := rate*float64(shortest), rate*float64(longest)
	const rounding = float64(time.Microsecond)
	if float64(came) < min(a, b)-rounding || float64(came) > max(a, b)+rounding || !second.drifting {
		return nil, fmt.Errorf("by its memory it came %v further in %v, which is no drift of %d ppm", came, longest, d.PPM)
	}
	return Evidence{"drift_ppm": d.PPM, "came_ms": ms(came), "in_ms": ms(longest)}, nil
}

// A sample is what a process's clock was at some time between two.
type sample struct {
	before, after time.Time
	ahead         time.Duration
	drifting      bool
}

func (d ClockDrift) sample(c movedClock, pid int) (sample, error) {
	s := sample{before: time.Now()}
	r, err := c.control.ReadBack(pid)
	s.after, s.ahead, s.drifting = time.Now(), r.Offset(d.Clock), r.Drifting
	return s, err
}
