// Package scenario tells exactly timed stories: which worker does what, when it
// is stopped, and who comes in between. What really happened is in the history,
// and the history is judged; a scenario only sees to it that the story is told.
package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/runner"
)

// A Scenario is one story.
type Scenario struct {
	Name    string
	About   string
	Workers int
	Require []string // the properties that its verdict is made of
	Run     func(ctx context.Context, s *Stage) error
}

// All lists the scenarios.
var All = []Scenario{gcPause}

// Find gives the scenario of that name.
func Find(name string) (Scenario, error) {
	var names []string
	for _, s := range All {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Scenario{}, fmt.Errorf("scenario %q is not known; there are %v", name, names)
}

// Key is what the scenarios lock.
const Key = "orders/99999"

// A Stage is what a scenario plays on.
type Stage struct {
	Runner *runner.Runner
	Key    string
	TTL    time.Duration // of the lease or session
	Retry  time.Duration // between two tries
}

// patience is how long a scenario waits for what must come: a server that is
// slow under load is not a finding.
const patience = 60 * time.Second

// acquire tries until worker i has the lock.
func (s *Stage) acquire(ctx context.Context, i int) (uint64, error) {
	w := s.Runner.Worker(i)
	deadline := time.Now().Add(patience)
	var last runner.Done
	for time.Now().Before(deadline) {
		if err := w.Session(ctx); err != nil {
			return 0, err
		}
		d, err := w.Do(ctx, runner.Call{F: history.Acquire, Key: s.Key, Wait: patience / 2})
		switch {
		case err != nil:
			return 0, fmt.Errorf("acquire by worker %d: %w", i, err)
		case d.Type == history.OK:
			return d.Grant, nil
		}
		last = d
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(s.Retry):
		}
	}
	return 0, fmt.Errorf("worker %d was not granted the lock within %v; the last try was %v: %s", i, patience, last.Type, last.Error)
}

// check asks the lock whether it is held, if it can be asked.
func (s *Stage) check(ctx context.Context, i int, grant uint64) error {
	if !s.Runner.Worker(i).Can(wire.CanCheck) {
		return nil
	}
	return s.must(ctx, i, runner.Call{F: history.Check, Key: s.Key, Grant: grant})
}

// must carries out an operation that has to succeed for the story to go on.
func (s *Stage) must(ctx context.Context, i int, c runner.Call) error {
	d, err := s.Runner.Worker(i).Do(ctx, c)
	if err == nil && d.Type != history.OK {
		err = fmt.Errorf("it ended as %v: %s", d.Type, d.Error)
	}
	if err != nil {
		return fmt.Errorf("%s by worker %d: %w", c.F, i, err)
	}
	return nil
}

// read gives the value that worker i sees.
func (s *Stage) read(ctx context.Context, i int, grant uint64) (int64, error) {
	d, err := s.Runner.Worker(i).Do(ctx, runner.Call{F: history.Read, Key: s.Key, Grant: grant})
	if err == nil && d.Type != history.OK {
		err = fmt.Errorf("it ended as %v: %s", d.Type, d.Error)
	}
	if err != nil {
		return 0, fmt.Errorf("read by worker %d: %w", i, err)
	}
	return d.Value, nil
}

var gcPause = Scenario{
	Name:    "gc-pause",
	About:   "A is stopped between its check and its write for longer than the TTL; B takes the lock and writes twice; A wakes and its write goes out",
	Workers: 2,
	Require: []string{checker.Lease, checker.Fencing, checker.Release, checker.Data, checker.Linearizable},
	Run:     playGCPause,
}

const a, b = 0, 1 // the workers' parts

func playGCPause(ctx context.Context, s *Stage) error {
	ga, err := s.acquire(ctx, a)
	if err != nil {
		return err
	}
	value, err := s.read(ctx, a, ga)
	if err != nil {
		return err
	}
	if err := s.check(ctx, a, ga); err != nil {
		return err
	}
	pause, err := s.pause(ctx, a)
	if err != nil {
		return err
	}
	defer pause.Heal(ctx)
	stopped := time.Now()
	// The command waits in the pipe of the stopped process, as a write that a
	// program had decided on waits for the end of the collection.
	late, err := s.Runner.Worker(a).Begin(runner.Call{F: history.Write, Key: s.Key, Grant: ga, Value: value + 1, Timeout: 2 * patience})
	if err != nil {
		return err
	}
	gb, err := s.work(ctx, b)
	if err != nil {
		return err
	}
	select { // so that the pause outlives the TTL even where B came in earlier
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(stopped.Add(s.TTL + s.TTL/4))):
	}
	pause.Heal(ctx)
	if _, err := late.Wait(ctx); err != nil {
		return err
	}
	return s.farewell(ctx, map[int]uint64{a: ga, b: gb})
}

// pause stops worker i. It fails if the stop could not be proved.
func (s *Stage) pause(ctx context.Context, i int) (*runner.Injection, error) {
	for _, t := range s.Runner.Workers() {
		if t.Worker == i {
			in := s.Runner.InjectOn(ctx, nemesis.Pause{}, t)
			return in, in.Err
		}
	}
	return nil, fmt.Errorf("worker %d is not there to be paused", i)
}

// work lets worker i take the lock and count up twice.
func (s *Stage) work(ctx context.Context, i int) (uint64, error) {
	g, err := s.acquire(ctx, i)
	if err != nil {
		return 0, err
	}
	if err := s.check(ctx, i, g); err != nil {
		return 0, err
	}
	value, err := s.read(ctx, i, g)
	if err != nil {
		return 0, err
	}
	for n := range int64(2) {
		d, err := s.Runner.Worker(i).Do(ctx, runner.Call{F: history.Write, Key: s.Key, Grant: g, Value: value + 1 + n})
		if err != nil {
			return 0, fmt.Errorf("write by worker %d: %w", i, err)
		}
		// A strict store refuses the second write under one token: that is a
		// finding, and the story goes on.
		if d.Type == history.Info {
			return 0, fmt.Errorf("write by worker %d: nobody knows whether it happened: %s", i, d.Error)
		}
	}
	return g, nil
}

// farewell lets each worker release what it still believes to hold, and close.
func (s *Stage) farewell(ctx context.Context, grants map[int]uint64) error {
	for i := range len(grants) {
		w := s.Runner.Worker(i)
		if err := w.Session(ctx); err != nil {
			return err
		}
		calls := []runner.Call{{F: history.Release, Key: s.Key, Grant: grants[i]}, {F: history.Close}}
		if w.Lost(grants[i]) {
			calls = calls[1:]
		}
		for _, c := range calls {
			if _, err := w.Do(ctx, c); err != nil {
				return fmt.Errorf("%s by worker %d: %w", c.F, i, err)
			}
		}
	}
	return nil
}
