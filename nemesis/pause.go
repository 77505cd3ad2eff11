package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// provedWithin bounds the wait for a signal to show in /proc.
const provedWithin = 2 * time.Second

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
func (Pause) Name() string { return "pause" }

// Inject stops the targets. The evidence is the state that the kernel shows for
// every process of each worker: T.
func (p Pause) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	stop := p.Stop
	if stop == nil {
		stop = func(p *os.Process) error { return signal(p, syscall.SIGSTOP) }
	}
	begun := time.Now()
	heal := func(hctx context.Context) (Evidence, error) { return resume(hctx, ts, begun) }
	for _, t := range ts {
		err := stop(t.OS)
		if err == nil {
			err = poll(ctx, provedWithin, func() (bool, error) { return stopped(t.OS.Pid) })
		}
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), provedWithin)
			defer cancel()
			_, herr := heal(undo)
			return nil, nil, errors.Join(fmt.Errorf("pause worker %d: %w", t.Worker, err), herr)
		}
	}
	return Evidence{"state": "T", "pids": pids(ts)}, heal, nil
}

func resume(ctx context.Context, ts []Target, begun time.Time) (Evidence, error) {
	var errs []error
	lasted := time.Since(begun)
	for _, t := range ts {
		err := signal(t.OS, syscall.SIGCONT)
		if errors.Is(err, os.ErrProcessDone) {
			continue // it died while it was stopped: there is nothing to continue
		}
		if err == nil {
			err = poll(ctx, provedWithin, func() (bool, error) {
				is, err := stopped(t.OS.Pid)
				if errors.Is(err, os.ErrNotExist) {
					return true, nil
				}
				return !is, err
			})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("continue worker %d: %w", t.Worker, err))
		}
	}
	return Evidence{"stopped_ms": lasted.Milliseconds()}, errors.Join(errs...)
}

func pids(ts []Target) []int {
	var ps []int
	for _, t := range ts {
		ps = append(ps, t.OS.Pid)
	}
	return ps
}
