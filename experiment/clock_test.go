package experiment

import (
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/nemesis"
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

// Clocks are moved on real servers of every kind, in the lab and on loopback,
// with evidence, and set right again.
func TestClocks(t *testing.T) {
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
