// Package nemesis breaks things while workers hold locks. A fault is something
// that was done and can be proved, not something that was asked for: it has
// evidence, read back by another route than the injection, and a heal that can
// be called any number of times.
//
// It knows processes, not locks; what a target holds it is told by the System.
package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// A Target is a worker that a fault acts on, as it is at this moment.
type Target struct {
	Worker  int         // its place, from 0
	Process int64       // its number in the history
	Grants  []uint64    // that it holds
	OS      *os.Process // leader of a process group of its own: a worker may have children
}

// A System is what the faults act on.
type System interface {
	// Workers gives the workers that are alive, in order.
	Workers() []Target
}

// Evidence is what was read back, for the history.
type Evidence map[string]any

// Heal undoes a fault. It is idempotent, it may be called although the run was
// cancelled, and it says what it found.
type Heal func(context.Context) (Evidence, error)

// A Fault is one kind of fault.
type Fault interface {
	// Name is how the command line and the history call it.
	Name() string
	// Inject puts the fault in force on the targets and proves it. An error
	// means that nothing is in force: what was done halfway has been undone.
	Inject(ctx context.Context, targets []Target) (Evidence, Heal, error)
}

// Faults lists every kind of fault.
func Faults() []Fault { return []Fault{Pause{}, Kill{}} }

// Find gives the fault of that name.
func Find(name string) (Fault, error) {
	var known []string
	for _, f := range Faults() {
		if f.Name() == name {
			return f, nil
		}
		known = append(known, f.Name())
	}
	return nil, fmt.Errorf("fault %q is not known; there are %v", name, known)
}

// Whom a fault is aimed at.
const (
	Holder = "holder" // a worker that holds a lock
	Random = "random" // any worker
	All    = "all"    // every worker
)

// Aims lists them.
var Aims = []string{Holder, Random, All}

// ErrNoTarget says that there was nobody to aim at.
var ErrNoTarget = errors.New("no such target at that time")

// holderPoll is how often a holder is looked for.
const holderPoll = 500 * time.Microsecond

// Choose gives the targets of a step. A holder is waited for until ctx ends,
// since between two sections there may be none.
func Choose(ctx context.Context, sys System, s Step) ([]Target, error) {
	for {
		ws := sys.Workers()
		if s.Target == Holder {
			ws = holders(ws)
		}
		switch {
		case len(ws) > 0 && s.Target == All:
			return ws, nil
		case len(ws) > 0:
			i := int(s.Pick % uint64(len(ws)))
			return ws[i : i+1], nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s %s: %w", s.Fault, s.Target, ErrNoTarget)
		case <-time.After(holderPoll):
		}
	}
}

func holders(ws []Target) []Target {
	var hs []Target
	for _, w := range ws {
		if len(w.Grants) > 0 {
			hs = append(hs, w)
		}
	}
	return hs
}

// poll calls f every millisecond until it is true or the time is over.
func poll(ctx context.Context, within time.Duration, f func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		ok, err := f()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}
