package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Whom a fault is aimed at. A node or a worker can be named instead: n1, w2.
const (
	Holder   = "holder"   // a worker that holds a lock
	Leader   = "leader"   // the node that leads, as the servers themselves say
	Random   = "random"   // any one
	Majority = "majority" // of the servers, or of the workers
	Minority = "minority" // as many as can be lost without losing the majority
	All      = "all"      // every one
)

// Aims lists the targets that are no names.
var Aims = []string{Holder, Leader, Random, Majority, Minority, All}

// Store is the fenced store's name among the links of a worker.
const Store = "store"

// ErrNoTarget says that there was nobody to aim at.
var ErrNoTarget = errors.New("no such target at that time")

// targetPoll is how often a target that is not there is looked for.
const targetPoll = 500 * time.Microsecond

// leaderPoll is how often the servers are asked who leads.
const leaderPoll = 20 * time.Millisecond

// workerName reads "w2" as the worker in place 2.
func workerName(s string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(s, "w"))
	return n, err == nil && n >= 0 && s == "w"+strconv.Itoa(n)
}

// Choose gives the targets of a step. A holder or a leader is waited for until
// ctx ends, since between two of them there may be none.
func Choose(ctx context.Context, sys System, s Step) ([]Target, error) {
	e, err := Find(s.Fault)
	if err != nil {
		return nil, err
	}
	every := targetPoll
	if s.Target == Leader {
		every = leaderPoll
	}
	for {
		var ts []Target
		var why error
		if e.onNodes(s.Form) {
			ts, why = chooseNodes(ctx, sys, e, s)
		} else {
			ts = chooseWorkers(sys, s)
		}
		if len(ts) > 0 {
			return ts, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s %s: %w", s.Fault, s.Target, ErrNoTarget), why)
		case <-time.After(every):
		}
	}
}

func chooseWorkers(sys System, s Step) []Target {
	ws := sys.Workers.Workers()
	if i, named := workerName(s.Target); named {
		return only(ws, func(w Target) bool { return w.Worker == i })
	}
	if s.Target == Holder {
		ws = only(ws, func(w Target) bool { return len(w.Grants) > 0 })
	}
	return pick(ws, max(len(ws), sys.Setting.Workers), s)
}

// chooseNodes gives nodes that run. Only a partition can be aimed at one that
// does not: what it is made of is the network.
func chooseNodes(ctx context.Context, sys System, e Entry, s Step) ([]Target, error) {
	candidates := sys.Data
	if e.Acts == BetweenNodes && s.Target == All {
		candidates = sys.Nodes
	}
	switch {
	case s.Target == Leader:
		l, err := sys.Servers.Leader(ctx)
		if err != nil {
			return nil, err
		}
		candidates = []string{l}
	case slices.Contains(sys.Nodes, s.Target):
		candidates = []string{s.Target}
	}
	var ts []Target
	for _, n := range candidates {
		t := Target{Node: n}
		if pid, err := sys.Servers.Pid(n); err == nil {
			t.OS, err = os.FindProcess(pid) // by a handle, so that a new process of that number is not meant
			if err != nil {
				return nil, fmt.Errorf("process %d of %s: %w", pid, n, err)
			}
		}
		if t.OS != nil || e.Acts == BetweenNodes {
			ts = append(ts, t)
		}
	}
	return pick(ts, len(candidates), s), nil
}

// pick takes as many as the step is aimed at, beginning with the one that the
// plan drew. A majority is one of all there should be.
func pick(ts []Target, of int, s Step) []Target {
	n := 1
	switch s.Target {
	case All:
		n = len(ts)
	case Majority:
		n = of/2 + 1
	case Minority:
		n = (of - 1) / 2
	}
	if len(ts) == 0 || n > len(ts) {
		return nil
	}
	first := int(s.Pick % uint64(len(ts)))
	ts = slices.Concat(ts[first:], ts[:first])[:n]
	slices.SortFunc(ts, func(a, b Target) int { return a.Worker - b.Worker + strings.Compare(a.Node, b.Node) })
	return ts
}

func only(ts []Target, f func(Target) bool) []Target {
	return slices.DeleteFunc(slices.Clone(ts), func(t Target) bool { return !f(t) })
}
