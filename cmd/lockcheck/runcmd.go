package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-shellwords"
	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/cluster/docker"
	"github.com/lockcheck/lockcheck/cluster/external"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/report"
	"github.com/lockcheck/lockcheck/scenario"
)

// runFlags are the flags that run and scenario share.
type runFlags struct {
	o           experiment.Options
	store       string
	clientCmd   string
	endpoints   []string
	testCluster bool
	renew       bool
	plan        string
	from        string
	summary     string
	json        bool
	seed        uint64
}

// add declares the flags of every experiment.
func (f *runFlags) add(c *cobra.Command) {
	f.o = experiment.Defaults()
	fl := c.Flags()
	fl.StringVar(&f.o.Backend, "backend", f.o.Backend, "servers: redis, redis-sentinel, redlock, zookeeper, etcd")
	fl.StringVar(&f.o.Client, "client", "", "lock under test (default: the backend's; see 'lockcheck list clients')")
	fl.StringVar(&f.clientCmd, "client-cmd", "", "command line of a program that speaks the worker protocol (docs/protocol.md)")
	fl.DurationVar(&f.o.TTL, "ttl", f.o.TTL, "lease or session time-out")
	fl.StringVar(&f.store, "store", string(f.o.Store), "fence of the store: none, monotonic, strict")
	fl.Uint64Var(&f.seed, "seed", 0, "of all random choices (default: drawn, and printed)")
	fl.StringSliceVar(&f.o.Require, "require", nil, "properties that the verdict is made of (default: all but exclusion)")
	fl.StringVar(&f.o.Out, "out", f.o.Out, "folder for run directories")
	fl.DurationVar(&f.o.RetryDelay, "retry-delay", f.o.RetryDelay, "mean time between two tries for the lock")
	fl.BoolVar(&f.renew, "renew", false, "renew leases in the background (default: as the client's algorithm has it)")
	fl.StringVar(&f.o.Persistence, "persistence", f.o.Persistence, "of redis: none, aof")
	fl.StringVar(&f.o.OnSuspended, "on-suspended", f.o.OnSuspended, "what a holder does while its connection is in doubt: continue, pause")
	fl.StringVar(&f.o.Provider, "provider", f.o.Provider, "of the servers: local (this machine), docker (containers), external (that exist); see docs/providers.md")
	fl.StringVar(&f.o.ExternalFile, "external", "", "external: YAML file that says what is there (docs/providers.md; compose/*.lockcheck.yml)")
	fl.StringSliceVar(&f.endpoints, "endpoint", nil, "external: host:port of a server, or name=host:port; in place of --external")
	fl.BoolVar(&f.testCluster, "i-know-this-is-a-test-cluster", false, "external: allow addresses that are neither loopback nor private")
	fl.StringVar(&f.o.Image, "image", "", "docker: image that has every server and toxiproxy (default: lockcheck/servers:local if it is there, else the official ones)")
	fl.StringVar(&f.o.Network, "network", f.o.Network, "lab (namespaces), loopback, or auto")
	fl.StringVar(&f.o.Proxy, "proxy", f.o.Proxy, "toxiproxy on the worker links: always, or auto (only for faults that need it)")
	fl.BoolVar(&f.json, "json", false, "print the result as JSON")
	fl.StringVar(&f.summary, "summary-file", "", "file that a summary in Markdown is added to, e.g. $GITHUB_STEP_SUMMARY")
	fl.StringVar(&f.from, "from", "", "run directory whose parameters are taken; flags given beside it win")
}

// addWorkload declares the flags of a run that a scenario decides by itself.
func (f *runFlags) addWorkload(c *cobra.Command) {
	fl := c.Flags()
	fl.IntVar(&f.o.Workers, "workers", f.o.Workers, "worker processes")
	fl.StringVar(&f.o.Keys, "keys", f.o.Keys, "lock granularity: coarse, user, order, or a number of keys")
	fl.StringSliceVar(&f.o.Nemesis, "nemesis", nil, "faults, separated by commas, e.g. pause,partition:ring; 'lockcheck list faults' shows them")
	fl.StringVar(&f.o.Target, "target", f.o.Target, "whom faults are aimed at: holder, leader, random, majority, minority, all, or a name (n1, w2); a fault that knows no such target takes its own choice")
	fl.DurationVar(&f.o.Interval, "interval", f.o.Interval, "mean time between faults")
	fl.IntVar(&f.o.AtOnce, "at-once", f.o.AtOnce, "faults at a time, of different kinds of things (workers, servers, network, links)")
	fl.DurationVar(&f.o.Duration, "duration", f.o.Duration, "of the workload")
	fl.DurationVar(&f.o.Hold, "hold", f.o.Hold, "mean time in the section")
	fl.DurationVar(&f.o.Wait, "wait", f.o.Wait, "how long a lock is tried for")
	fl.Float64Var(&f.o.Rate, "rate", 0, "orders a second over all workers; 0 for as many as go")
	fl.BoolVar(&f.o.Stop, "stop-on-violation", false, "end at the first violation of a required property")
	fl.StringVar(&f.plan, "plan", "", "file with the plan of faults, as an earlier run saved it")
}

func (a *app) runCommand() *cobra.Command {
	f := &runFlags{}
	c := &cobra.Command{
		Use:   "run",
		Short: "One experiment: workers, a lock, faults, a verdict",
		Args:  cobra.NoArgs,
		Example: `  lockcheck run
  lockcheck run --backend zookeeper --nemesis pause,kill --duration 60s
  lockcheck run --backend redis --client redis/set-nx-incr --store none --nemesis pause --stop-on-violation
  lockcheck run --from store/latest
  lockcheck run --backend redis --client-cmd "python3 mylock.py"`,
		RunE: func(c *cobra.Command, _ []string) error { return a.experiment(c, f) },
	}
	f.add(c)
	f.addWorkload(c)
	return c
}

func (a *app) scenarioCommand() *cobra.Command {
	f := &runFlags{}
	c := &cobra.Command{
		Use:   "scenario NAME",
		Short: "A scripted, exactly timed story",
		Long: `Tells a story, or one of the public reports D1 to D12 (docs/reports.md): those
play their failing form and the twin without the mistake, in several variations,
and exit with 0 if every row came out as theory says, rows with violations
included, with 1 if one did not, and with 2 if a row had to be skipped.
'lockcheck list scenarios' shows them all.`,
		Example: `  lockcheck scenario gc-pause --backend etcd --store none
  lockcheck scenario gc-pause --backend redis --client redis/set-nx-incr --store monotonic
  lockcheck scenario D2
  lockcheck scenario watch-without-multi --seed 7`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("scenario takes one name; 'lockcheck list scenarios' shows them"))
			}
			if _, ok := scenario.FindReport(args[0]); ok {
				return nil
			}
			_, err := scenario.Find(args[0])
			return usage(err)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if r, ok := scenario.FindReport(args[0]); ok {
				return a.publicReport(c, f, r)
			}
			f.o.Scenario = args[0]
			return a.experiment(c, f)
		},
	}
	for _, s := range scenario.All {
		c.ValidArgs = append(c.ValidArgs, s.Name)
	}
	for _, r := range scenario.Reports {
		c.ValidArgs = append(c.ValidArgs, r.Number, r.Name)
	}
	f.add(c)
	return c
}

// settle turns flags into options.
func (f *runFlags) settle(c *cobra.Command) error {
	if f.clientCmd != "" {
		words, err := shellwords.Parse(f.clientCmd)
		if err != nil || len(words) == 0 {
			return usage(fmt.Errorf("client-cmd %q is no command line: %v", f.clientCmd, err))
		}
		f.o.ClientCmd = words
	}
	if f.from != "" {
		if err := f.again(c); err != nil {
			return usage(err)
		}
	}
	if s, err := scenario.Find(f.o.Scenario); err == nil && len(s.Backends) > 0 && f.from == "" && !c.Flags().Changed("backend") && !slices.Contains(s.Backends, f.o.Backend) {
		f.o.Backend = s.Backends[0] // the story cannot be told on the usual one
	}
	if c.Flags().Changed("store") || f.from == "" {
		p, err := fencedstore.ParsePolicy(f.store)
		if err != nil {
			return usage(err)
		}
		f.o.Store = p
	}
	if c.Flags().Changed("renew") {
		f.o.Renew = &f.renew
	}
	f.drawSeed(c)
	if f.plan != "" {
		p, err := readPlan(f.plan)
		if err != nil {
			return usage(err)
		}
		f.o.Plan = p.Steps
	}
	f.settleExternal()
	return usage(f.o.Settle())
}

// settleExternal turns the flags of an external cluster into its configuration.
func (f *runFlags) settleExternal() {
	if f.o.Provider != experiment.ProviderExternal {
		return
	}
	f.o.External = &external.Config{IsATestCluster: f.testCluster}
	for _, e := range f.endpoints {
		name, addr, named := strings.Cut(e, "=")
		if !named {
			name, addr = "", e
		}
		f.o.External.Nodes = append(f.o.External.Nodes, external.Node{Name: name, Endpoint: addr})
	}
}

// drawSeed takes the seed that was given, or draws one.
func (f *runFlags) drawSeed(c *cobra.Command) {
	switch {
	case c.Flags().Changed("seed"):
		f.o.Seed = f.seed
	case f.from == "":
		f.o.Seed = rand.Uint64N(1 << 32)
	}
}

func readPlan(file string) (nemesis.PlanFile, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nemesis.PlanFile{}, fmt.Errorf("plan: %w", err)
	}
	p, err := nemesis.ReadPlan(b)
	if err != nil {
		return p, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// again takes the parameters and the plan of an earlier run. Flags that were
// given win over them.
func (f *runFlags) again(c *cobra.Command) error {
	o, err := experiment.ReadOptions(filepath.Join(f.from, "test.json"))
	if err != nil {
		return err
	}
	given := f.o
	f.o = o
	f.o.Out = given.Out
	if given.Scenario != o.Scenario {
		return fmt.Errorf("%s is no run of that kind: its scenario is %q", f.from, o.Scenario)
	}
	for name, take := range map[string]func(){
		"backend": func() { f.o.Backend, f.o.Client, f.o.Renew = given.Backend, given.Client, nil },
		"client":  func() { f.o.Client, f.o.Renew = given.Client, nil }, "client-cmd": func() { f.o.ClientCmd = given.ClientCmd },
		"ttl": func() { f.o.TTL = given.TTL }, "require": func() { f.o.Require = given.Require },
		"retry-delay": func() { f.o.RetryDelay = given.RetryDelay }, "provider": func() { f.o.Provider = given.Provider }, "external": func() { f.o.ExternalFile = given.ExternalFile }, "image": func() { f.o.Image = given.Image }, "persistence": func() { f.o.Persistence = given.Persistence },
		"on-suspended": func() { f.o.OnSuspended = given.OnSuspended }, "network": func() { f.o.Network = given.Network },
		"proxy": func() { f.o.Proxy = given.Proxy }, "workers": func() { f.o.Workers = given.Workers }, "keys": func() { f.o.Keys = given.Keys },
		"nemesis": func() { f.o.Nemesis = given.Nemesis }, "target": func() { f.o.Target = given.Target },
		"interval": func() { f.o.Interval = given.Interval }, "at-once": func() { f.o.AtOnce = given.AtOnce }, "duration": func() { f.o.Duration = given.Duration },
		"hold": func() { f.o.Hold = given.Hold }, "wait": func() { f.o.Wait = given.Wait }, "rate": func() { f.o.Rate = given.Rate },
		"stop-on-violation": func() { f.o.Stop = given.Stop },
	} {
		if c.Flags().Changed(name) {
			take()
		}
	}
	// The saved plan is the one that was carried out; it is drawn anew only if
	// what it was drawn from has changed.
	for _, drawn := range []string{"seed", "nemesis", "target", "interval", "at-once", "duration", "ttl", "backend", "persistence", "workers"} {
		if c.Flags().Changed(drawn) {
			return nil
		}
	}
	if f.o.Scenario != "" {
		return nil
	}
	p, err := readPlan(filepath.Join(f.from, "plan.json"))
	f.o.Plan = p.Steps
	return err
}

// experiment is run and scenario.
func (a *app) experiment(c *cobra.Command, f *runFlags) error {
	if err := f.settle(c); err != nil {
		return err
	}
	if f.o.Provider == experiment.ProviderDocker {
		if err := docker.Available(c.Context()); err != nil {
			return a.skipped(f, err)
		}
	} else if f.o.Provider == experiment.ProviderLocal {
		if _, err := local.Find(f.o.Backend); err != nil {
			return a.skipped(f, err)
		}
	}
	if err := f.o.Missing(); err != nil {
		return a.skipped(f, err)
	}
	if left, err := a.enterLab(c.Context(), &f.o); left || err != nil {
		return err
	}
	if err := f.o.PossibleHere(); err != nil {
		return usage(err)
	}
	live := &liveLine{w: a.err}
	if f.o.Scenario == "" {
		live.limit = f.o.Duration
	}
	m := a.machine()
	m.Live = live.show
	m.Planned = a.printPlan
	m.Begun = func(dir string) { a.say(f, "seed %d  %s\n", f.o.Seed, dir) }
	res, err := experiment.Run(c.Context(), f.o, m)
	live.clear()
	if err != nil && res.Properties == nil {
		return exit{exitFailed, err}
	}
	if err != nil {
		fmt.Fprintf(a.err, "lockcheck: %v\n", err)
	}
	if f.json {
		if jerr := printJSON(a.out, res); jerr != nil {
			return jerr
		}
	} else {
		a.printRun(f, res)
	}
	code := codeOf(res.Verdict)
	if serr := f.summarize(res); serr != nil {
		err = errors.Join(err, serr)
		fmt.Fprintf(a.err, "lockcheck: %v\n", serr)
	}
	if err != nil {
		code = worse(code, exitFailed)
	}
	return ended(code, nil)
}

// summarize adds what a run came to to the summary file, if there is to be one.
func (f *runFlags) summarize(res experiment.Result) error {
	if f.summary == "" {
		return nil
	}
	what := strings.Join(f.o.Nemesis, ", ")
	switch {
	case f.o.Scenario != "":
		what = "scenario " + f.o.Scenario
	case what == "":
		what = "no faults"
	}
	s := report.RunSummary{
		Title: fmt.Sprintf("%s on %s, %s, store %s", res.Client, res.Backend, what, res.Store), Seed: res.Seed, Dir: res.Dir, Again: f.command(res),
	}
	if av := res.Availability; av != nil && av.Available != nil {
		s.Available = fmt.Sprintf("%.1f %%", 100**av.Available)
	}
	return report.AppendFile(f.summary, func(w io.Writer) error { return report.Summary(w, &res.Results, s) })
}

// planShown is how many steps of a plan are printed.
const planShown = 20

// printPlan says what is going to be broken, before it is.
func (a *app) printPlan(steps []nemesis.Step) {
	for _, s := range steps[:min(planShown, len(steps))] {
		fmt.Fprintf(a.err, "plan: %v\n", s)
	}
	if more := len(steps) - planShown; more > 0 {
		fmt.Fprintf(a.err, "plan: and %d more, in plan.json\n", more)
	}
}

// say prints a line for people: on standard output, or on standard error where
// that is for JSON.
func (a *app) say(f *runFlags, format string, args ...any) {
	w := a.out
	if f.json {
		w = a.err
	}
	fmt.Fprintf(w, format, args...)
}

// skipped reports a backend that cannot run here: never a pass.
func (a *app) skipped(f *runFlags, err error) error {
	if f.json {
		if jerr := printJSON(a.out, map[string]any{"verdict": "unknown", "reasons": []string{err.Error()}, "backend": f.o.Backend}); jerr != nil {
			return jerr
		}
	} else {
		fmt.Fprintf(a.out, "backend %s was skipped: %v\nverdict: unknown\n", f.o.Backend, err)
	}
	return exit{code: exitUnknown}
}

// enterLab carries the rest of this command out in the lab, if the network is
// to be one and this process is not in it yet. left means that it was carried
// out there.
func (a *app) enterLab(ctx context.Context, o *experiment.Options) (left bool, err error) {
	if local.Inside() || o.Provider != experiment.ProviderLocal {
		return false, nil
	}
	network, reason, err := local.Choose(ctx, o.Network)
	if err != nil {
		return false, exit{exitFailed, err}
	}
	if network == local.NetworkLoopback {
		if reason != nil {
			o.NetworkNote = reason.Error()
			fmt.Fprintf(a.err, "lockcheck: %v\nlockcheck: going on with --network loopback\n", reason)
		}
		return false, nil
	}
	code, err := local.Enter()
	if err != nil {
		return true, exit{exitFailed, err}
	}
	return true, ended(code, nil)
}

// machine is what every run of this process uses.
func (a *app) machine() experiment.Machine {
	return experiment.Machine{
		Worker:   func(*experiment.Options) *exec.Cmd { return ownWorker() },
		Guardian: ownGuardian,
		Log:      slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// printRun prints the end of a run, with the strip of its first anomaly.
func (a *app) printRun(f *runFlags, res experiment.Result) {
	color := colour(a.out)
	fmt.Fprintf(a.out, "servers ready after %v on the %s network; %d events in %v\n", res.Ready.Round(time.Millisecond), res.Network, res.Events, res.Lasted.Round(time.Millisecond))
	if res.Theory != "" {
		fmt.Fprintf(a.out, "theory: %s\n", res.Theory)
	}
	if _, an := res.First(); an != nil {
		a.strip(res, color)
	}
	report.Results(a.out, &res.Results, report.TextOptions{Color: color, Width: width(a.out), Paths: paths(res.Dir), Again: f.command(res)})
}

// paths says where to look further: the report if it could be drawn, and the run
// directory.
func paths(dir string) []string {
	page := filepath.Join(dir, report.PageFile)
	if _, err := os.Stat(page); err != nil {
		return []string{dir}
	}
	return []string{page, dir}
}

// strip draws the first anomaly from the saved history.
func (a *app) strip(res experiment.Result, color bool) {
	ops, err := readHistory(res)
	if err == nil {
		_, an := res.First()
		err = report.Strip(a.out, ops, *an, report.StripOptions{Width: width(a.out), Color: color})
	}
	if err != nil {
		fmt.Fprintf(a.err, "lockcheck: no timeline: %v\n", err)
	}
}

// readHistory reads what a run has saved.
func readHistory(res experiment.Result) ([]history.Op, error) {
	file, err := os.Open(filepath.Join(res.Dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	ops, _, err := history.ReadAll(file, file.Name())
	return ops, err
}

// command is the command line that runs this again.
func (f *runFlags) command(res experiment.Result) []string {
	if f.o.Scenario != "" {
		return []string{"lockcheck", "scenario", f.o.Scenario, "--from", res.Dir}
	}
	return []string{"lockcheck", "run", "--from", res.Dir}
}
