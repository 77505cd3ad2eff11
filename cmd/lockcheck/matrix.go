package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/matrix"
	"github.com/lockcheck/lockcheck/report"
)

type matrixFlags struct {
	spec     matrix.Spec
	out      string
	resume   string
	shard    string
	summary  string
	parallel int
	json     bool
}

func (a *app) matrixCommand() *cobra.Command {
	f := &matrixFlags{spec: matrix.Spec{Options: experiment.Defaults()}}
	c := &cobra.Command{
		Use:   "matrix",
		Short: "Backends x clients x faults x stores in one table, with theory beside it",
		Long: `Runs every lock on every backend under every fault with every store, each run in
a process and a lab of its own, and prints one table: what became of each property,
how many grants were judged, how much of the time the lock could be had, and what
theory lets happen. What theory does not allow is printed as a surprise.

A fault is what 'lockcheck list faults' shows, also with a form and a target
(server-kill:lose@majority), several at once (pause+partition), a story
(scenario:failover), or none.

Ctrl-C keeps what is done; --resume goes on. Shards (--shard 3/16) need the same
flags and the same --seed everywhere; 'lockcheck merge' joins them.`,
		Example: `  lockcheck matrix --faults pause,partition
  lockcheck matrix --backends redis,etcd --clients all --faults none,pause,server-kill --repeat 3
  lockcheck matrix --resume store/matrix/20260901T120000Z
  lockcheck matrix --seed 1 --shard 3/16 --out shard-3
  lockcheck matrix --faults server-kill:lose@majority,scenario:failover --summary-file table.md`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.matrix(c, f) },
	}
	o, fl := &f.spec.Options, c.Flags()
	fl.StringSliceVar(&f.spec.Backends, "backends", cluster.Backends, "servers")
	fl.StringSliceVar(&f.spec.Clients, "clients", []string{matrix.DefaultClient}, "locks: names, default (each backend's own), all (every honest one)")
	fl.StringSliceVar(&f.spec.Faults, "faults", []string{matrix.NoFault, "pause", "kill", "partition", "server-kill"}, "faults, a cell each")
	fl.StringSliceVar(&f.spec.Stores, "stores", []string{"none", "monotonic"}, "fences of the store: none, monotonic, strict")
	fl.IntVar(&f.spec.Repeat, "repeat", 1, "runs of each cell, each with a seed of its own")
	fl.Uint64Var(&f.spec.Seed, "seed", rand.Uint64N(1<<32), "of the first run of each cell; the next ones follow it")
	fl.IntVar(&f.parallel, "parallel", 0, "runs at a time (0: as many as the machine bears)")
	fl.StringVar(&f.out, "out", "", "folder for matrix.json, matrix.html and the run directories (default store/matrix/<UTC time>)")
	fl.StringVar(&f.resume, "resume", "", "folder of a matrix that was not finished; it brings its own parameters")
	fl.StringVar(&f.shard, "shard", "", "only this part of the runs, i/n with i from 1")
	fl.StringVar(&f.summary, "summary-file", "", "file that the table is added to as Markdown, e.g. $GITHUB_STEP_SUMMARY")
	fl.BoolVar(&f.json, "json", false, "print matrix.json")
	fl.DurationVar(&o.Duration, "duration", o.Duration, "of each workload")
	fl.DurationVar(&o.Interval, "interval", o.Interval, "mean time between faults")
	fl.StringVar(&o.Target, "target", o.Target, "whom faults are aimed at, where a cell does not say")
	fl.IntVar(&o.Workers, "workers", o.Workers, "worker processes of each run")
	fl.StringVar(&o.Keys, "keys", o.Keys, "lock granularity: coarse, user, order, or a number of keys")
	fl.DurationVar(&o.TTL, "ttl", o.TTL, "lease or session time-out")
	fl.DurationVar(&o.Hold, "hold", o.Hold, "mean time in the section")
	fl.DurationVar(&o.RetryDelay, "retry-delay", o.RetryDelay, "mean time between two tries for the lock")
	fl.StringVar(&o.Persistence, "persistence", o.Persistence, "of redis: none, aof")
	fl.StringSliceVar(&o.Require, "require", nil, "properties that the verdict is made of (default: all but exclusion)")
	fl.StringVar(&o.Network, "network", o.Network, "lab (namespaces), loopback, or auto")
	fl.StringVar(&o.Proxy, "proxy", o.Proxy, "toxiproxy on the worker links of all runs: always, or auto (if one cell needs it)")
	return c
}

// begin gives the matrix that is to be carried out, new or gone on with.
func (f *matrixFlags) begin(c *cobra.Command) (*matrix.Result, error) {
	if f.parallel < 0 {
		return nil, fmt.Errorf("parallel %d is below 0", f.parallel)
	}
	if f.resume != "" {
		for _, name := range []string{"backends", "clients", "faults", "stores", "repeat", "seed", "shard", "out", "duration", "ttl", "workers", "keys", "network"} {
			if c.Flags().Changed(name) {
				return nil, fmt.Errorf("--resume goes on with the parameters of %s: leave --%s out", f.resume, name)
			}
		}
		f.out = f.resume
		return matrix.Read(f.resume)
	}
	sh, err := matrix.ParseShard(f.shard)
	if err != nil {
		return nil, err
	}
	network, _, err := local.Choose(c.Context(), f.spec.Options.Network)
	if err != nil {
		return nil, exit{exitFailed, err}
	}
	f.spec.Options.Network = network
	if err := f.spec.Settle(); err != nil {
		return nil, err
	}
	if f.out == "" {
		f.out = filepath.Join("store", "matrix", time.Now().UTC().Format("20060102T150405Z"))
	}
	if _, err := os.Stat(filepath.Join(f.out, matrix.File)); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has a matrix already: go on with --resume %s, or choose another --out", f.out, f.out)
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return nil, exit{exitFailed, err}
	}
	return matrix.New(f.spec, sh), nil
}

func (a *app) matrix(c *cobra.Command, f *matrixFlags) error {
	res, err := f.begin(c)
	if err != nil {
		if e := (exit{}); errors.As(err, &e) {
			return err
		}
		return usage(err)
	}
	if f.parallel == 0 {
		f.parallel = matrix.Bears(runtime.NumCPU())
	}
	todo := len(res.Todo())
	fmt.Fprintf(a.err, "seed %d  %s  %d runs, %d at a time\n", res.Spec.Seed, f.out, todo, f.parallel)
	show := &progressLine{w: a.err}
	done := 0
	err = matrix.Play(c.Context(), res, matrix.Config{
		Dir: f.out, Parallel: f.parallel, Play: a.runChild, Began: show.show,
		Ended: func(p matrix.Place, run matrix.Run) {
			done++
			show.clear()
			fmt.Fprintf(a.err, "%*d/%d  %-50v seed %d  %5.1fs  %s\n", len(fmt.Sprint(todo)), done, todo, p.Cell, p.Seed, run.Took.Seconds(), ranSaid(run))
		},
		Trouble: func(err error) { fmt.Fprintf(a.err, "lockcheck: %v\n", err) },
	})
	show.clear()
	if err != nil {
		return exit{exitFailed, err}
	}
	if c.Context().Err() != nil {
		fmt.Fprintf(a.err, "interrupted; go on with: lockcheck matrix --resume %s\n", f.out)
	}
	return a.printMatrix(res, f.out, f.summary, f.json)
}

// ranSaid is what a run came to, in a line.
func ranSaid(run matrix.Run) string {
	switch {
	case run.Skipped != "":
		return "skipped: " + report.Clean(run.Skipped)
	case run.Failed != "":
		return "lockcheck failed: " + report.Clean(run.Failed)
	case len(run.Surprises) > 0:
		return "SURPRISE " + report.Clean(strings.Join(run.Surprises, "; "))
	case run.First != "" && run.Violations > 0:
		return run.Verdict.String() + ": " + report.Clean(run.First)
	case len(run.Reasons) > 0:
		return run.Verdict.String() + ": " + report.Clean(strings.Join(run.Reasons, "; "))
	}
	return run.Verdict.String()
}

// printMatrix leaves the files behind, prints the table and gives the verdict.
func (a *app) printMatrix(res *matrix.Result, dir, summary string, json bool) error {
	code := codeOf(res.Verdict)
	if res.Failed() {
		code = worse(code, exitFailed)
	}
	for _, err := range res.WriteFiles(dir) {
		fmt.Fprintf(a.err, "lockcheck: %v\n", err) // a drawing never costs the verdict
	}
	if summary != "" {
		chart := filepath.ToSlash(filepath.Join(dir, matrix.ChartFile))
		if err := report.AppendFile(summary, func(w io.Writer) error { return res.Markdown(w, chart) }); err != nil {
			return exit{exitFailed, err}
		}
	}
	if json {
		if err := printJSON(a.out, res); err != nil {
			return err
		}
		return ended(code, nil)
	}
	if err := res.Table(a.out, colour(a.out)); err != nil {
		return exit{exitFailed, err}
	}
	fmt.Fprintf(a.out, "\n%d against theory\n%s\nverdict: %v\n", len(res.Surprises()), filepath.Join(dir, matrix.PageFile), res.Verdict)
	return ended(code, nil)
}

func (a *app) mergeCommand() *cobra.Command {
	var out, summary string
	var json bool
	c := &cobra.Command{
		Use:   "merge DIR...",
		Short: "Join the shards of a matrix",
		Long: `Joins the folders that shards of one matrix have written, run directories and all,
into one: the same as if one machine had carried out the whole. What no shard has
carried out is named, and makes its cell unknown.`,
		Example: `  lockcheck merge --out whole shard-1 shard-2 shard-3`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(fmt.Errorf("merge takes the folders of the shards"))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.merge(args, out, summary, json) },
	}
	c.Flags().StringVar(&out, "out", filepath.Join("store", "matrix", "merged"), "folder for the whole")
	c.Flags().StringVar(&summary, "summary-file", "", "file that the table is added to as Markdown, e.g. $GITHUB_STEP_SUMMARY")
	c.Flags().BoolVar(&json, "json", false, "print matrix.json")
	return c
}

func (a *app) merge(dirs []string, out, summary string, json bool) error {
	var parts []*matrix.Result
	for _, d := range dirs {
		r, err := matrix.Read(d)
		if err != nil {
			return usage(err)
		}
		parts = append(parts, r)
	}
	res, err := matrix.Merge(parts)
	if err != nil {
		return usage(err)
	}
	if _, err := os.Stat(filepath.Join(out, matrix.File)); err == nil {
		return usage(fmt.Errorf("%s has a matrix already: choose another --out", out))
	}
	if err := res.Collect(out, dirs); err != nil {
		return exit{exitFailed, err}
	}
	return a.printMatrix(res, out, summary, json)
}

// progressLine shows what runs, in a line that is written over, on a terminal
// only.
type progressLine struct {
	w     io.Writer
	shown bool
}

func (l *progressLine) show(p matrix.Progress) {
	if !terminal(l.w) || p.Done == p.All {
		return
	}
	left := "?"
	if p.Left > 0 {
		left = p.Left.Round(time.Second).String()
	}
	line := fmt.Sprintf("%d/%d done, about %s left; running: %s", p.Done, p.All, left, strings.Join(p.Running, " | "))
	if n := width(l.w); len(line) >= n {
		line = line[:n-1]
	}
	l.shown = true
	fmt.Fprintf(l.w, "\r\x1b[K%s", line)
}

func (l *progressLine) clear() {
	if l.shown {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.shown = false
	}
}

// runChild carries out one run in a process of its own: a lab each, and a crash
// of one costs no other.
func (a *app) runChild(ctx context.Context, o experiment.Options) (experiment.Result, error) {
	return childRun(ctx, childArgs(o))
}
