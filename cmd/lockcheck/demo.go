package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/report"
	"github.com/lockcheck/lockcheck/scenario"
)

type demoFlags struct {
	o        experiment.Options
	seed     uint64
	parallel int
	json     bool
}

// A demoRow is one run of the demo.
type demoRow struct {
	Backend   string             `json:"backend"`
	Client    string             `json:"client"`
	Store     string             `json:"store"`
	Result    *experiment.Result `json:"result,omitempty"`
	Deviation string             `json:"deviation,omitempty"` // in what it did not come out as theory says
	Skipped   string             `json:"skipped,omitempty"`   // why it could not run here
	Took      time.Duration      `json:"took_ns"`
}

func (a *app) demoCommand() *cobra.Command {
	f := &demoFlags{o: experiment.Defaults()}
	c := &cobra.Command{
		Use:   "demo",
		Short: "A GC pause meets every lock, with and without a fence",
		Long: `Plays the scenario gc-pause on every backend that this machine has, with a store
that fences nothing and with one that fences by token. Exits with 0 if every row
came out as theory says, red rows included, with 1 if one did not, and with 2 if
a backend had to be skipped.`,
		Example: "  lockcheck demo\n  lockcheck demo --json",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return a.demo(c.Context(), f) },
	}
	c.Flags().StringVar(&f.o.Out, "out", f.o.Out, "folder for run directories")
	c.Flags().DurationVar(&f.o.TTL, "ttl", f.o.TTL, "lease or session time-out")
	c.Flags().StringVar(&f.o.Network, "network", f.o.Network, "lab (namespaces), loopback, or auto")
	c.Flags().StringVar(&f.o.Proxy, "proxy", f.o.Proxy, "toxiproxy on the worker links: always, or auto (only for faults that need it)")
	c.Flags().Uint64Var(&f.seed, "seed", rand.Uint64N(1<<32), "of all random choices")
	c.Flags().IntVar(&f.parallel, "parallel", 2, "runs at a time")
	c.Flags().BoolVar(&f.json, "json", false, "print the rows as JSON")
	return c
}

func (a *app) demo(ctx context.Context, f *demoFlags) error {
	if f.parallel < 1 {
		return usage(fmt.Errorf("parallel %d is below 1", f.parallel))
	}
	if left, err := a.enterLab(ctx, &f.o); left || err != nil {
		return err
	}
	fmt.Fprintf(a.err, "seed %d  %s  scenario gc-pause: A is stopped past its TTL, B takes the lock and writes, A wakes and writes\n", f.seed, f.o.Out)
	rows := demoRows()
	a.playDemo(ctx, f, rows)
	if f.json {
		if err := printJSON(a.out, rows); err != nil {
			return err
		}
	} else if err := a.printDemo(f, rows); err != nil {
		return exit{exitFailed, err}
	}
	code := exitValid
	for _, r := range rows {
		code = worse(code, rowCode(r.Skipped, r.Deviation))
	}
	return ended(code, nil)
}

// rowCode is the exit code of one row: as theory says, not so, or not played.
func rowCode(skipped, deviation string) int {
	switch {
	case skipped != "":
		return exitUnknown
	case deviation != "":
		return exitInvalid
	}
	return exitValid
}

// demoRows are every client on every backend, without and with a fence.
func demoRows() []*demoRow {
	var rows []*demoRow
	for _, b := range cluster.Backends {
		for _, e := range catalog.All {
			if !e.On(b) {
				continue
			}
			for _, s := range []fencedstore.Policy{fencedstore.None, fencedstore.Monotonic} {
				rows = append(rows, &demoRow{Backend: b, Client: e.Name, Store: string(s)})
			}
		}
	}
	return rows
}

func (a *app) playDemo(ctx context.Context, f *demoFlags, rows []*demoRow) {
	todo := make(chan *demoRow)
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range f.parallel {
		wg.Go(guard.Wrap(func() {
			for r := range todo {
				a.playRow(ctx, f, r)
				mu.Lock()
				done++
				fmt.Fprintf(a.err, "%2d/%d  %-14s %-20s %-9s  %5.1fs  %s\n", done, len(rows), r.Backend, r.Client, r.Store, r.Took.Seconds(), r.said())
				mu.Unlock()
			}
		}))
	}
	for _, r := range rows {
		todo <- r
	}
	close(todo)
	wg.Wait()
}

func (a *app) playRow(ctx context.Context, f *demoFlags, r *demoRow) {
	begun := time.Now()
	defer func() { r.Took = time.Since(begun) }()
	if _, err := local.Find(r.Backend); err != nil {
		r.Skipped = err.Error()
		return
	}
	if ctx.Err() != nil {
		r.Skipped = "interrupted"
		return
	}
	o := f.o
	o.Backend, o.Client, o.Store, o.Scenario, o.Seed = r.Backend, r.Client, fencedstore.Policy(r.Store), "gc-pause", f.seed
	if err := o.Settle(); err != nil {
		r.Deviation = err.Error()
		return
	}
	res, err := experiment.Run(ctx, o, a.machine())
	if err != nil {
		r.Deviation = err.Error()
	}
	if res.Properties == nil {
		return
	}
	r.Result = &res
	if err == nil {
		e, _ := catalog.Find(r.Client) // it comes from the catalog
		r.Deviation = experiment.GCPauseDeviation(&res, e.Tokens)
	}
}

func (r *demoRow) said() string {
	switch {
	case r.Skipped != "":
		return "skipped: " + r.Skipped
	case r.Deviation != "":
		return "not as theory says: " + r.Deviation
	}
	return "as theory says"
}

func (a *app) printDemo(f *demoFlags, rows []*demoRow) error {
	color := colour(a.out)
	var table []report.DemoRow
	var first *demoRow
	for _, r := range rows {
		d := report.DemoRow{Backend: r.Backend, Client: r.Client, Store: r.Store, Deviation: r.Deviation, Skipped: r.Skipped}
		if r.Result != nil {
			v := func(p string) checker.Verdict { return r.Result.Properties[p].Verdict }
			d.Exclusion, d.Lease, d.Fencing, d.Data = v(checker.Exclusion), v(checker.Lease), v(checker.Fencing), v(checker.Data)
			d.StaleApplied, d.StaleRefused = r.Result.Exposure.StaleWritesApplied, r.Result.Exposure.WritesRefused
			if _, an := r.Result.First(); an != nil && first == nil {
				first = r
			}
		}
		table = append(table, d)
	}
	if first != nil {
		fmt.Fprintf(a.out, "\nThe first violation: %s on %s, store %s\n\n", first.Client, first.Backend, first.Store)
		a.strip(*first.Result, color)
	}
	a.printSaved(rows, color)
	fmt.Fprintln(a.out)
	if err := report.DemoTable(a.out, table, color); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "\n%s\nhistories and results: %s\n", demoLesson(rows), filepath.Join(f.o.Out, "*-gc-pause"))
	if first != nil {
		fmt.Fprintf(a.out, "report of the first violation: %s\n", paths(first.Result.Dir)[0])
	}
	return nil
}

// printSaved draws the same story with a fence: the first run whose late write
// was refused.
func (a *app) printSaved(rows []*demoRow, color bool) {
	for _, r := range rows {
		if r.Result == nil || r.Result.Exposure.WritesRefused == 0 {
			continue
		}
		ops, err := readHistory(*r.Result)
		if err == nil {
			fmt.Fprintf(a.out, "\nThe same with a fence: %s on %s, store %s\n\n", r.Client, r.Backend, r.Store)
			err = report.StripKey(a.out, ops, scenario.Key, 0, 0, report.StripOptions{Width: width(a.out), Color: color})
		}
		if err != nil {
			fmt.Fprintf(a.err, "lockcheck: no timeline: %v\n", err)
		}
		return
	}
}

// demoLesson says in words what the table shows.
func demoLesson(rows []*demoRow) string {
	var saved, lost []string
	for _, r := range rows {
		if r.Result == nil || r.Store == string(fencedstore.None) {
			continue
		}
		name := r.Client + " on " + r.Backend
		if r.Result.Properties[checker.Data].Verdict == checker.Invalid {
			lost = append(lost, name)
		} else {
			saved = append(saved, name)
		}
	}
	var b strings.Builder
	b.WriteString("No lease lock keeps a stopped holder from writing late: without a fence the data is damaged.\n")
	if len(saved) > 0 {
		fmt.Fprintf(&b, "The fence refused the stale write of %s.\n", strings.Join(saved, ", "))
	}
	if len(lost) > 0 {
		fmt.Fprintf(&b, "No token to fence with: %s.\n", strings.Join(lost, ", "))
	}
	return b.String()
}
