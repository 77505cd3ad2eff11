package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

var killEntry = Entry{
	Name:  "kill",
	About: "kill workers (SIGKILL); new ones take their places",
	Acts:  OnWorkers,
	Aims:  workerAims,
	Once:  func(string) bool { return true },
	New:   func(context.Context, System, Step) (Fault, error) { return Kill{}, nil },
}

// Kill ends workers with SIGKILL. A new one takes the place of each, so there
// is nothing to heal.
type Kill struct {
	// Signal replaces the signal that kills, for the test that a kill which does
	// not happen is not believed.
	Signal func(*os.Process) error
}

// Name is "kill".
func (Kill) Name() string { return killEntry.Name }

// Inject kills the targets. The evidence is that the kernel no longer takes a
// signal for them: they have been waited for by the one who started them.
func (k Kill) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	kill := k.Signal
	if kill == nil {
		kill = func(p *os.Process) error { return signal(p, syscall.SIGKILL) }
	}
	var dead []Target
	var errs []error
	for _, t := range ts {
		err := kill(t.OS)
		if err == nil {
			err = gone(ctx, t.OS)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("kill %v: %w", t, err))
			continue
		}
		dead = append(dead, t)
	}
	if len(dead) == 0 { // one that is dead cannot be undone, so only then nothing is in force
		return nil, nil, errors.Join(errs...)
	}
	return Evidence{"gone": true, "pids": pids(dead)}, nothing, nil
}

// gone waits until the kernel no longer takes a signal for a process.
func gone(ctx context.Context, p *os.Process) error {
	return poll(ctx, provedWithin, func() (bool, error) {
		return errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone), nil
	})
}
