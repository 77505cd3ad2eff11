package matrix

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/internal/guard"
)

// A Player carries out one run. Its error is for a run that lockcheck could not
// carry out.
type Player func(ctx context.Context, o experiment.Options) (experiment.Result, error)

// Config says how a matrix is carried out.
type Config struct {
	Dir      string // that matrix.json and the run directories go into
	Parallel int    // runs at a time
	Play     Player
	Began    func(Progress)       // may be nil
	Ended    func(Place, Run)     // may be nil
	Find     func(b string) error // why a backend is missing here; nil for the local servers
	Trouble  func(what error)     // what went wrong beside the runs; may be nil
}

// Progress is the state of a matrix that goes on.
type Progress struct {
	Done, All int
	Running   []string      // cells and seeds
	Left      time.Duration // an estimate; 0 while nothing is known
}

// play is a matrix under way.
type play struct {
	cfg    Config
	res    *Result
	mu     sync.Mutex
	all    int
	done   int
	active map[Place]time.Time
	took   time.Duration
}

// Play carries out what has not been carried out, and keeps what there is after
// each run. It returns when everything is done, or soon after ctx is; runs that
// were cut short are not kept.
func Play(ctx context.Context, res *Result, cfg Config) error {
	if cfg.Find == nil {
		cfg.Find = func(b string) error { _, err := local.Find(b); return err }
	}
	todo := res.Todo()
	p := &play{cfg: cfg, res: res, all: len(todo), active: map[Place]time.Time{}}
	if err := res.Write(cfg.Dir); err != nil {
		return err
	}
	places := make(chan Place)
	var wg sync.WaitGroup
	for range max(1, min(cfg.Parallel, len(todo))) {
		wg.Go(guard.Wrap(func() {
			for at := range places {
				p.one(ctx, at)
			}
		}))
	}
	for _, at := range todo {
		select {
		case places <- at:
		case <-ctx.Done():
		}
	}
	close(places)
	wg.Wait()
	return res.Write(cfg.Dir)
}

func (p *play) one(ctx context.Context, at Place) {
	if ctx.Err() != nil {
		return
	}
	p.begin(at)
	begun := time.Now()
	run, ok := p.carryOut(ctx, at)
	run.Took = time.Since(begun).Round(time.Millisecond)
	p.end(at, run, ok)
}

// carryOut does a run. ok is false for one that was cut short.
func (p *play) carryOut(ctx context.Context, at Place) (run Run, ok bool) {
	run = Run{Verdict: checker.Unknown}
	if err := p.cfg.Find(at.Cell.Backend); err != nil {
		run.Skipped = err.Error()
		return run, true
	}
	o := p.res.Spec.RunOptions(at.Cell, at.Seed)
	if err := p.res.Spec.possible(o); err != nil {
		run.Skipped = err.Error()
		return run, true
	}
	o.Out = p.cfg.Dir
	res, err := p.cfg.Play(ctx, o)
	if ctx.Err() != nil {
		return run, false
	}
	if res.Properties == nil {
		run.Failed = "no result"
		if err != nil {
			run.Failed = err.Error()
		}
		return run, true
	}
	run.take(&res)
	if err != nil {
		run.Failed = err.Error()
	}
	if run.Dir, err = filepath.Rel(p.cfg.Dir, res.Dir); err != nil {
		run.Dir = res.Dir
	}
	if run.Causes, err = causes(&res); err != nil {
		p.trouble(err)
	}
	if err := run.measure(res.Dir); err != nil {
		p.trouble(err)
	}
	return run, true
}

func (p *play) begin(at Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active[at] = time.Now()
	p.tell()
}

func (p *play) end(at Place, run Run, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.active, at)
	p.done++
	p.took += run.Took
	if ok {
		p.res.Add(at, run)
		if err := p.res.Write(p.cfg.Dir); err != nil {
			p.trouble(err)
		}
		if p.cfg.Ended != nil {
			p.cfg.Ended(at, *p.res.find(at))
		}
	}
	p.tell()
}

func (p *play) trouble(err error) {
	if p.cfg.Trouble != nil {
		p.cfg.Trouble(err)
	}
}

// tell gives the state. What runs has on average been running for half of its
// time; that is how far it counts.
func (p *play) tell() {
	if p.cfg.Began == nil {
		return
	}
	s := Progress{Done: p.done, All: p.all}
	var order []Place
	for at := range p.active {
		order = append(order, at)
	}
	slices.SortFunc(order, func(a, b Place) int { return a.No - b.No })
	for _, at := range order {
		s.Running = append(s.Running, at.Cell.String())
	}
	if p.done > 0 {
		each := p.took / time.Duration(p.done)
		left := float64(p.all-p.done) - float64(len(order))/2
		s.Left = time.Duration(left / float64(max(1, min(p.cfg.Parallel, p.all))) * float64(each))
	}
	p.cfg.Began(s)
}

// take notes what a run came to.
func (run *Run) take(res *experiment.Result) {
	run.Verdict, run.Grants, run.Reasons, run.Theory = res.Verdict, res.Exposure.AcquiresOK, res.Reasons, res.Theory
	run.Faults = res.Exposure.Faults
	run.Properties = map[string]Property{}
	for name, r := range res.Properties {
		p := Property{Verdict: r.Verdict, Count: r.AnomalyCount, Reason: r.Reason}
		for _, a := range r.Anomalies {
			if p.Kinds == nil {
				p.Kinds = map[string]int{}
			}
			p.Kinds[kindOf(a)]++
			if p.First == "" {
				p.First = a.Message
			}
		}
		run.Properties[name] = p
		if slices.Contains(res.Required, name) {
			run.Violations += r.AnomalyCount
		}
	}
	if _, a := res.First(); a != nil {
		run.First = a.Message
	}
}

func kindOf(a checker.Anomaly) string {
	if a.Class != "" {
		return a.Kind + "/" + a.Class
	}
	return a.Kind
}

// causes names the faults that were in force at an anomaly of a required
// property. Their events are in the history.
func causes(res *experiment.Result) ([]string, error) {
	wanted := map[int]bool{}
	for _, name := range res.Required {
		if r := res.Properties[name]; r != nil {
			for _, a := range r.Anomalies {
				for _, i := range a.Faults {
					wanted[i] = true
				}
			}
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	f, err := os.Open(filepath.Join(res.Dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(`"process":"nemesis"`)) {
			continue
		}
		var o struct {
			Index int
			F     string
		}
		if err := json.Unmarshal(lines.Bytes(), &o); err == nil && wanted[o.Index] {
			found[o.F] = true
		}
	}
	return sorted(found), lines.Err()
}

// Bears is how many runs a machine of so many processors bears at a time without
// its slowness being taken for the lock's: one and a half each. A run takes 0.6 to
// 1.5 of a processor while it goes on, and nearly none while it waits for servers
// to come up or for the quiet time to pass.
func Bears(cpus int) int { return max(1, cpus+cpus/2) }
