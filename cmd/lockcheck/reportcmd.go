package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/scenario"
	"github.com/lockcheck/lockcheck/verify"
)

// reportFlags are the flags of scenario that a public report leaves to the user;
// its rows decide the rest.
var reportFlags = []string{"seed", "out", "network", "proxy", "json"}

// rowsAtOnce is how many rows of a report are played at a time.
const rowsAtOnce = 2

// publicReport tells a public report: its failing form and its twin, each in every
// variation.
func (a *app) publicReport(c *cobra.Command, f *runFlags, r scenario.Report) error {
	var decided error
	c.Flags().Visit(func(fl *pflag.Flag) {
		if !slices.Contains(reportFlags, fl.Name) {
			decided = fmt.Errorf("--%s: the rows of report %s decide that by themselves; left open are --%s", fl.Name, r.Number, strings.Join(reportFlags, ", --"))
		}
	})
	if decided != nil {
		return usage(decided)
	}
	if left, err := a.enterLab(c.Context(), &f.o); left || err != nil {
		return err
	}
	f.drawSeed(c)
	a.say(f, "seed %d  %s\n%s, %s (%s)\n%s\n\n", f.o.Seed, f.o.Out, r.Number, r.Source, r.Year, r.About)
	done := 0
	rows := verify.Tell(c.Context(), verify.Telling{
		Report: r, Options: f.o, Seed: f.o.Seed, Parallel: rowsAtOnce, Machine: a.machine(), Judge: a.judgeAsCheck,
		Told: func(t *verify.Told) {
			done++
			fmt.Fprintf(a.err, "%*d/%d  %-9s %-28s %5.1fs  %s\n", len(fmt.Sprint(len(r.Rows))), done, len(r.Rows), form(t), subject(t), t.Took.Seconds(), rowSaid(t))
		},
	})
	if f.json {
		if err := printJSON(a.out, map[string]any{"report": r, "rows": rows}); err != nil {
			return err
		}
	} else if err := a.printReport(rows); err != nil {
		return exit{exitFailed, err}
	}
	code := exitValid
	for _, t := range rows {
		code = worse(code, rowCode(t.Skipped, t.Deviation))
	}
	return ended(code, nil)
}

// judgeAsCheck judges a file as `lockcheck check` does.
func (a *app) judgeAsCheck(ctx context.Context, file string) (*checker.Results, error) {
	r, _ := a.checkFile(ctx, newCheckFlags(), file)
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return r.Results, nil
}

func form(t *verify.Told) string {
	if t.Failing {
		return "failing"
	}
	return "twin"
}

// subject is what a row is about: a lock on a backend, or a file.
func subject(t *verify.Told) string {
	if t.Client == "" {
		return filepath.Base(t.Dir)
	}
	s := t.Client
	if t.Store != "" {
		s += ", store " + string(t.Store)
	}
	return s
}

func rowSaid(t *verify.Told) string {
	switch {
	case t.Skipped != "":
		return "skipped: " + t.Skipped
	case t.Deviation != "":
		return "not as theory says: " + t.Deviation
	}
	return "as theory says"
}

// found is what was found in a row, in few words.
func found(t *verify.Told) string {
	switch {
	case t.Verdict == "malformed":
		return "malformed"
	case len(t.Found) == 0:
		return "nothing"
	}
	var kinds []string
	for _, f := range t.Found {
		kinds = append(kinds, f.String())
	}
	return strings.Join(kinds, ", ")
}

func (a *app) printReport(rows []*verify.Told) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "form\tof\tvariation\tfound\tverdict\tas theory says")
	off := 0
	for _, t := range rows {
		as := "yes"
		switch {
		case t.Skipped != "":
			as = "skipped"
		case t.Deviation != "":
			as = "NO"
			off++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", form(t), subject(t), t.Row.About, found(t), t.Verdict, as)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	for _, t := range rows {
		if t.Failing && t.Message != "" {
			fmt.Fprintf(a.out, "%s: %s\n", subject(t), t.Message)
			break
		}
	}
	for _, t := range rows {
		if t.Deviation != "" {
			fmt.Fprintf(a.out, "not as theory says, %s, %s: %s\n", form(t), subject(t), t.Deviation)
		}
	}
	fmt.Fprintln(a.out)
	for _, t := range rows {
		if t.Dir != "" {
			fmt.Fprintf(a.out, "lockcheck check %s\n", t.Dir)
		}
	}
	fmt.Fprintf(a.out, "\n%d of %d rows as theory says\n", len(rows)-off, len(rows))
	return nil
}
