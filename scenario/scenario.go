// Package scenario tells exactly timed stories: which worker does what, when it
// is stopped, and who comes in between. What really happened is in the history,
// and the history is judged; a scenario only sees to it that the story is told.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/runner"
)

// A Scenario is one story.
type Scenario struct {
	Name     string
	About    string
	Workers  int
	Backends []string // that it can be told on; nil for all
	Faults   []string // that it needs, as the command line spells them

	FaultsOn map[string][]string // that it needs besides, by backend
	Require  []string            // the properties that its verdict is made of

	TTL         time.Duration // at least; 0 for any
	NodeTimeout bool          // a single node may take the whole TTL to answer

	Options map[string]string // for the clients, see clients.Config

	Run func(ctx context.Context, s *Stage) error
	// Theory says what should come of it; nil for no opinion.
	Theory func(Case) Expectation
}

// All lists the scenarios.
var All = slices.Concat([]Scenario{gcPause, failover, restartEmpty, lateWrite, minorityLeader, slowRedlock, suspended, clockJump, clockBack}, planted, goStories, told)

// most of the stories are about all of these.
var required = []string{checker.Lease, checker.Fencing, checker.Release, checker.Data, checker.Linearizable}

const a, b = 0, 1 // the workers' parts

// FindReport gives the report of that number (D7, in any case) or name.
func FindReport(name string) (Report, bool) {
	for _, r := range Reports {
		if strings.EqualFold(r.Number, name) || r.Name == name {
			return r, true
		}
	}
	return Report{}, false
}

// Find gives the scenario of that name.
func Find(name string) (Scenario, error) {
	var names []string
	for _, s := range All {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	for _, r := range Reports {
		names = append(names, r.Number, r.Name)
	}
	return Scenario{}, fmt.Errorf("scenario %q is not known; there are %s", name, strings.Join(names, ", "))
}

// Key is what the scenarios lock.
const Key = "orders/99999"

// Needs lists the faults that a scenario needs on a backend.
func (s Scenario) Needs(backend string) []string {
	return slices.Concat(s.Faults, s.FaultsOn[backend])
}

// Refuse says why a scenario cannot be told in a setting.
func (s Scenario) Refuse(set nemesis.Setting) error {
	if s.Backends != nil && !slices.Contains(s.Backends, set.Backend) {
		return fmt.Errorf("scenario %s cannot be told on %s; it can on %s", s.Name, set.Backend, strings.Join(s.Backends, ", "))
	}
	for _, f := range s.Needs(set.Backend) {
		if err := nemesis.Refuse(set, f, ""); err != nil {
			return fmt.Errorf("scenario %s: %w", s.Name, err)
		}
	}
	return nil
}

// A Stage is what a scenario plays on.
type Stage struct {
	Runner  *runner.Runner
	Setting nemesis.Setting
	Leader  func(context.Context) (string, error) // as the servers themselves say
	Key     string
	TTL     time.Duration         // of the lease or session
	Retry   time.Duration         // between two tries
	Look    func(context.Context) // lets the servers be asked what stands for a lock that nobody is granted; may be nil
	Rand    *rand.Rand            // for what a story leaves open: whom, how long, how many

	faults []*runner.Injection
	looked bool
}

// Tell plays a scenario. Whatever comes of it, its faults are healed, the last
// one first, and the servers have been asked what stands for the lock.
func (s *Stage) Tell(ctx context.Context, sc Scenario) error {
	defer s.look(ctx) // also of a story that broke off
	defer s.heal(ctx)
	return sc.Run(ctx, s)
}

// look lets the servers be asked, once: as late as possible, and before a session is
// ended, which may take with it what stands for the lock.
func (s *Stage) look(ctx context.Context) {
	if s.Look != nil && !s.looked {
		s.looked = true
		s.Look(ctx)
	}
}

// heal undoes every fault so far.
func (s *Stage) heal(ctx context.Context) {
	for _, in := range slices.Backward(s.faults) {
		in.Heal(ctx)
	}
}

// fault puts a fault in force. It fails if that could not be proved.
func (s *Stage) fault(ctx context.Context, step nemesis.Step) (*runner.Injection, error) {
	in := s.Runner.Inject(ctx, step)
	s.faults = append(s.faults, in)
	if in.Err != nil {
		return in, fmt.Errorf("%s: %w", step.Fault, in.Err)
	}
	return in, nil
}

// electPatience is longer: sentinels that find that they were not run for two
// seconds do nothing for thirty, and a busy machine does that to them.
const electPatience = 3 * patience

// leader waits until somebody leads who is not old.
func (s *Stage) leader(ctx context.Context, old string) (string, error) {
	now, err := s.Leader(ctx)
	for end := time.Now().Add(electPatience); err != nil || now == old; now, err = s.Leader(ctx) {
		if time.Now().After(end) {
			return "", errors.Join(fmt.Errorf("%q leads, and nobody else after %v", now, electPatience), err)
		}
		if err := s.sleep(ctx, s.Retry); err != nil {
			return "", err
		}
	}
	return now, nil
}

// others are the servers that are not the one named.
func (s *Stage) others(than string) []string {
	return slices.DeleteFunc(slices.Clone(s.Setting.Data), func(n string) bool { return n == than })
}

// until waits for what must come.
func (s *Stage) until(ctx context.Context, what string, is func() bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if is() {
			return nil
		}
		if err := s.sleep(ctx, s.Retry); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: not within %v", what, patience)
}

func (s *Stage) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
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
		if err := s.sleep(ctx, s.Retry); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("worker %d was not granted the lock within %v; the last try was %v: %s", i, patience, last.Type, last.Error)
}

// try asks for the lock until worker i gets it or is told what proves that it
// did not. What the servers cannot answer yet is asked again.
func (s *Stage) try(ctx context.Context, i int) (runner.Done, error) {
	w := s.Runner.Worker(i)
	var last runner.Done
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err := w.Session(ctx); err != nil {
			return last, err
		}
		d, err := w.Do(ctx, runner.Call{F: history.Acquire, Key: s.Key})
		if err != nil {
			return d, fmt.Errorf("acquire by worker %d: %w", i, err)
		}
		if d.Type == history.OK || d.Error == history.ErrHeld || d.Error == history.ErrNoQuorum || d.Error == history.ErrAhead {
			return d, nil
		}
		last = d
		if err := s.sleep(ctx, s.Retry); err != nil {
			return d, err
		}
	}
	return last, fmt.Errorf("worker %d got no clear answer within %v; the last was %v: %s", i, patience, last.Type, last.Error)
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
		// A strict store refuses the second write under one token: that is a
		// finding, and the story goes on.
		if err := s.write(ctx, i, g, value+1+n); err != nil {
			return 0, err
		}
	}
	return g, nil
}

// write lets worker i write a value. What the store says to it is a finding.
func (s *Stage) write(ctx context.Context, i int, grant uint64, value int64) error {
	d, err := s.Runner.Worker(i).Do(ctx, runner.Call{F: history.Write, Key: s.Key, Grant: grant, Value: value})
	if err == nil && d.Type == history.Info {
		err = fmt.Errorf("nobody knows whether it happened: %s", d.Error)
	}
	if err != nil {
		return fmt.Errorf("write by worker %d: %w", i, err)
	}
	return nil
}

// begin lets worker i take the lock, look that it has it, read and write once.
func (s *Stage) begin(ctx context.Context, i int) (grant uint64, value int64, err error) {
	if grant, err = s.acquire(ctx, i); err != nil {
		return 0, 0, err
	}
	value, err = s.goOn(ctx, i, grant)
	return grant, value, err
}

// goOn is the work of a worker that has just got the lock. A store that refuses
// it is a finding, and the end of the work.
func (s *Stage) goOn(ctx context.Context, i int, grant uint64) (value int64, err error) {
	if err := s.check(ctx, i, grant); err != nil {
		return 0, err
	}
	d, err := s.Runner.Worker(i).Do(ctx, runner.Call{F: history.Read, Key: s.Key, Grant: grant})
	switch {
	case err != nil:
		return 0, fmt.Errorf("read by worker %d: %w", i, err)
	case d.Error == history.ErrFenced:
		return 0, nil
	case d.Type != history.OK:
		return 0, fmt.Errorf("read by worker %d: it ended as %v: %s", i, d.Type, d.Error)
	}
	return d.Value + 1, s.write(ctx, i, grant, d.Value+1)
}

// ask asks the lock whether worker i still holds it, if it can be asked, and
// takes any answer.
func (s *Stage) ask(ctx context.Context, i int, grant uint64) error {
	w := s.Runner.Worker(i)
	if !w.Can(wire.CanCheck) || w.Lost(grant) {
		return nil
	}
	if _, err := w.Do(ctx, runner.Call{F: history.Check, Key: s.Key, Grant: grant}); err != nil {
		return fmt.Errorf("check by worker %d: %w", i, err)
	}
	return nil
}

// release gives the lock back, and takes any answer.
func (s *Stage) release(ctx context.Context, i int, grant uint64) error {
	w := s.Runner.Worker(i)
	if !w.Has(grant) || w.Lost(grant) {
		return nil
	}
	if _, err := w.Do(ctx, runner.Call{F: history.Release, Key: s.Key, Grant: grant}); err != nil {
		return fmt.Errorf("release by worker %d: %w", i, err)
	}
	return nil
}

// close lets workers end their sessions.
func (s *Stage) close(ctx context.Context, workers ...int) error {
	s.look(ctx)
	for _, i := range workers {
		w := s.Runner.Worker(i)
		if err := w.Session(ctx); err != nil {
			return err
		}
		if _, err := w.Do(ctx, runner.Call{F: history.Close}); err != nil {
			return fmt.Errorf("close by worker %d: %w", i, err)
		}
	}
	return nil
}

// farewell lets each worker release what it still believes to hold, and close.
func (s *Stage) farewell(ctx context.Context, grants map[int]uint64) error {
	s.look(ctx)
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
			_, err := w.Do(ctx, c)
			if errors.Is(err, runner.ErrRetired) { // nobody knows what became of the release: its session is over
				break
			}
			if err != nil {
				return fmt.Errorf("%s by worker %d: %w", c.F, i, err)
			}
		}
	}
	return nil
}
