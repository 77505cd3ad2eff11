package experiment

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/skew"
	"github.com/lockcheck/lockcheck/runner"
	"github.com/lockcheck/lockcheck/scenario"
)

// setting says what the faults of a run will find.
func (o *Options) setting(namespaces bool) nemesis.Setting {
	set := nemesis.Setting{Backend: o.Backend, Workers: o.Workers, Namespaces: namespaces}
	set.Nodes, set.Data = local.NodeNames(o.Backend)
	set.Durable = local.Durable(cluster.Spec{Backend: o.Backend, Persistence: o.Persistence})
	set.Clocks = probeClocks
	if o.Provider == ProviderExternal {
		set.Nodes, set.Data = o.External.Names()
		set.External, set.Links = true, o.External.Toxiproxy != nil
		return set
	}
	set.Containers = o.Provider == ProviderDocker
	// Our own clients take the routes that containers need.
	set.Bypass = o.Backend == cluster.Sentinel && !(set.Containers && len(o.ClientCmd) == 0)
	switch o.Backend {
	case cluster.Redis:
		set.Leads = true // alone
	case cluster.ZooKeeper:
		set.Leads, set.Elects, set.Talk = true, true, true
	case cluster.Sentinel, cluster.Etcd:
		set.Leads, set.Elects, set.Talk, set.HandsOver = true, true, true, true
	}
	return set
}

// PossibleHere is Possible where this process is.
func (o *Options) PossibleHere() error { return o.Possible(o.namespaces(local.Inside())) }

// probeClocks tries once whether the clock of a process can be moved here.
var probeClocks = sync.OnceValue(skew.Probe)

// Possible says why the faults of a run cannot be had where there are, or are
// no, namespaces. It is asked before anything is started: what cannot be done is
// refused and never skipped.
func (o *Options) Possible(namespaces bool) error {
	set := o.setting(namespaces)
	if s, err := scenario.Find(o.Scenario); err == nil {
		return s.Refuse(set)
	}
	for _, f := range o.Nemesis {
		if err := nemesis.Refuse(set, f, o.Target); err != nil {
			return err
		}
	}
	for i, s := range o.Plan {
		if err := s.Check(set); err != nil {
			return fmt.Errorf("plan, step %d: %w", i, err)
		}
	}
	return nil
}

// system is what the faults of a run act on.
func (r *run) system() nemesis.System {
	if r.lab == nil {
		return nemesis.System{Setting: r.o.setting(false), Links: r.cluster}
	}
	sys := nemesis.System{Setting: r.o.setting(r.cuts()), Servers: r.lab, Links: r.lab}
	if r.lab.Boxed() {
		sys.Boxes = r.lab
	}
	if r.o.clocks() {
		sys.Clocks = r.lab
	}
	if sys.Namespaces {
		sys.Network = packets{r.lab}
	}
	return sys
}

// cuts reports whether packets between the servers can be lost.
func (r *run) cuts() bool { return r.lab != nil && r.lab.Cuts() }

// packets makes a cluster what partitions act on.
type packets struct{ *local.Cluster }

// Dropped counts what a node's cuts have lost, by sender.
func (p packets) Dropped(node string) (map[string]uint64, error) {
	ds, err := p.Counters(node)
	by := map[string]uint64{}
	for _, d := range ds {
		by[d.From] += d.Packets
	}
	return by, err
}

// A place is where the workers of a run are started. Those that begin as another
// program are started again until their clocks are known to be theirs.
type place struct{ *local.Cluster }

// place is where the workers run.
func (r *run) place() runner.Place {
	if r.lab == nil {
		return r.cluster
	}
	return place{r.lab}
}

// Settled implements runner.Settler.
func (p place) Settled(worker int) error {
	err := p.Cluster.Settled(worker)
	if errors.Is(err, local.ErrAgain) {
		return runner.ErrAgain
	}
	return err
}
