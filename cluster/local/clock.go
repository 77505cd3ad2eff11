package local

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/skew"
)

// A clock is that of one place: the processes that follow one another in it have
// it in turn, so that a server that is restarted keeps what it had. A nil clock
// is the real one.
type clock struct {
	control *skew.Control

	mu    sync.Mutex
	execs int // how many programs start one another there, as was learnt
	last  *exec.Cmd
}

// newClock is nil unless clocks were asked for.
func (c *Cluster) newClock() (*clock, error) {
	if !c.spec.Clocks {
		return nil, nil
	}
	control, err := skew.NewControl()
	if err != nil {
		return nil, err
	}
	return &clock{control: control}, nil
}

// starter starts commands that have the clock.
func (k *clock) starter() starter {
	if k == nil {
		return (*exec.Cmd).Start
	}
	return func(cmd *exec.Cmd) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.last = cmd
		return skew.Launch(cmd, k.control, skew.Options{Execs: k.execs})
	}
}

// ErrNoClocks is wrapped where processes were started with the real clock only.
var ErrNoClocks = errors.New("local: this cluster was started without clocks that can be moved")

// Clock is the control of the clock of a server, or of whatever runs in a worker's
// place.
func (c *Cluster) Clock(t nemesis.Target) (*skew.Control, error) {
	k, err := c.clockOf(t)
	if err == nil && k == nil {
		err = ErrNoClocks
	}
	if err != nil {
		return nil, fmt.Errorf("clock of %v: %w", t, err)
	}
	return k.control, nil
}

func (c *Cluster) clockOf(t nemesis.Target) (*clock, error) {
	if t.Node != "" {
		m, err := c.member(t.Node)
		if err != nil {
			return nil, err
		}
		return m.clock, nil
	}
	p, err := c.place(t.Worker)
	if err != nil {
		return nil, err
	}
	return p.clock, nil
}

// A timeTeller is a driver whose servers can be asked what time it is.
type timeTeller interface {
	told(ctx context.Context, m *member) (t time.Time, coarse time.Duration, err error)
}

// Told is the time of day by a server's own word, and how coarse that is.
func (c *Cluster) Told(ctx context.Context, node string) (time.Time, time.Duration, error) {
	m, err := c.member(node)
	if err != nil {
		return time.Time{}, 0, err
	}
	d, ok := c.driver.(timeTeller)
	if !ok || m.role.server == redisSentinel {
		return time.Time{}, 0, nemesis.ErrUntold
	}
	t, coarse, err := d.told(ctx, m)
	if err != nil {
		return time.Time{}, 0, fmt.Errorf("ask %s for the time: %w", node, err)
	}
	return t, coarse, nil
}

// maxExecs bounds the chain of programs that a worker command may be.
const maxExecs = 4

// ErrAgain says that a worker has to be started once more.
var ErrAgain = errors.New("local: start the worker again")

// Settled is to be asked when a worker answers. A command that is a chain of
// programs, such as a script that calls exec, throws its clock away with each of
// them; how long the chain is shows only now. Settled is an ErrAgain until that
// was learnt: the worker has to be ended and started again then.
func (c *Cluster) Settled(worker int) error {
	p, err := c.place(worker)
	if err != nil || p.clock == nil {
		return err
	}
	k := p.clock
	k.mu.Lock()
	defer k.mu.Unlock()
	ok, err := k.control.Attached(k.last.Process.Pid)
	switch {
	case err != nil:
		return fmt.Errorf("clock of worker %d: %w", worker, err)
	case ok:
		return nil
	case k.execs >= maxExecs:
		return fmt.Errorf("clock of worker %d: its command is a chain of more than %d programs: %w", worker, maxExecs, skew.ErrNotAttached)
	}
	k.execs++
	return ErrAgain
}

// clocksAtZero says which clocks are not the real ones: by what was set, and by
// the memory of those servers that run.
func (c *Cluster) clocksAtZero() error {
	var errs []error
	check := func(name string, k *clock, pid int) {
		if k == nil {
			return
		}
		off, err := k.control.Offset(skew.Realtime)
		if err == nil && pid != 0 {
			var r skew.Reading
			r, err = k.control.ReadBack(pid)
			off = r.Realtime
			if err == nil && r.Drifting {
				err = errors.New("its clock drifts")
			}
		}
		if err == nil && off != 0 {
			err = fmt.Errorf("its clock is %v ahead", off)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	for _, m := range c.members {
		pid := 0
		if p, err := m.process(); err == nil {
			pid = p.cmd.Process.Pid
		}
		check(m.name, m.clock, pid)
	}
	for i, p := range c.workers {
		check(fmt.Sprintf("worker %d", i), p.clock, 0)
	}
	return errors.Join(errs...)
}

func (c *Cluster) closeClocks() error {
	var errs []error
	for _, m := range c.members {
		errs = append(errs, m.clock.close())
	}
	for _, p := range c.workers {
		errs = append(errs, p.clock.close())
	}
	return errors.Join(errs...)
}

func (k *clock) close() error {
	if k == nil {
		return nil
	}
	return k.control.Close()
}
