package experiment

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/skew"
)

// clockSteps move the clocks of servers and of workers in every way.
func clockSteps(more ...nemesis.Step) []nemesis.Step {
	return append([]nemesis.Step{
		{Fault: "clock-jump", Form: nemesis.OfServers, Target: nemesis.All, Offset: time.Minute},
		{Fault: "clock-jump", Form: nemesis.OfServers, Target: nemesis.Random, Pick: 1, Offset: -time.Minute},
		{Fault: "clock-drift", Form: nemesis.OfServers, Target: nemesis.All, Drift: 500_000},
		{Fault: "clock-drift", Form: nemesis.OfServers, Target: nemesis.Random, Drift: -500_000},
		{Fault: "clock-strobe", Form: nemesis.OfServers, Target: nemesis.All, Offset: -2 * time.Second, Period: 5 * time.Millisecond},
		{Fault: "clock-jump", Form: nemesis.OfWorkers, Target: nemesis.Holder, Offset: time.Hour},
		{Fault: "clock-drift", Form: nemesis.OfWorkers, Target: nemesis.All, Drift: 20_000},
		{Fault: "clock-strobe", Form: nemesis.OfWorkers, Target: "w1", Offset: time.Second, Period: 10 * time.Millisecond},
	}, more...)
}

// Clocks are moved on real servers of every kind, with evidence, and set right again.
func TestClocks(t *testing.T) {
	t.Parallel()
	for _, backend := range cluster.Backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.Backend, o.Workers = backend, 2
			o.Plan = clockSteps()
			b := newBench(t, o)
			for _, s := range o.Plan {
				b.inject(s)
			}
			ops, res := b.finish()
			for i, said := range phases(ops) {
				if said != o.Plan[i].Fault+" asked done heal-asked healed" {
					t.Errorf("%v: %s", o.Plan[i], said)
				}
			}
			if len(res.Reasons) > 0 {
				t.Error(res.Reasons)
			}
		})
	}
}

// The monotonic clock of etcd's servers moves when it is asked for by name, and
// stays where it is.
func TestMonotonicClock(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Backend, o.Workers = cluster.Etcd, 2
	o.Plan = []nemesis.Step{{Fault: "clock-jump", Form: nemesis.ServersMonotonic, Target: nemesis.All, Offset: time.Minute}}
	b := newBench(t, o)
	b.inject(o.Plan[0])
	b.inject(o.Plan[0]) // from where it is by now
	if _, res := b.finish(); len(res.Reasons) > 0 {
		t.Error(res.Reasons)
	}
}

// A jump that does not happen is skipped, counts for nothing, and makes the run
// unknown.
func TestClockWithoutEffect(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workers = 2
	o.Plan = clockSteps()[:1]
	b := newBench(t, o)
	for _, target := range []nemesis.Target{b.server("n1"), b.runner.Workers()[0]} {
		in := b.runner.InjectOn(t.Context(), nemesis.ClockJump{
			Clocks: b.lab, By: time.Minute,
			Move: func(*skew.Control, skew.Clock, time.Duration) error { return nil },
		}, target)
		if in.Err == nil {
			t.Errorf("it was believed: %v", in.Evidence)
		}
	}
	ops, res := b.finish()
	for _, said := range phases(ops) {
		if said != "clock-jump asked skipped" {
			t.Error(said)
		}
	}
	if res.Exposure.FaultsSkipped != 2 || res.Exposure.ClockJumpsWhileHeld != 0 || res.Verdict != checker.Unknown {
		t.Errorf("%v %v %+v", res.Verdict, res.Reasons, res.Exposure)
	}
}

func (b *bench) server(node string) nemesis.Target {
	b.t.Helper()
	pid, err := b.lab.Pid(node)
	if err != nil {
		b.t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		b.t.Fatal(err)
	}
	return nemesis.Target{Node: node, OS: p}
}

// A clock that was not set right is told.
func TestClockLeftBehind(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workers = 2
	o.Plan = clockSteps()[:1]
	b := newBench(t, o)
	for _, target := range []nemesis.Target{b.server("n1"), b.runner.Workers()[0]} {
		c, err := b.lab.Clock(target)
		if err == nil {
			err = c.Set(skew.Realtime, time.Hour)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, res := b.finish(); len(res.Reasons) != 1 || strings.Count(res.Reasons[0], "its clock is 1h0m0s ahead") != 2 {
		t.Error(res.Reasons)
	}
}

// A worker command that is a chain of programs has the clock at its end, also
// when another process takes its place; one that starts its worker as a child
// has not, and the fault is not believed.
func TestClockOfForeignWorkers(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for script, follows := range map[string]bool{
		`exec "$0" worker`:                        true,
		`exec /bin/sh -c 'exec "$0" worker' "$0"`: true,
		`"$0" worker; true`:                       false,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.Client, o.ClientCmd = "redis/set-nx", []string{"/bin/sh", "-c", script, self}
			o.Workers = 2
			o.Plan = []nemesis.Step{
				{Fault: "clock-jump", Form: nemesis.OfWorkers, Target: nemesis.All, Offset: time.Hour},
				{Fault: "kill", Target: "w0"},
				{Fault: "clock-jump", Form: nemesis.OfWorkers, Target: "w0", Offset: -time.Hour},
			}
			b := newBench(t, o)
			for _, s := range o.Plan {
				in := b.runner.Inject(t.Context(), s)
				if want := follows || s.Fault == "kill"; (in.Err == nil) != want {
					t.Errorf("%v: %v", s, in.Err)
				}
				if in.Err != nil && !errors.Is(in.Err, skew.ErrNotAttached) {
					t.Error(in.Err)
				}
				in.Heal(t.Context())
			}
			if err := errors.Join(b.runner.Unhealed(), b.whole(t.Context())); err != nil {
				t.Error(err)
			}
			b.finish()
		})
	}
}
