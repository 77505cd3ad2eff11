package verify

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/scenario"
)

// What a pair came to.
const (
	Caught     = "caught"      // what is wrong was found, and the twin is clean
	Missed     = "missed"      // something that was to be found was not
	FalseAlarm = "false alarm" // the twin was not clean
	Skipped    = "skipped"     // it could not be played here
)

// Within is the time in which a violation has to show.
const Within = 30 * time.Second

// Config says what to play.
type Config struct {
	Pairs    []Pair
	Options  experiment.Options // of every run, as far as a pair does not decide
	Seed     uint64             // the first one
	Seeds    int
	Parallel int // runs at a time
	Machine  experiment.Machine
	Told     func(Run) // called after each run, never twice at a time; may be nil
}

// A Run is one lock in one story.
type Run struct {
	Client  string        `json:"client"`
	Seed    uint64        `json:"seed"`
	Dir     string        `json:"dir,omitempty"`
	Verdict string        `json:"verdict,omitempty"`
	First   time.Duration `json:"first_ns,omitempty"` // from the start of the history to the first of what was expected
	Kinds   []string      `json:"kinds,omitempty"`    // everything that was found
	Missing []Finding     `json:"missing,omitempty"`
	Message string        `json:"message,omitempty"` // of the first of what was expected, or why the twin is not clean
	Skipped string        `json:"skipped,omitempty"`
	Took    time.Duration `json:"took_ns"`
}

// A Row is what a pair came to, over all seeds.
type Row struct {
	Pair
	Outcome string        `json:"outcome"`
	First   time.Duration `json:"first_ns,omitempty"` // the median over the seeds
	Broken  []Run         `json:"broken"`
	Honest  []Run         `json:"honest"`
}

// Play plays every pair under every seed.
func Play(ctx context.Context, cfg Config) []Row {
	rows := make([]Row, len(cfg.Pairs))
	type job struct {
		pair Pair
		seed uint64
		run  *Run
		twin bool
	}
	var jobs []job
	for i, p := range cfg.Pairs {
		rows[i] = Row{Pair: p, Broken: make([]Run, cfg.Seeds), Honest: make([]Run, cfg.Seeds)}
		for n := range cfg.Seeds {
			seed := cfg.Seed + uint64(n)
			jobs = append(jobs, job{p, seed, &rows[i].Broken[n], false}, job{p, seed, &rows[i].Honest[n], true})
		}
	}
	inParallel(cfg.Parallel, jobs, func(j job) { *j.run = cfg.play(ctx, j.pair, j.seed, j.twin) }, func(j job) {
		if cfg.Told != nil {
			cfg.Told(*j.run)
		}
	})
	for i := range rows {
		rows[i].conclude()
	}
	return rows
}

// inParallel does n jobs at a time, and tells of each when it is done, never of
// two at a time.
func inParallel[J any](n int, jobs []J, do, told func(J)) {
	todo := make(chan J)
	var wg sync.WaitGroup
	var telling sync.Mutex
	for range n {
		wg.Go(guard.Wrap(func() {
			for j := range todo {
				do(j)
				telling.Lock()
				told(j)
				telling.Unlock()
			}
		}))
	}
	for _, j := range jobs {
		todo <- j
	}
	close(todo)
	wg.Wait()
}

// play is one run, into a folder named after the client.
func (cfg *Config) play(ctx context.Context, p Pair, seed uint64, twin bool) (run Run) {
	begun := time.Now()
	run = Run{Client: p.Client, Seed: seed}
	if twin {
		run.Client = p.Twin
	}
	defer func() { run.Took = time.Since(begun) }()
	if _, err := local.Find(p.Backend); err != nil {
		run.Skipped = err.Error()
		return run
	}
	if ctx.Err() != nil {
		run.Skipped = "interrupted"
		return run
	}
	o := cfg.Options
	o.Backend, o.Client, o.Scenario, o.TTL, o.Store, o.Seed = p.Backend, run.Client, p.Scenario, p.TTL, p.Store, seed
	o.Out = filepath.Join(cfg.Options.Out, filepath.FromSlash(run.Client))
	err := o.Settle()
	var res experiment.Result
	if err == nil {
		res, err = experiment.Run(ctx, o, cfg.Machine)
	}
	run.Dir = res.Dir
	if err != nil { // nothing was played, which is neither a miss nor a false alarm, and no pass
		run.Verdict, run.Skipped = checker.Unknown.String(), err.Error()
		return run
	}
	run.Verdict = res.Verdict.String()
	run.look(&res.Results, p.Expect)
	if twin {
		run.Missing, run.First = nil, 0
		run.Message = unclean(&res.Results)
	}
	return run
}

// look compares what was found with what was expected.
func (run *Run) look(res *checker.Results, expect []Finding) {
	for _, f := range scenario.Findings(res) {
		run.Kinds = append(run.Kinds, f.String())
	}
	for _, f := range expect {
		at := slices.IndexFunc(res.Properties[f.Property].Anomalies, func(an checker.Anomaly) bool {
			return an.Kind == f.Kind && an.Time <= Within.Nanoseconds()
		})
		if at < 0 || !slices.Contains(res.Required, f.Property) {
			run.Missing = append(run.Missing, f)
			continue
		}
		an := res.Properties[f.Property].Anomalies[at]
		if d := time.Duration(an.Time); run.First == 0 || d < run.First {
			run.First, run.Message = d, an.Message
		}
	}
	if len(run.Missing) > 0 && len(res.Reasons) > 0 {
		run.Message = strings.Join(res.Reasons, "; ")
	}
}

// unclean says why a twin's run is not a pass, or "". Sections that overlap
// because their user went on too long are no alarm where the story does not
// require exclusion.
func unclean(res *checker.Results) string {
	if len(res.Reasons) > 0 {
		return strings.Join(res.Reasons, "; ")
	}
	for _, p := range checker.Properties {
		r := res.Properties[p]
		required := slices.Contains(res.Required, p)
		switch {
		case r.Verdict == checker.Invalid && (required || p != checker.Exclusion):
			return fmt.Sprintf("%s: %s: %s", p, r.Anomalies[0].Kind, r.Anomalies[0].Message)
		case r.Verdict == checker.Unknown && required:
			return fmt.Sprintf("%s: unknown: %s", p, r.Reason)
		}
	}
	return ""
}

// conclude draws a row's conclusion.
func (r *Row) conclude() {
	r.Outcome = Caught
	var firsts []time.Duration
	worse := func(outcome string) {
		order := []string{Caught, Skipped, Missed, FalseAlarm}
		if slices.Index(order, outcome) > slices.Index(order, r.Outcome) {
			r.Outcome = outcome
		}
	}
	for _, run := range r.Broken {
		switch {
		case run.Skipped != "":
			worse(Skipped)
		case len(run.Missing) > 0:
			worse(Missed)
		}
		if run.First > 0 {
			firsts = append(firsts, run.First)
		}
	}
	for _, run := range r.Honest {
		switch {
		case run.Skipped != "":
			worse(Skipped)
		case run.Message != "":
			worse(FalseAlarm)
		}
	}
	slices.Sort(firsts)
	if n := len(firsts); n > 0 {
		r.First = (firsts[(n-1)/2] + firsts[n/2]) / 2
	}
}
