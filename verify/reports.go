package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/generator"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/scenario"
)

// A Telling says how a public report is to be told once more.
type Telling struct {
	Report   scenario.Report
	Options  experiment.Options // of every run, as far as a row does not decide
	Seed     uint64
	Parallel int // rows at a time
	Machine  experiment.Machine
	// Judge judges a file as `lockcheck check` does. Its error is the refusal of a
	// file that makes no sense.
	Judge func(ctx context.Context, file string) (*checker.Results, error)
	Told  func(Row *Told) // called after each row, never twice at a time; may be nil
}

// Told is a row of a report as it came out.
type Told struct {
	scenario.Row
	Dir       string            `json:"dir"` // of the run, or the file
	Verdict   string            `json:"verdict"`
	Found     []Finding         `json:"found,omitempty"`
	Message   string            `json:"message,omitempty"`   // of the first anomaly, or the refusal
	Deviation string            `json:"deviation,omitempty"` // in what it did not come out as theory says
	Skipped   string            `json:"skipped,omitempty"`
	Took      time.Duration     `json:"took_ns"`
	Judged    time.Duration     `json:"judged_ns,omitempty"` // of a file
	Exposure  *checker.Exposure `json:"exposure,omitempty"`
}

// Tell plays every row of a report.
func Tell(ctx context.Context, t Telling) []*Told {
	var rows []*Told
	for _, r := range t.Report.Rows {
		rows = append(rows, &Told{Row: r})
	}
	key := keys[generator.Stream(t.Seed, generator.StreamScenario).IntN(len(keys))]
	i := map[*Told]int{}
	for n, r := range rows {
		i[r] = n + 1
	}
	inParallel(t.Parallel, rows, func(r *Told) {
		begun := time.Now()
		defer func() { r.Took = time.Since(begun) }()
		switch {
		case ctx.Err() != nil:
			r.Skipped = "interrupted"
		case r.File != nil:
			t.judge(ctx, r, i[r])
		default:
			t.play(ctx, r, key)
		}
	}, func(r *Told) {
		if t.Told != nil {
			t.Told(r)
		}
	})
	return rows
}

// keys are the locks that the reports are told about: what a name is made of must
// not matter.
var keys = []string{scenario.Key, "user:42", "a.b.c", "payments/2026-07 (second run)", "größe/東京", "%2F..", "k"}

func (t *Telling) play(ctx context.Context, r *Told, key string) {
	if _, err := local.Find(r.Backend); err != nil {
		r.Skipped = err.Error()
		return
	}
	o := t.Options
	o.Backend, o.Client, o.Scenario, o.Seed, o.Key = r.Backend, r.Client, r.Scenario, t.Seed, key
	if r.TTL > 0 {
		o.TTL = r.TTL
	}
	if r.Store != "" {
		o.Store = r.Store
	}
	if r.Persistence != "" {
		o.Persistence = r.Persistence
	}
	if r.Renew {
		o.Renew = &r.Renew
	}
	err := o.Settle()
	if missing := o.Missing(); err == nil && missing != nil {
		r.Skipped = missing.Error()
		return
	}
	var res experiment.Result
	if err == nil {
		res, err = experiment.Run(ctx, o, t.Machine)
	}
	r.Dir = res.Dir
	if err != nil {
		r.Verdict, r.Deviation = checker.Unknown.String(), err.Error()
		return
	}
	ops, err := saved(res.Dir)
	if err != nil {
		r.Deviation = err.Error()
		return
	}
	r.conclude(ops, &res.Results)
}

// saved reads the history of a run.
func saved(dir string) ([]history.Op, error) {
	f, err := os.Open(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ops, _, err := history.ReadAll(f, f.Name())
	return ops, err
}

func (r *Told) conclude(ops []history.Op, res *checker.Results) {
	r.Verdict, r.Found, r.Exposure = res.Verdict.String(), scenario.Findings(res), &res.Exposure
	if _, an := res.First(); an != nil {
		r.Message = an.Message
	}
	r.Deviation = r.Expected.Deviation(ops, res)
}

// judge writes a row's file and has it judged.
func (t *Telling) judge(ctx context.Context, r *Told, n int) {
	r.Dir = filepath.Join(t.Options.Out, t.Report.Number, fmt.Sprintf("%d-seed%d%s", n, t.Seed, r.Ext))
	if err := writeFile(r.Dir, t.Seed, r.File); err != nil {
		r.Verdict, r.Deviation = checker.Unknown.String(), err.Error()
		return
	}
	begun := time.Now()
	res, err := t.Judge(ctx, r.Dir)
	r.Judged = time.Since(begun)
	switch {
	case err != nil:
		r.Verdict, r.Message = "malformed", err.Error()
		if r.Refused == "" || !strings.Contains(r.Message, r.Refused) || !fileAndLine.MatchString(r.Message) {
			r.Deviation = "refused: " + r.Message
		}
	case r.Refused != "":
		r.Verdict, r.Deviation = res.Verdict.String(), fmt.Sprintf("it should have been refused: ...%s", r.Refused)
	default:
		r.conclude(nil, res)
	}
}

// fileAndLine is how a refusal begins.
var fileAndLine = regexp.MustCompile(`^[^:]+:\d+: `)

func writeFile(name string, seed uint64, write func(w io.Writer, rng *rand.Rand) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f, generator.Stream(seed, generator.StreamScenario)), f.Close())
}
