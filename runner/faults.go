package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/nemesis"
)

const (
	// injectWithin bounds an injection, and the wait for its targets and for its
	// evidence. ZooKeeper repeats what got lost of an election after times that
	// double, so one that begins badly takes half a minute.
	injectWithin = time.Minute
	// healWithin bounds a heal, which runs although the run may be over.
	healWithin = nemesis.RestartWithin
)

// Nemesis carries out a plan, counted from now, until a time after which no
// fault is to be put in force. It comes back when every fault is healed, at once
// if ctx ends. No more faults are in force at a time than were planned, and none
// together with another that acts on the same kind of thing: a slow machine must
// not make two faults of one. Those follow each other in the order of the plan.
func (r *Runner) Nemesis(ctx context.Context, steps []nemesis.Step, until time.Duration) {
	begun := time.Now()
	early, cancel := context.WithDeadlineCause(ctx, begun.Add(until), errTooLate)
	defer cancel()
	places := make(chan struct{}, atOnce(steps))
	over := map[nemesis.Acts]chan struct{}{} // closed when the latest step on that kind of thing is over
	steps = slices.Clone(steps)
	slices.SortStableFunc(steps, func(a, b nemesis.Step) int { return cmp.Compare(a.At, b.At) })
	var wg sync.WaitGroup
	for _, s := range steps {
		e, err := nemesis.Find(s.Fault)
		if err != nil {
			r.cfg.Log.Error("plan", "error", err)
			continue
		}
		// Waiting for the one before, and not for whoever comes first, keeps the
		// order: which of two goroutines runs first says nothing of the plan.
		before, done := over[e.Acts], make(chan struct{})
		over[e.Acts] = done
		wg.Go(guard.Wrap(func() {
			defer close(done)
			if !sleep(ctx, time.Until(begun.Add(s.At))) {
				return
			}
			if before != nil {
				<-before // it heals at the latest when ctx ends
			}
			places <- struct{}{}
			defer func() { <-places }()
			r.step(ctx, early, s)
		}))
	}
	wg.Wait()
}

// step puts one fault in force, while early stands, and heals it in time.
func (r *Runner) step(ctx, early context.Context, s nemesis.Step) {
	switch {
	case ctx.Err() != nil:
	case early.Err() != nil:
		r.skip(s, errTooLate)
	default:
		in := r.Inject(early, s)
		if in.Err == nil {
			sleep(ctx, s.Duration)
		}
		in.Heal(ctx)
	}
}

// atOnce is how many steps of a plan are in force together at the most.
func atOnce(steps []nemesis.Step) int {
	most := 1
	for i, s := range steps {
		n := 0
		for _, o := range steps[:i+1] {
			if o.At+o.Duration >= s.At {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

var errTooLate = errors.New("it was not in force before the quiet time at the end")

// An Injection is a fault on its way through its phases.
type Injection struct {
	r       *Runner
	name    string
	number  int
	targets []nemesis.Target
	heal    nemesis.Heal // nil when nothing is in force
	once    sync.Once

	Evidence nemesis.Evidence
	Err      error // why it was skipped
}

// Inject chooses the targets, puts the fault in force and records what came of
// it: asked before anything happens, then done with the evidence, or skipped.
func (r *Runner) Inject(ctx context.Context, s nemesis.Step) *Injection {
	ictx, cancel := context.WithTimeout(ctx, injectWithin)
	defer cancel()
	sys := r.cfg.System
	sys.Workers = r
	ts, err := nemesis.Choose(ictx, sys, s)
	var f nemesis.Fault
	if err == nil {
		f, err = nemesis.Make(ictx, sys, s)
	}
	return r.inject(ictx, s.Fault, f, ts, err)
}

// InjectOn puts a fault in force on given targets.
func (r *Runner) InjectOn(ctx context.Context, f nemesis.Fault, ts ...nemesis.Target) *Injection {
	ictx, cancel := context.WithTimeout(ctx, injectWithin)
	defer cancel()
	return r.inject(ictx, f.Name(), f, ts, nil)
}

// skip records a fault that is not even tried.
func (r *Runner) skip(s nemesis.Step, why error) *Injection {
	return r.inject(context.Background(), s.Fault, nil, nil, why)
}

func (r *Runner) inject(ctx context.Context, name string, f nemesis.Fault, ts []nemesis.Target, err error) *Injection {
	in := &Injection{r: r, name: name, number: int(r.faults.Add(1)), targets: ts}
	in.record(history.Asked, nil, nil)
	if err == nil {
		in.expectDeath(true)
		if in.Evidence, in.heal, err = f.Inject(ctx, ts); err != nil {
			in.expectDeath(false)
		}
	}
	if err != nil {
		in.Err = err
		in.heal = nil
		in.record(history.Skipped, nil, err)
		r.cfg.Log.Warn("fault skipped", "fault", in.name, "number", in.number, "why", err)
		return in
	}
	r.mu.Lock()
	r.active[in.number] = in.name
	r.mu.Unlock()
	in.record(history.Done, in.Evidence, nil)
	return in
}

// killName is the one fault that ends the sections of its targets.
var killName = nemesis.Kill{}.Name()

// expectDeath tells the workers that are to be killed, so that their end is not
// filed as a crash of their own: until they were killed, they lived.
func (in *Injection) expectDeath(yes bool) {
	if in.name != killName {
		return
	}
	for _, t := range in.targets {
		w := in.r.workers[t.Worker]
		w.mu.Lock()
		w.doomed = yes
		w.mu.Unlock()
	}
}

// Heal undoes the fault; it does nothing the second time, or if nothing was in
// force. It runs although ctx may have ended.
func (in *Injection) Heal(ctx context.Context) {
	if in.heal == nil {
		return
	}
	in.once.Do(func() {
		in.record(history.HealAsked, nil, nil)
		hctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healWithin)
		defer cancel()
		ev, err := in.heal(hctx)
		in.r.mu.Lock()
		delete(in.r.active, in.number)
		if err != nil {
			in.r.left = append(in.r.left, fmt.Errorf("heal of %s (fault %d): %w", in.name, in.number, err))
		}
		in.r.mu.Unlock()
		if err == nil {
			in.record(history.Healed, ev, nil)
		}
	})
}

func (in *Injection) record(phase string, ev nemesis.Evidence, why error) {
	v := history.Fault{Fault: in.number, Phase: phase, Evidence: ev}
	for _, t := range in.targets {
		if t.Node != "" {
			v.Targets = append(v.Targets, fmt.Appendf(nil, "%q", t.Node))
			continue
		}
		v.Targets = append(v.Targets, fmt.Appendf(nil, "%d", t.Process))
		switch {
		case phase != history.Done:
		case in.name == killName: // it holds nothing any more
			v.Grants = append(v.Grants, t.Grants...)
		default:
			v.Grants = append(v.Grants, in.r.workers[t.Worker].Holds()...)
		}
	}
	if why != nil {
		v.Reason = why.Error()
		if errors.Is(why, context.Canceled) {
			v.Reason = "the run ended"
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		b = fmt.Appendf(nil, `{"fault":%d,"phase":%q}`, in.number, phase)
	}
	in.r.cfg.Recorder.Append(history.Op{Process: history.Nemesis, Type: history.Info, F: in.name, Value: b})
}
