package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockcheck/lockcheck/nemesis/skew"
)

// Forms of a clock fault: whose clock, and which. Servers' time of day is what a
// plan takes; the others have to be asked for. A monotonic clock that jumps is no
// clock that goes wrong: by its nature it does not.
const (
	OfServers        = "server"           // the time of day of servers
	OfWorkers        = "worker"           // the time of day of workers
	ServersMonotonic = "monotonic"        // what servers measure durations with
	WorkersMonotonic = "worker-monotonic" // what workers measure durations with
)

func onWorkersClock(form string) bool { return form == OfWorkers || form == WorkersMonotonic }

// clockOf is the clock that a form moves.
func clockOf(form string) skew.Clock {
	if form == ServersMonotonic || form == WorkersMonotonic {
		return skew.Monotonic
	}
	return skew.Realtime
}

// clockEntry is a fault that moves clocks.
func clockEntry(e Entry, named ...string) Entry {
	e.Acts, e.Aims, e.Forms, e.Named = OnClocks, nodeAims, []string{OfServers}, named
	e.Possible = func(set Setting, form string) error {
		if form == ServersMonotonic && set.Backend != "etcd" {
			return fmt.Errorf("%s:%s cannot work on %s: its servers are no static Go programs and hand monotonic deadlines to the kernel, which keeps them by the real clock (use %s:%s)",
				e.Name, form, set.Backend, e.Name, OfServers)
		}
		return nil
	}
	return e
}

// instead names the form of a clock fault that can be aimed at a worker.
func (e Entry) instead() string {
	if slices.Contains(e.Named, OfWorkers) {
		return fmt.Sprintf(" (use %s:%s)", e.Name, OfWorkers)
	}
	return ""
}

// clock refuses numbers of a clock fault that make no sense.
func (s Step) clock() error {
	e, err := Find(s.Fault)
	if err != nil || e.Acts != OnClocks {
		return err
	}
	switch {
	case s.Fault != clockDriftEntry.Name && s.Offset == 0:
		return fmt.Errorf("%s without an offset: give how far the clock is to jump, in ns", s.Fault)
	case s.Fault == clockDriftEntry.Name && (s.Drift == 0 || s.Drift <= -1e6):
		return fmt.Errorf("%s by %d ppm: give a drift above -1000000 (a stop) that is not 0", s.Fault, s.Drift)
	case s.Fault == clockStrobeEntry.Name && s.Period < minPeriod:
		return fmt.Errorf("%s every %v: give a period of %v or more, in ns", s.Fault, s.Period, minPeriod)
	case clockOf(s.Form) == skew.Monotonic && s.Offset < 0:
		return fmt.Errorf("%s:%s by %v: a monotonic clock does not go backwards", s.Fault, s.Form, s.Offset)
	}
	return nil
}

// A mover moves one clock of some processes. The faults differ in how they move
// it and in what they take for a proof.
type mover struct {
	clocks Clocks
	clock  skew.Clock
	name   string
	begun  time.Time
	moved  []movedClock
}

// A movedClock is that of one target.
type movedClock struct {
	t       Target
	control *skew.Control
	from    time.Duration // its offset before
}

// inject moves the clock of each target and proves it.
func (m *mover) inject(ctx context.Context, ts []Target, move func(movedClock) error, prove func(context.Context, movedClock, int) (Evidence, error)) (Evidence, Heal, error) {
	m.begun = time.Now()
	ev := Evidence{"clock": m.clock.String()}
	for _, t := range ts {
		c, err := m.take(t)
		if err == nil {
			err = move(c)
		}
		var found []Evidence
		if err == nil {
			found, err = m.proofs(ctx, c, prove)
		}
		if err != nil {
			return nil, nil, undone(ctx, m.heal, provedWithin, fmt.Errorf("%s of %v: %w", m.name, t, err))
		}
		ev[key(t)] = found
	}
	return ev, m.heal, nil
}

// key is how the evidence names a target.
func key(t Target) string {
	if t.Node != "" {
		return t.Node
	}
	return fmt.Sprintf("w%d", t.Worker)
}

// take files a target's clock among those to be healed.
func (m *mover) take(t Target) (movedClock, error) {
	if m.clocks == nil {
		return movedClock{}, errNoClocks
	}
	control, err := m.clocks.Clock(t)
	if err != nil {
		return movedClock{}, err
	}
	from, err := control.Offset(m.clock)
	if err != nil {
		return movedClock{}, err
	}
	c := movedClock{t, control, from}
	m.moved = append(m.moved, c)
	return c, nil
}

// errNoClocks says that the processes were started as usual.
var errNoClocks = errors.New("the processes were started without clocks that can be moved")

// proofs proves it for every process of a target: a worker may have started
// others, and the one that works may be one of them.
func (m *mover) proofs(ctx context.Context, c movedClock, prove func(context.Context, movedClock, int) (Evidence, error)) ([]Evidence, error) {
	pids := []int{c.t.OS.Pid}
	if c.t.Node == "" {
		var err error
		if pids, err = groupMembers(c.t.OS.Pid); err != nil {
			return nil, err
		}
	}
	var all []Evidence
	for _, pid := range pids {
		ev, err := prove(ctx, c, pid)
		if err != nil {
			return nil, err
		}
		ev["pid"] = pid
		all = append(all, ev)
	}
	return all, nil
}

// heal makes the time of day the real one again and ends every drift. A monotonic
// clock stays where it is while a process that has seen it runs.
func (m *mover) heal(context.Context) (Evidence, error) {
	ev := Evidence{"moved_ms": time.Since(m.begun).Milliseconds()}
	var errs []error
	for _, c := range m.moved {
		err := c.control.Reset()
		if err == nil {
			err = settled(c.control, c.t.OS.Pid)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("heal the clock of %v: %w", c.t, err))
		}
	}
	return ev, errors.Join(errs...)
}

// settled wants a process to have the real time of day, without a drift. One
// that has ended has no clock.
func settled(c *skew.Control, pid int) error {
	r, err := c.ReadBack(pid)
	switch {
	case errors.Is(err, skew.ErrNotAttached):
		return nil
	case err != nil:
		return err
	case r.Realtime != 0 || r.Drifting:
		return fmt.Errorf("process %d is still %v ahead (drifting: %v)", pid, r.Realtime, r.Drifting)
	}
	return nil
}

// ms is a duration for the evidence.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
