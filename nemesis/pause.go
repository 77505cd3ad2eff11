package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

var pauseEntry = Entry{
	Name:  "pause",
	About: "stop workers (SIGSTOP) and continue them later, as a stop-the-world collection does",
	Acts:  OnWorkers,
	Aims:  workerAims,
	New:   func(context.Context, System, Step) (Fault, error) { return Pause{}, nil },
}

// Pause stops workers with SIGSTOP, as a stop-the-world collection does: keep-
// alives, heartbeats and timers stop with the rest. The heal is SIGCONT.
type Pause struct {
	// Stop replaces the signal that stops, for the test that a pause which does
	// not happen is not believed.
	Stop func(*os.Process) error
}

// signal sends sig to a worker with all its children.
func signal(p *os.Process, sig syscall.Signal) error {
	if err := p.Signal(syscall.Signal(0)); err != nil {
		return err // it was waited for: the group's number may be another's by now
	}
	return syscall.Kill(-p.Pid, sig)
}

// Name is "pause".
func (Pause) Name() string { return pauseEntry.Name }

// Inject stops the targets. The evidence is the state that the kernel shows for
// every process of each worker: T.
func (p Pause) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	return freeze(ctx, ts, p.Stop, signal, stopped)
}

// freeze stops targets and proves it. Workers are signalled and looked at as a
// group, servers as one process.
func freeze(ctx context.Context, ts []Target, stop func(*os.Process) error, send func(*os.Process, syscall.Signal) error, is func(int) (bool, error)) (Evidence, Heal, error) {
	if stop == nil {
		stop = func(p *os.Process) error { return send(p, syscall.SIGSTOP) }
	}
	begun := time.Now()
	heal := func(hctx context.Context) (Evidence, error) {
		lasted := time.Since(begun)
		var errs []error
		for _, t := range ts {
			if err := thaw(hctx, t, send, is); err != nil {
				errs = append(errs, fmt.Errorf("continue %v: %w", t, err))
			}
		}
		return Evidence{"stopped_ms": lasted.Milliseconds()}, errors.Join(errs...)
	}
	for _, t := range ts {
		err := stop(t.OS)
		if err == nil {
			err = poll(ctx, provedWithin, func() (bool, error) { return is(t.OS.Pid) })
		}
		if err != nil {
			return nil, nil, undone(ctx, heal, provedWithin, fmt.Errorf("pause %v: %w", t, err))
		}
	}
	return Evidence{"state": "T", "pids": pids(ts)}, heal, nil
}

// thaw continues one target. One that died while it was stopped is left alone.
func thaw(ctx context.Context, t Target, send func(*os.Process, syscall.Signal) error, is func(int) (bool, error)) error {
	err := send(t.OS, syscall.SIGCONT)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	return poll(ctx, provedWithin, func() (bool, error) {
		stopped, err := is(t.OS.Pid)
		if errors.Is(err, os.ErrNotExist) {
			return true, nil
		}
		return !stopped, err
	})
}

func pids(ts []Target) []int {
	var ps []int
	for _, t := range ts {
		ps = append(ps, t.OS.Pid)
	}
	return ps
}
