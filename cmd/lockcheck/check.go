package main

import (
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
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/report"
)

type checkFlags struct {
	require  []string
	property []string
	timeout  time.Duration
	json     bool
}

// A checked is what check says of one file.
type checked struct {
	File string `json:"file"`
	*checker.Results
	Error     string `json:"error,omitempty"`     // why it could not be judged
	Truncated string `json:"truncated,omitempty"` // what was left out at its end
}

func (a *app) checkCommand() *cobra.Command {
	f := &checkFlags{}
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Judge saved histories",
		Long: `Judges saved histories in JSON lines (docs/history.md). A file named - is standard
input; a run directory stands for its history.jsonl.`,
		Example: `  lockcheck check store/latest/history.jsonl
  lockcheck check --json a.jsonl b.jsonl
  lockcheck check --property data,fencing store/latest
  zcat history.jsonl.gz | lockcheck check -`,
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
	c.Flags().DurationVar(&f.timeout, "timeout", time.Minute, "after which what is not decided is unknown")
	c.Flags().BoolVar(&f.json, "json", false, "print the results as JSON: an object, or an array for several files")
	return c
}

func (a *app) check(ctx context.Context, f *checkFlags, files []string) error {
	for _, p := range append(slices.Clone(f.require), f.property...) {
		if !slices.Contains(checker.Properties, p) {
			return usage(fmt.Errorf("property %q is not known; there are %s", p, strings.Join(checker.Properties, ", ")))
		}
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
	rd := history.NewReader(in, file)
	var j *checker.Judge
	for {
		o, err := rd.Next()
		if j == nil {
			j = checker.New(rd.Header)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.Error = err.Error()
			return r, exitUsage
		}
		j.Add(&o)
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	res := j.Finish(ctx)
	r.Results, r.Truncated = &res, rd.Truncated
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
	report.Results(a.out, r.Results, report.TextOptions{Color: colour(a.out), Width: width(a.out)})
}
