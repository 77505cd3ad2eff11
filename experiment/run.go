package experiment

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/clients/remains"
	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/docker"
	"github.com/lockcheck/lockcheck/cluster/external"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/generator"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/report"
	"github.com/lockcheck/lockcheck/runner"
	"github.com/lockcheck/lockcheck/scenario"
)

// A Result is what a run came to; it is what results.json holds.
type Result struct {
	checker.Results
	Backend  string        `json:"backend"`
	Client   string        `json:"client"`
	Store    string        `json:"store"`
	Scenario string        `json:"scenario,omitempty"`
	Theory   string        `json:"theory,omitempty"` // of a scenario: "as expected", or what is not
	Seed     uint64        `json:"seed"`
	Network  string        `json:"network"` // lab, loopback or docker
	Dir      string        `json:"dir"`
	Ready    time.Duration `json:"ready_ns"`    // from the start of the command to the servers' first answer
	Lasted   time.Duration `json:"lasted_ns"`   // of the workload
	Events   int           `json:"events"`      // in the history
	Peak     uint64        `json:"memory_peak"` // of lockcheck itself, bytes; 0 where it is not known
}

// closeWithin bounds the end of a cluster.
const closeWithin = 20 * time.Second

// run is one experiment under way.
type run struct {
	o   Options
	m   Machine
	dir *report.Dir
	log *slog.Logger

	undoing sync.Mutex // workers that are replaced file their logs at any time
	undo    []func() error

	cluster cluster.Cluster
	lab     *local.Cluster    // the same, with what faults are made of
	joined  *external.Cluster // the same, where lab is nil
	network string
	rec     *history.Recorder
	judge   *liveJudge
	doubts  doubts
	runner  *runner.Runner
	plan    []nemesis.Step
	begun   time.Time
	res     Result

	recording time.Time // the beginning of the history
}

// Run carries out one experiment. The options must be settled. The error is for
// what kept the run from being carried out; the result then holds what there is.
func Run(ctx context.Context, o Options, m Machine) (res Result, err error) {
	dir, err := report.Create(o.Out, o.name(), time.Now())
	if err != nil {
		return Result{}, err
	}
	r := &run{o: o, m: m, dir: dir, res: Result{Backend: o.Backend, Client: o.Client, Store: string(o.Store), Scenario: o.Scenario, Seed: o.Seed, Dir: dir.Path}}
	if m.Begun != nil {
		m.Begun(dir.Path)
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.openLog(); err != nil {
		return r.res, err
	}
	if err := r.stand(ctx); err != nil {
		r.log.Error("start", "error", err)
		return r.res, err
	}
	story := r.play(ctx)
	if story != nil {
		r.log.Error("run", "error", story)
	}
	return r.res, r.conclude(ctx, story)
}

// later files what the end of the run has to do, last first.
func (r *run) later(f func() error) {
	r.undoing.Lock()
	defer r.undoing.Unlock()
	r.undo = append(r.undo, f)
}

// takeUndo gives what was filed last; nil when nothing is left.
func (r *run) takeUndo() func() error {
	r.undoing.Lock()
	defer r.undoing.Unlock()
	n := len(r.undo)
	if n == 0 {
		return nil
	}
	f := r.undo[n-1]
	r.undo = r.undo[:n-1]
	return f
}

func (r *run) close() error {
	var errs []error
	for f := r.takeUndo(); f != nil; f = r.takeUndo() {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func (r *run) openLog() error {
	f, err := os.Create(filepath.Join(r.dir.Path, "lockcheck.log"))
	if err != nil {
		return fmt.Errorf("log of the run: %w", err)
	}
	r.later(f.Close)
	r.log = slog.New(slog.NewTextHandler(f, nil))
	return nil
}

// stand brings up the servers, the store, the recorder and the workers.
func (r *run) stand(ctx context.Context) error {
	if err := r.startCluster(ctx); err != nil {
		return err
	}
	r.res.Ready, r.res.Network = r.cluster.Timing().Ready, r.network
	r.plan = r.draw()
	if r.m.Planned != nil {
		r.m.Planned(r.plan)
	}
	if err := r.writeParameters(); err != nil {
		return err
	}
	if err := r.startRecorder(); err != nil {
		return err
	}
	if err := r.startRunner(); err != nil {
		return err
	}
	return r.runner.Start(ctx)
}

func (r *run) startCluster(ctx context.Context) error {
	spec := cluster.Spec{Backend: r.o.Backend, Persistence: r.o.Persistence, Workers: r.o.Workers, Dir: r.dir.Path, Proxy: r.o.proxied(), Clocks: r.o.clocks(), SessionMax: max(r.o.TTL, time.Minute)}
	if r.o.Provider == ProviderExternal {
		return r.joinCluster(ctx, spec)
	}
	var c *local.Cluster
	var err error
	r.network = local.NetworkLoopback
	if r.o.Provider == ProviderDocker {
		r.network = docker.Name
		c, err = docker.Start(ctx, spec, docker.Options{Image: r.o.Image, Guardian: r.m.Guardian})
	} else if local.Inside() {
		r.network = local.NetworkLab
		c, err = local.Lab(ctx, spec)
	} else {
		spec.Proxy = true // the listeners are the workers' endpoints there
		c, err = local.Loopback(ctx, spec)
	}
	if err != nil {
		return err
	}
	r.cluster, r.lab = c, c
	r.later(func() error {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		return c.Close(cctx)
	})
	r.log.Info("servers ready", "backend", r.o.Backend, "network", r.network, "after", c.Timing().Ready)
	return nil
}

// joinCluster takes servers that exist.
func (r *run) joinCluster(ctx context.Context, spec cluster.Spec) error {
	c, err := external.Start(ctx, r.o.External, spec)
	if err != nil {
		return err
	}
	r.cluster, r.joined, r.network = c, c, external.Name
	r.later(func() error {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		return c.Close(cctx)
	})
	return nil
}

// leader asks the servers who leads.
func (r *run) leader(ctx context.Context) (string, error) {
	if r.lab == nil {
		return r.joined.Leader(ctx)
	}
	return r.lab.Leader(ctx)
}

// draw gives the plan: the one that was handed over, or one from the seed.
func (r *run) draw() []nemesis.Step {
	if len(r.o.Plan) > 0 {
		return r.o.Plan
	}
	return nemesis.Plan(generator.Stream(r.o.Seed, generator.StreamNemesis), nemesis.Config{
		Faults: r.o.Nemesis, Target: r.o.Target, Interval: r.o.Interval, Duration: r.o.Duration,
		Quiet: r.o.quiet(), TTL: r.o.TTL, AtOnce: r.o.AtOnce, Setting: r.o.setting(r.cuts()),
	})
}

// quiet is the time without faults at the end of a run, in which a stuck lock
// would show.
func (o *Options) quiet() time.Duration { return min(max(5*o.TTL, 3*time.Second), o.Duration/2) }

// parameters is what test.json holds.
type parameters struct {
	Options  Options           `json:"options"`
	Version  string            `json:"version"`
	Started  time.Time         `json:"started"`
	Network  string            `json:"network"`
	Proxied  bool              `json:"proxied"`
	Versions map[string]string `json:"versions"`
	Machine  machine           `json:"machine"`
}

type machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
	UID  int    `json:"uid"`
}

func (r *run) writeParameters() error {
	err := r.dir.WriteJSON("test.json", parameters{
		Options: r.o, Version: Version(), Started: time.Now().UTC(), Network: r.network, Proxied: r.cluster.Proxies() != nil,
		Versions: r.cluster.Versions(),
		Machine:  machine{runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), os.Getuid()},
	})
	steps := r.plan
	if steps == nil {
		steps = []nemesis.Step{}
	}
	return errors.Join(err, r.dir.WriteJSON("plan.json", nemesis.PlanFile{Seed: r.o.Seed, Steps: steps}))
}

func (r *run) startRecorder() error {
	f, err := os.Create(filepath.Join(r.dir.Path, "history.jsonl"))
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	r.later(f.Close)
	params, err := json.Marshal(r.o)
	if err != nil {
		return err
	}
	h := history.Header{Require: r.o.Require, TTL: r.o.TTL.Nanoseconds(), Params: params}
	r.judge = newLiveJudge(h, nil)
	r.recording = time.Now()
	r.rec, err = history.NewRecorder(f, h, r.recording, r.judge.add, r.doubts.add)
	if err != nil {
		return err
	}
	r.later(func() error { r.rec.Close(); return nil }) // its error has been told by then
	return nil
}

func (r *run) startRunner() error {
	set := wire.Setup{
		Backend: r.o.Backend, Client: r.o.Client, Master: cluster.MasterName,
		TTL: r.o.TTL.Nanoseconds(), RetryDelay: r.o.RetryDelay.Nanoseconds(), Seed: r.o.Seed,
		Renew: r.o.Renew != nil && *r.o.Renew, NodeTimeout: r.o.NodeTimeout.Nanoseconds(),
	}
	if r.joined != nil {
		set.Access, set.Prefix, set.Master = r.joined.Access(), r.joined.Prefix(), r.joined.Master()
	}
	if s, err := scenario.Find(r.o.Scenario); err == nil {
		set.Options = s.Options
	}
	command, err := r.command()
	if err != nil {
		return err
	}
	r.runner = runner.New(runner.Config{
		Place: r.place(), Workers: r.o.Workers, Setup: set, OpTimeout: r.o.opTimeout(), OnSuspended: r.o.OnSuspended,
		System: r.system(), Recorder: r.rec, Log: r.log,
		Command: func(int) *exec.Cmd {
			if len(command) > 0 {
				return exec.Command(command[0], command[1:]...)
			}
			return r.m.Worker(&r.o)
		},
		Stderr: r.stderr, Over: r.look,
	})
	ln, err := r.cluster.ListenStore()
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: fencedstore.New(r.o.Store, r.runner.RecordStore), ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelWarn)}
	go r.serve(srv, ln)
	r.later(srv.Close)
	r.later(func() error { r.runner.Close(); return nil })
	return nil
}

// command is what starts a worker that is a program of its own; nil if
// lockcheck's own worker has the lock.
func (r *run) command() ([]string, error) {
	if len(r.o.ClientCmd) > 0 {
		return r.o.ClientCmd, nil
	}
	p, ok := catalog.Foreigner(r.o.Client)
	if !ok {
		program, err := r.o.program()
		if err != nil || program == "" {
			return nil, err
		}
		return []string{program}, nil
	}
	command, err := p.Command(filepath.Join(r.dir.Path, "adapters"))
	if err != nil {
		return nil, fmt.Errorf("client %s cannot run here: %w", r.o.Client, err)
	}
	return command, nil
}

func (r *run) serve(srv *http.Server, ln net.Listener) {
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		r.log.Error("fenced store", "error", err)
	}
}

// stderr gives the file for what a worker says on its standard error.
func (r *run) stderr(worker int) io.Writer {
	f, err := os.OpenFile(filepath.Join(r.dir.Path, "nodes", fmt.Sprintf("worker-%d.log", worker)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		r.log.Warn("log of a worker", "worker", worker, "error", err)
		return io.Discard
	}
	r.later(f.Close)
	return f
}

// play runs the scenario or the workload with the nemesis, and reports on it as
// it goes.
func (r *run) play(ctx context.Context) error {
	pctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r.begun = time.Now()
	ended := make(chan error, 1)
	go guard.Wrap(func() { ended <- r.perform(pctx) })()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			r.res.Lasted = time.Since(r.begun)
			return err
		case <-tick.C:
			r.tell("")
			if err := r.rec.Err(); err != nil {
				stop(err)
			}
			if r.o.Stop && r.judge.found.Load() > 0 {
				stop(errViolation)
			}
		}
	}
}

var errViolation = errors.New("stopped at the first violation")

func (r *run) tell(phase string) {
	if r.m.Live != nil {
		r.m.Live(Live{Elapsed: time.Since(r.begun), Status: r.runner.Status(), Anomalies: int(r.judge.found.Load()), Phase: phase})
	}
}

func (r *run) perform(ctx context.Context) error {
	if r.o.Scenario != "" {
		s, err := scenario.Find(r.o.Scenario)
		if err != nil {
			return err
		}
		stage := &scenario.Stage{
			Runner: r.runner, Setting: r.o.setting(r.cuts()), Leader: r.leader,
			Key: cmp.Or(r.o.Key, scenario.Key), TTL: r.o.TTL, Retry: r.o.RetryDelay, Look: r.look, Rand: generator.Stream(r.o.Seed, generator.StreamScenario),
		}
		if err := stage.Tell(ctx, s); err != nil {
			return fmt.Errorf("scenario %s could not be played to its end: %w", s.Name, err)
		}
		return nil
	}
	cfg, err := r.workload()
	if err != nil {
		return err
	}
	healed := make(chan struct{})
	go guard.Wrap(func() {
		defer close(healed)
		r.runner.Nemesis(ctx, r.plan, r.o.Duration-r.o.quiet())
	})()
	r.runner.Workload(ctx, r.o.Seed, cfg, r.o.Duration)
	<-healed
	return context.Cause(ctx)
}

// longHolds is the share of long holds in a run with faults: about half of the
// time somebody is then in one.
const longHolds = 0.01

// lookWithin bounds the look at what stands for a lock.
const lookWithin = 2 * time.Second

// look asks the servers what stands for locks that are in doubt and records it. It
// is for the words of a finding, so it costs no verdict.
func (r *run) look(ctx context.Context) {
	keys := r.doubts.keys(time.Since(r.recording).Nanoseconds())
	if r.lab == nil || len(keys) == 0 {
		return // servers that are not ours are asked nothing beyond what the locks ask
	}
	lctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
	defer cancel()
	standings, err := remains.Of(lctx, r.o.Backend, keys, r.lab.Servers())
	if err != nil {
		r.log.Warn("look at the servers", "error", err)
	}
	if len(standings) == 0 {
		return
	}
	o, err := history.StandingsEvent(standings)
	if err != nil {
		r.log.Warn("what stands for the locks", "error", err)
		return
	}
	r.rec.Append(o)
}

func (r *run) workload() (generator.Config, error) {
	keys, err := generator.ParseKeys(r.o.Keys)
	if err != nil {
		return generator.Config{}, err
	}
	e, err := catalog.Find(r.o.Client)
	waits := err != nil || e.Waits // a foreign program may wait inside; a refused order is then given up
	long := 0.0
	if len(r.plan) > 0 {
		long = longHolds
	}
	return generator.Config{
		LongHolds: long, Workers: r.o.Workers, Keys: keys, TTL: r.o.TTL, Hold: r.o.Hold, Think: r.o.Hold / 2, RetryDelay: r.o.RetryDelay,
		Wait: r.o.Wait, Writes: writesInSection, Rate: r.o.Rate, CanWait: waits,
	}, nil
}

// conclude ends the workers and the recording, judges, and writes the results.
// The history is complete before the judgement, whatever that comes to.
func (r *run) conclude(ctx context.Context, story error) error {
	r.tell("judging")
	whole := r.whole(ctx)
	r.runner.Close()
	recErr := r.rec.Close()
	r.res.Events = r.rec.Len()
	res, err := r.judge.finish(context.WithoutCancel(ctx))
	if err != nil {
		res = checker.Unjudged(err)
	}
	for _, e := range []error{story, recErr, r.runner.Unhealed(), whole} {
		if e != nil && !errors.Is(e, errViolation) {
			res.Reasons = append(res.Reasons, reason(e))
		}
	}
	for _, f := range r.o.Nemesis {
		f, _, _ := strings.Cut(f, ":")
		if res.Exposure.Faults[f] == 0 && !slices.Contains(res.Reasons, checker.NeverInForce(f)) {
			res.Reasons = append(res.Reasons, checker.NeverInForce(f))
		}
	}
	res.Require(r.o.Require)
	r.res.Results = res
	r.res.Theory = theory(&r.o, &res)
	r.res.Peak = memoryPeak()
	werr := r.dir.WriteJSON("results.json", r.res)
	if err := r.writeJUnit(&res); err != nil {
		r.log.Error("junit.xml", "error", err)
	}
	if err := r.drawLinear(&res); err != nil { // a drawing never costs the verdict
		r.log.Error("linear.html", "error", err)
	}
	if werr == nil {
		for _, err := range report.Draw(context.WithoutCancel(ctx), r.dir.Path) {
			r.log.Error("draw", "error", err)
		}
	}
	r.dir.Finish()
	return errors.Join(recErr, werr)
}

// wholeWithin bounds the look at the lab after a run.
const wholeWithin = 5 * time.Second

// whole says what the faults have left behind.
func (r *run) whole(ctx context.Context) error {
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wholeWithin)
	defer cancel()
	whole := r.cluster.(interface{ Whole(context.Context) error })
	if err := whole.Whole(wctx); err != nil {
		return fmt.Errorf("the lab was not whole after the run: %w", err)
	}
	return nil
}

// drawLinear writes the page of what has no linearization, if anything has none.
func (r *run) drawLinear(res *checker.Results) error {
	var page bytes.Buffer
	found, err := res.WriteLinear(&page)
	if err != nil || !found {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir.Path, "linear.html"), page.Bytes(), 0o644)
}

// writeJUnit writes the judgement for CI systems.
func (r *run) writeJUnit(res *checker.Results) error {
	s := report.Suite{
		Name: r.o.name(), Package: r.o.Backend, Seconds: r.res.Lasted.Seconds(), Cases: report.Cases(res),
		Props: [][2]string{
			{"backend", r.o.Backend}, {"client", r.o.Client}, {"store", string(r.o.Store)}, {"seed", fmt.Sprint(r.o.Seed)},
			{"faults", strings.Join(r.o.Nemesis, ",")}, {"scenario", r.o.Scenario}, {"dir", r.dir.Path},
		},
	}
	return report.WriteFile(filepath.Join(r.dir.Path, "junit.xml"), func(w io.Writer) error { return report.JUnit(w, []report.Suite{s}) })
}

// reason says an error as the reason for a verdict of unknown.
func reason(err error) string {
	if errors.Is(err, context.Canceled) {
		return "the run was interrupted"
	}
	return err.Error()
}
