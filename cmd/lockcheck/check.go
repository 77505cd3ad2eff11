package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/checker/model"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/report"
)

type checkFlags struct {
	require  []string
	property []string
	timeout  time.Duration
	model    string
	reentry  int
	json     bool
	linear   string // file for the page of what has no order
}

// newCheckFlags are those of a command line that gives none.
func newCheckFlags() *checkFlags {
	return &checkFlags{timeout: time.Minute, reentry: model.DefaultReentry}
}

// A checked is what check says of one file.
type checked struct {
	File string `json:"file"`
	*checker.Results
	Model     string `json:"model,omitempty"`     // that it was judged by, if not our own
	Guessed   bool   `json:"guessed,omitempty"`   // nobody asked for that model
	Leases    string `json:"leases,omitempty"`    // what an illegal lock comes to once leases may end
	Error     string `json:"error,omitempty"`     // why it could not be judged
	Truncated string `json:"truncated,omitempty"` // what was left out at its end
}

func (a *app) checkCommand() *cobra.Command {
	f := newCheckFlags()
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Judge saved histories",
		Long: `Judges saved histories: JSON lines (docs/history.md), EDN as Jepsen and knossos
write it, and the log lines of Jepsen; each also packed by gzip or zstd. What a
file is, its content tells. A file named - is standard input; a run directory
stands for its history.jsonl.

Histories of other tools are judged by a sequential model: --model, or what their
operations suggest. A mutex that is illegal is judged once more with leases that
may end.

A history may be larger than memory. Only linearizable needs the operations of a
key at once, about a hundred bytes each; with --property and the names of others,
none are kept.`,
		Example: `  lockcheck check store/latest/history.jsonl
  lockcheck check --json a.jsonl b.jsonl.zst
  lockcheck check --property data,fencing store/latest
  lockcheck check --model fenced-mutex history.edn
  lockcheck check --linear linear.html store/latest
  grep jepsen.util jepsen.log | lockcheck check -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(fmt.Errorf("check takes at least one file, or - for standard input"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return a.check(c.Context(), f, args) },
	}
	c.Flags().StringSliceVar(&f.require, "require", nil, "properties that the verdict is made of (default: the history's own, else all but exclusion)")
	c.Flags().StringSliceVar(&f.property, "property", nil, "show, and require, only these properties")
	c.Flags().DurationVar(&f.timeout, "timeout", f.timeout, "after which what is not decided is unknown")
	c.Flags().StringVar(&f.model, "model", "", "judge by this model: "+strings.Join(model.Names, ", ")+" (default: lease-lock for our own histories, else a guess)")
	c.Flags().IntVar(&f.reentry, "reentry", f.reentry, "how often one holder may hold a re-entrant mutex")
	c.Flags().StringVar(&f.linear, "linear", "", "write a page of the smallest part that has no linearization to this file, if there is one (one FILE)")
	c.Flags().BoolVar(&f.json, "json", false, "print the results as JSON: an object, or an array for several files")
	return c
}

func (f *checkFlags) validate() error {
	for _, p := range append(slices.Clone(f.require), f.property...) {
		if !slices.Contains(checker.Properties, p) {
			return fmt.Errorf("property %q is not known; there are %s", p, strings.Join(checker.Properties, ", "))
		}
	}
	if f.model != "" && !model.Known(f.model) {
		return fmt.Errorf("model %q is not known; there are %s", f.model, strings.Join(model.Names, ", "))
	}
	if f.reentry < 1 {
		return fmt.Errorf("--reentry %d: a lock can be held once or more", f.reentry)
	}
	return nil
}

func (a *app) check(ctx context.Context, f *checkFlags, files []string) error {
	if err := f.validate(); err != nil {
		return usage(err)
	}
	if f.linear != "" && len(files) > 1 {
		return usage(fmt.Errorf("--linear draws one history; there are %d files", len(files)))
	}
	code := exitValid
	var all []checked
	for _, file := range files {
		r, c := a.checkFile(ctx, f, file)
		code = worse(code, c)
		all = append(all, r)
		if !f.json {
			a.printChecked(r, len(files) > 1)
		}
	}
	if f.json {
		var v any = all
		if len(all) == 1 {
			v = all[0]
		}
		if err := printJSON(a.out, v); err != nil {
			return err
		}
	}
	return ended(code, nil)
}

func (a *app) checkFile(ctx context.Context, f *checkFlags, file string) (checked, int) {
	r := checked{File: file}
	in, err := a.open(file)
	if err != nil {
		r.Error = err.Error()
		return r, exitUsage
	}
	defer in.Close()
	src, err := history.Open(in, file)
	if err != nil {
		r.Error = err.Error()
		return r, exitUsage
	}
	defer src.Close()
	src = history.InOrder(src)
	c := &court{flags: f, src: src, file: file}
	if err := feed(src, c.add); err != nil {
		r.Error = err.Error()
		return r, exitUsage
	}
	r.Truncated = src.About().Truncated
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := c.finish(ctx, &r); err != nil {
		r.Error = err.Error()
		return r, exitUsage
	}
	res := r.Results
	if err := drawLinear(f.linear, c); err != nil {
		r.Error = err.Error()
		return r, exitUsage
	}
	require := f.require
	if len(f.property) > 0 {
		for name := range res.Properties {
			if !slices.Contains(f.property, name) {
				delete(res.Properties, name)
			}
		}
		if len(require) == 0 {
			require = f.property
		}
	}
	if len(require) > 0 {
		res.Require(require)
	}
	return r, codeOf(res.Verdict)
}

// drawLinear writes the page of what has no linearization, if anything has none.
func drawLinear(file string, c *court) error {
	if file == "" {
		return nil
	}
	var page bytes.Buffer
	found, err := c.drawn.WriteLinear(&page)
	if err != nil || !found {
		return err
	}
	return os.WriteFile(file, page.Bytes(), 0o644)
}

// A court chooses who judges a history, and hands it over.
type court struct {
	flags *checkFlags
	src   history.Source
	file  string

	own     *checker.Judge
	foreign *model.Judge
	guessed bool
	model   string
	waiting []history.Op // events that did not tell which model they are of
	drawn   interface {  // the verdict, once there is one
		WriteLinear(io.Writer) (bool, error)
	}
}

// maxWaiting bounds how many events are looked at to guess the model.
const maxWaiting = 10_000

// add takes the next event.
func (c *court) add(o *history.Op) error {
	if c.model == "" {
		if c.model = c.choose(o); c.model == "" {
			if len(c.waiting) == maxWaiting {
				return c.undecided()
			}
			c.waiting = append(c.waiting, *o)
			return nil
		}
		c.open()
	}
	c.hand(o)
	return nil
}

func (c *court) choose(o *history.Op) string {
	switch {
	case c.flags.model != "":
		return c.flags.model
	case !c.src.About().FileOrder:
		return model.LeaseLock
	}
	c.guessed = true
	return model.Guess(o)
}

func (c *court) undecided() error {
	return fmt.Errorf("%s: no operation in it suggests a model; choose one with --model: %s", c.file, strings.Join(model.Names, ", "))
}

func (c *court) open() {
	if c.model == model.LeaseLock {
		c.own = c.flags.judge(c.src.About().Header)
	} else {
		c.foreign = model.New(c.model, model.Options{Timeout: c.flags.timeout, Reentry: c.flags.reentry})
	}
	for i := range c.waiting {
		c.hand(&c.waiting[i])
	}
	c.waiting = nil
}

// judge begins a judgement by what is asked for. A history that is larger than
// memory can be judged as long as that is not linearizability.
func (f *checkFlags) judge(h history.Header) *checker.Judge {
	wants := func(names []string) bool { return slices.Contains(names, checker.Linearizable) }
	if len(f.property) > 0 && !wants(f.property) && !wants(f.require) && f.linear == "" {
		return checker.NewCheap(h)
	}
	return checker.New(h)
}

func (c *court) hand(o *history.Op) {
	if c.own != nil {
		c.own.Add(o)
	} else {
		c.foreign.Add(o)
	}
}

// finish fills in the judgement.
func (c *court) finish(ctx context.Context, r *checked) error {
	if c.model == "" {
		if len(c.waiting) > 0 {
			return c.undecided()
		}
		if c.model = c.flags.model; c.model == "" {
			c.model = model.LeaseLock
		}
		c.open()
	}
	if c.own != nil {
		res := c.own.Finish(ctx)
		r.Results, c.drawn = &res, &res
		if c.guessed {
			r.Model, r.Guessed = c.model, true
		}
		return nil
	}
	verdict := c.foreign.Finish(ctx)
	c.drawn = &verdict
	res := verdict.Results()
	r.Results, r.Model, r.Guessed, r.Leases = &res, c.model, c.guessed, verdict.Explanation()
	return nil
}

// feed hands over each event of a source. Reading and judging take about the same
// time, so they go on side by side, a few hundred events apart. What it hands over
// is only good until add returns.
func feed(src history.Source, add func(*history.Op) error) error {
	const batches, size = 4, 256
	full, spare := make(chan []history.Op, batches), make(chan []history.Op, batches)
	for range batches {
		spare <- make([]history.Op, size)
	}
	var readErr error
	go guard.Wrap(func() {
		defer close(full)
		for batch := range spare {
			n := 0
			for ; n < size && readErr == nil; n++ {
				readErr = src.Read(&batch[n])
			}
			if readErr != nil {
				n--
			}
			full <- batch[:n]
			if readErr != nil {
				return
			}
		}
	})()
	defer close(spare)
	for batch := range full {
		for i := range batch {
			if err := add(&batch[i]); err != nil {
				return err
			}
		}
		select {
		case spare <- batch[:size]:
		default: // the reader has ended
		}
	}
	if errors.Is(readErr, io.EOF) {
		return nil
	}
	return readErr
}

// open gives a history: a file, a run directory's, or standard input.
func (a *app) open(file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(a.in), nil
	}
	info, err := os.Stat(file)
	if err == nil && info.IsDir() {
		inside := strings.TrimRight(file, "/") + "/history.jsonl"
		if _, err := os.Stat(inside); err != nil {
			return nil, fmt.Errorf("%s is a folder without a history.jsonl", file)
		}
		file = inside
	}
	if err != nil {
		return nil, err
	}
	return os.Open(file)
}

func (a *app) printChecked(r checked, several bool) {
	if r.Error != "" {
		fmt.Fprintf(a.err, "lockcheck: %s\n", r.Error)
		return
	}
	if several {
		fmt.Fprintf(a.out, "%s\n", r.File)
	}
	if r.Truncated != "" {
		fmt.Fprintf(a.err, "lockcheck: %s\n", r.Truncated)
	}
	if r.Model != "" {
		how := ""
		if r.Guessed {
			how = " (a guess from its operations; --model chooses another)"
		}
		fmt.Fprintf(a.out, "model: %s%s\n", r.Model, how)
	}
	if r.Leases != "" {
		fmt.Fprintf(a.out, "leases: %s\n", r.Leases)
	}
	report.Results(a.out, r.Results, report.TextOptions{Color: colour(a.out), Width: width(a.out)})
}
