package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/report"
)

// need ends a test of a backend whose servers are not installed: what was not tried
// has not passed.
func need(t *testing.T, backend string) {
	t.Helper()
	if _, err := local.Find(backend); err != nil {
		t.Fatal(err)
	}
}

// A bench is a run that stands, with workers that contend until it ends.
type bench struct {
	*run
	t    *testing.T
	stop context.CancelFunc
	work sync.WaitGroup
}

func newBench(t *testing.T, o Options) *bench {
	t.Helper()
	need(t, o.Backend)
	if err := o.Settle(); err != nil {
		t.Fatal(err)
	}
	dir, err := report.Create(o.Out, o.name(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, run: &run{o: o, m: testMachine(), dir: dir, begun: time.Now()}}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(b.openLog(), b.stand(t.Context())); err != nil {
		t.Fatal(err)
	}
	cfg, err := b.workload()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	b.stop = stop
	b.work.Go(func() { b.runner.Workload(ctx, o.Seed, cfg, time.Hour) })
	return b
}

// finish ends the run and gives its history and what it came to.
func (b *bench) finish() ([]history.Op, *checker.Results) {
	b.t.Helper()
	b.stop()
	b.work.Wait()
	if err := b.conclude(b.t.Context(), nil); err != nil {
		b.t.Fatal(err)
	}
	return readHistory(b.t, b.dir.Path), &b.res.Results
}

func readHistory(t *testing.T, dir string) []history.Op {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ops, _, err := history.ReadAll(f, f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// phases gives what the history says of each fault, in the order of its number:
// its name and the phases it went through.
func phases(ops []history.Op) []string {
	var out []string
	for i := range ops {
		if ops[i].Process != history.Nemesis {
			continue
		}
		f, _ := history.FaultOf(&ops[i])
		for len(out) < f.Fault {
			out = append(out, ops[i].F)
		}
		out[f.Fault-1] += " " + f.Phase
		if f.Phase == history.Done && len(f.Evidence) == 0 {
			out[f.Fault-1] += " without evidence"
		}
	}
	return out
}

// toEvidence gives the time from injection to evidence of each fault.
func toEvidence(ops []history.Op) []time.Duration {
	var out []time.Duration
	asked := map[int]int64{}
	for i := range ops {
		f, _ := history.FaultOf(&ops[i])
		switch {
		case ops[i].Process != history.Nemesis:
		case f.Phase == history.Asked:
			asked[f.Fault] = ops[i].Time
		case f.Phase == history.Done:
			out = append(out, time.Duration(ops[i].Time-asked[f.Fault]))
		}
	}
	return out
}

// inject puts a step in force, heals it and wants the lab to be whole again.
func (b *bench) inject(s nemesis.Step) {
	b.t.Helper()
	if err := s.Check(b.o.setting(true)); err != nil {
		b.t.Fatal(err)
	}
	in := b.runner.Inject(b.t.Context(), s)
	if in.Err != nil {
		b.t.Fatalf("%v: %v", s, in.Err)
	}
	b.t.Logf("%s %s: %.150s", b.o.Backend, s, fmt.Sprint(in.Evidence))
	in.Heal(b.t.Context())
	in.Heal(b.t.Context())
	if err := errors.Join(b.runner.Unhealed(), b.whole(b.t.Context())); err != nil {
		b.t.Fatalf("after %v: %v", s, err)
	}
}

func onLinks() []nemesis.Step {
	return []nemesis.Step{
		{Fault: "client-cut", Target: nemesis.Holder, Links: nemesis.EveryNode, Way: nemesis.Both},
		{Fault: "client-cut", Target: "w1", Links: nemesis.EveryNode, Way: nemesis.Replies},
		{Fault: "late", Target: nemesis.Holder, Links: nemesis.All, Way: nemesis.Both},
		{Fault: "slow", Target: nemesis.Random, Links: nemesis.All, Way: nemesis.Both, Latency: 20 * time.Millisecond},
		{Fault: "jitter", Target: nemesis.Random, Links: nemesis.EveryNode, Latency: 10 * time.Millisecond, Jitter: 10 * time.Millisecond},
		{Fault: "bandwidth", Target: nemesis.Minority, Links: nemesis.All, Rate: 1},
		{Fault: "slicer", Target: nemesis.Majority, Links: nemesis.EveryNode, Slice: 2, Latency: time.Millisecond},
		{Fault: "reset", Target: nemesis.Holder, Links: nemesis.EveryNode},
		{Fault: "down", Target: nemesis.All, Links: nemesis.EveryNode},
		{Fault: "down", Target: nemesis.Holder, Links: nemesis.Store},
	}
}

func partitions() []nemesis.Step {
	var ss []nemesis.Step
	for i, form := range []string{nemesis.One, nemesis.Alone, nemesis.Halves, nemesis.Ring, nemesis.Bridge} {
		s := nemesis.Step{Fault: "partition", Form: form, Target: nemesis.All, Pick: uint64(i), Way: []string{nemesis.Both, nemesis.In, nemesis.Out}[i%3]}
		switch form {
		case nemesis.One:
			s.Target = "n2"
		case nemesis.Alone:
			s.Target = nemesis.Leader
		}
		ss = append(ss, s)
	}
	return ss
}

func failovers(forms ...string) []nemesis.Step {
	var ss []nemesis.Step
	for _, f := range forms {
		ss = append(ss, nemesis.Step{Fault: "failover", Form: f, Target: nemesis.Leader})
	}
	return ss
}

// Every fault on real servers of every kind: in force with evidence, healed, and
// afterwards the lab is as it was and the lock is handed on.
func TestFaults(t *testing.T) {
	t.Parallel()
	on := func(ss ...[]nemesis.Step) []nemesis.Step { return slices.Concat(ss...) }
	server := func(fault, form, target string) []nemesis.Step {
		return []nemesis.Step{{Fault: fault, Form: form, Target: target, Pick: 1}}
	}
	for backend, steps := range map[string][]nemesis.Step{
		cluster.Redis: on(server("pause", "", nemesis.Holder), server("kill", "", nemesis.Holder), onLinks(),
			server("server-pause", "", nemesis.Leader), server("server-kill", nemesis.Lose, nemesis.Leader)),
		cluster.Redlock: on(server("server-pause", "", nemesis.Majority), server("server-kill", nemesis.Lose, nemesis.Minority), onLinks()[:1]),
		cluster.Sentinel: on(partitions(), failovers(nemesis.HandOver, nemesis.LoseKilled, nemesis.LosePaused),
			server("server-kill", nemesis.Lose, "s1")),
		cluster.Etcd: on(partitions(), failovers(nemesis.HandOver, nemesis.LoseKilled, nemesis.LosePaused),
			server("server-kill", nemesis.Keep, nemesis.Majority), server("server-kill", nemesis.Lose, nemesis.Random), onLinks()[:3]),
		cluster.ZooKeeper: on(partitions(), failovers(nemesis.LoseKilled, nemesis.LosePaused),
			server("server-kill", nemesis.Keep, nemesis.All), server("server-kill", nemesis.Lose, nemesis.Random), onLinks()[:3]),
	} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.Backend, o.Workers, o.Proxy = backend, 3, "always"
			b := newBench(t, o)
			for _, s := range steps {
				b.inject(s)
			}
			before := b.runner.Status().Acquires
			for end := time.Now().Add(time.Minute); b.runner.Status().Acquires == before && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			ops, res := b.finish()
			if len(res.Reasons) > 0 || b.runner.Status().Acquires == before {
				t.Errorf("%d acquires before and after the heal of the last fault; %v", before, res.Reasons)
			}
			said := phases(ops)
			if len(said) != len(steps) {
				t.Fatal(said)
			}
			for i, s := range steps {
				if said[i] != s.Fault+" asked done heal-asked healed" {
					t.Errorf("%v: %s", s, said[i])
				}
			}
			for i, took := range toEvidence(ops) {
				t.Logf("%s %s:%s evidence after %v", backend, steps[i].Fault, steps[i].Form, took.Round(100*time.Microsecond))
			}
		})
	}
}

// A fault whose mechanism does nothing on real servers is skipped, leaves
// nothing behind, and the run cannot pass.
func TestFaultsWithoutEffect(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Backend, o.Workers, o.Proxy = cluster.Etcd, 2, "always"
	b := newBench(t, o)
	nothing := func(string) error { return nil }
	leader, err := b.lab.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid, err := b.lab.Pid(leader)
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	node := nemesis.Target{Node: leader, OS: p}
	faults := []nemesis.Fault{
		nemesis.ServerPause{Stop: func(*os.Process) error { return nil }},
		nemesis.ServerKill{Servers: b.lab, Keep: true, Kill: nothing},
		nemesis.Failover{Servers: b.lab, Form: nemesis.HandOver, Act: func(context.Context) error { return nil }},
		nemesis.Partition{Network: packets{b.lab}, Nodes: b.lab.Nodes(), Form: nemesis.One, Way: nemesis.Both, Cut: func(string, ...string) error { return nil }},
	}
	for _, f := range faults {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if in := b.runner.InjectOn(ctx, f, node); in.Err == nil {
			t.Errorf("%s was believed: %v", f.Name(), in.Evidence)
		}
		cancel()
	}
	ops, res := b.finish()
	for i, said := range phases(ops) {
		if said != faults[i].Name()+" asked skipped" {
			t.Error(said)
		}
	}
	if res.Exposure.FaultsSkipped != len(faults) || len(res.Exposure.Faults) > 0 || res.Verdict != checker.Unknown || len(res.Reasons) != len(faults) {
		t.Errorf("%v %v %v", res.Verdict, res.Reasons, res.Exposure)
	}
}

// A run without faults has no evidence of any.
func TestNoFaults(t *testing.T) {
	t.Parallel()
	b := newBench(t, func() Options { o := options(t); o.Workers = 2; return o }())
	ops, res := b.finish()
	if said := phases(ops); len(said) > 0 || len(res.Exposure.Faults) > 0 {
		t.Error(said, res.Exposure.Faults)
	}
}

// Ctrl-C in the middle of each fault heals it, and the run says that it was
// interrupted and nothing else.
func TestInterruptedFaults(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{}, 2)
	for _, e := range nemesis.Faults() {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			gate <- struct{}{}
			defer func() { <-gate }()
			interrupt(t, e)
		})
	}
}

func interrupt(t *testing.T, e nemesis.Entry) {
	o := options(t)
	o.Workers, o.Persistence, o.Backend = 3, "aof", cluster.Redis
	s := nemesis.Step{Fault: e.Name, Target: e.Aims[0], Duration: time.Hour}
	switch e.Name {
	case "partition":
		o.Backend, s.Form = cluster.Etcd, nemesis.Ring
	case "failover":
		o.Backend, s.Form = cluster.Etcd, nemesis.LosePaused
	case "server-kill":
		s.Form = nemesis.Keep
	case "bandwidth":
		s.Rate = 1
	case "slicer":
		s.Slice = 1
	case "slow", "jitter":
		s.Latency = 100 * time.Millisecond
	case "clock-jump":
		s.Form, s.Offset = nemesis.OfServers, time.Minute
	case "clock-drift":
		s.Form, s.Drift = nemesis.OfServers, 100_000
	case "clock-strobe":
		s.Form, s.Offset, s.Period = nemesis.OfServers, -time.Second, 10*time.Millisecond
	}
	if e.Acts == nemesis.OnLinks {
		s.Links = nemesis.EveryNode
	}
	need(t, o.Backend)
	o.Plan = []nemesis.Step{s}
	if err := o.Settle(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := testMachine()
	m.Live = func(l Live) {
		if len(l.Status.Faults) > 0 {
			cancel()
		}
	}
	res, err := Run(ctx, o, m)
	if err != nil {
		t.Fatal(err)
	}
	want := e.Name + " asked done heal-asked healed"
	if said := phases(readHistory(t, res.Dir)); len(said) != 1 || said[0] != want {
		t.Error(said)
	}
	if len(res.Reasons) != 1 || res.Reasons[0] != "the run was interrupted" || res.Exposure.Faults[e.Name] != 1 {
		t.Errorf("%v, %v", res.Reasons, res.Exposure.Faults)
	}
}

// A worker or a server that dies in the middle of a fault does not keep it from
// being healed; a server that stays dead is told.
func TestDeathInFault(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workers, o.Proxy = 2, "always"
	b := newBench(t, o)
	ctx := t.Context()
	late := b.runner.Inject(ctx, nemesis.Step{Fault: "late", Target: nemesis.Holder, Links: nemesis.All})
	kill := b.runner.Inject(ctx, nemesis.Step{Fault: "kill", Target: nemesis.All})
	pause := b.runner.Inject(ctx, nemesis.Step{Fault: "server-pause", Target: "n1"})
	if err := errors.Join(late.Err, kill.Err, pause.Err, b.lab.Kill("n1")); err != nil {
		t.Fatal(err)
	}
	pause.Heal(ctx)
	late.Heal(ctx)
	if err := b.runner.Unhealed(); err != nil {
		t.Error(err)
	}
	_, res := b.finish()
	if len(res.Reasons) != 1 || !strings.Contains(res.Reasons[0], "the lab was not whole after the run: n1: redis-server on n1: not running") {
		t.Error(res.Reasons)
	}
}
