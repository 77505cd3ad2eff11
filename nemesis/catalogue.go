package nemesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Acts says what a kind of fault acts on.
type Acts uint8

const (
	OnWorkers    Acts = iota + 1 // worker processes
	OnNodes                      // server processes
	BetweenNodes                 // what the nodes say to one another: needs the lab's namespaces
	OnLinks                      // what workers say to nodes and store: needs toxiproxy on the links
)

func (a Acts) onNodes() bool { return a == OnNodes || a == BetweenNodes }

// An Entry is one kind of fault: what the plan, the command line and the runner
// have to know of it.
type Entry struct {
	Name  string
	About string
	Acts  Acts
	Aims  []string // that it can take, besides names; the first that works is its own choice
	Forms []string // variants that the plan draws from; empty for none

	// Once says that a form is over when it is done, so that there is nothing to
	// wait for and to heal; nil for never.
	Once func(form string) bool
	// Possible refuses a form in a setting where it cannot work; nil for always
	// possible.
	Possible func(set Setting, form string) error
	// Draw fills in what else the plan decides; nil for nothing.
	Draw func(rng *rand.Rand, cfg Config, s *Step)
	// New makes the fault of a step.
	New func(ctx context.Context, sys System, s Step) (Fault, error)
}

// Faults lists every kind of fault. Those of the clock belong at its end, with an
// Acts and a part of System of their own.
func Faults() []Entry {
	return []Entry{
		pauseEntry, killEntry,
		serverPauseEntry, serverKillEntry, failoverEntry,
		partitionEntry,
		clientCutEntry, lateEntry, slowEntry, jitterEntry, bandwidthEntry, slicerEntry, resetEntry, downEntry,
	}
}

// Find gives the kind of fault of that name.
func Find(name string) (Entry, error) {
	var known []string
	for _, e := range Faults() {
		if e.Name == name {
			return e, nil
		}
		known = append(known, e.Name)
	}
	return Entry{}, fmt.Errorf("fault %q is not known; there are %s", name, strings.Join(known, ", "))
}

// Parse reads a fault as the command line spells it: its name, or its name and
// a form, as in partition:ring.
func Parse(s string) (e Entry, form string, err error) {
	name, form, given := strings.Cut(s, ":")
	if e, err = Find(name); err != nil {
		return e, "", err
	}
	if given && !slices.Contains(e.Forms, form) {
		if len(e.Forms) == 0 {
			return e, "", fmt.Errorf("fault %s has no forms, and so no %q", name, form)
		}
		return e, "", fmt.Errorf("fault %s has no form %q; there are %s", name, form, strings.Join(e.Forms, ", "))
	}
	return e, form, nil
}

// A Setting says what a run has, so that a fault which cannot work in it is
// refused before anything begins.
type Setting struct {
	Backend    string
	Workers    int
	Nodes      []string // every server node
	Data       []string // those that hold locks: a sentinel does not
	Leads      bool     // one node leads
	Elects     bool     // another one takes over when the leader is lost
	HandsOver  bool     // the leader can be asked to let another one lead
	Talk       bool     // the nodes talk to one another
	Durable    bool     // a node that is restarted with its data has it
	Namespaces bool     // every node has a network of its own
	Containers bool     // the servers are in containers, and a node can be taken off the network as a whole
	External   bool     // the servers are not ours: they are left alone
	Links      bool     // of an external cluster: it has a toxiproxy
	Bypass     bool     // clients learn addresses from servers: without namespaces they go past the proxies
}

// refuse says why a kind of fault cannot work in a setting.
func (e Entry) refuse(set Setting, form string) error {
	switch {
	case set.External && e.Acts.onNodes():
		return fmt.Errorf("%s is not offered with --provider external: lockcheck leaves servers alone that it did not start", e.Name)
	case set.External && e.Acts == OnLinks && !set.Links:
		return fmt.Errorf("%s needs a toxiproxy, and the external cluster was given none (toxiproxy: in its file)", e.Name)
	case e.Acts == BetweenNodes && !set.Talk:
		return fmt.Errorf("%s cannot work on %s: its servers do not talk to one another", e.Name, set.Backend)
	case e.Acts == BetweenNodes && !set.Namespaces && !set.Containers:
		return fmt.Errorf("%s needs the lab's namespaces, and on the loopback network there are none", e.Name)
	case e.Acts == OnLinks && set.Bypass && set.Containers:
		return fmt.Errorf("%s cannot work on %s in containers with this client: it is told the servers' own addresses and goes past the proxies", e.Name, set.Backend)
	case e.Acts == OnLinks && set.Bypass && !set.Namespaces && !set.External:
		return fmt.Errorf("%s cannot work on %s on the loopback network: clients are told the servers' own addresses and go past the proxies", e.Name, set.Backend)
	case e.Possible != nil:
		return e.Possible(set, form)
	}
	return nil
}

// forms gives the forms that are possible in a setting, or why there is none.
func (e Entry) forms(set Setting) ([]string, error) {
	if len(e.Forms) == 0 {
		return []string{""}, e.refuse(set, "")
	}
	var can []string
	var why error
	for _, f := range e.Forms {
		if err := e.refuse(set, f); err != nil {
			why = err
			continue
		}
		can = append(can, f)
	}
	if len(can) > 0 {
		why = nil
	}
	return can, why
}

// Refuse says why a fault, as the command line spells it, cannot be had in a
// setting with a target.
func Refuse(set Setting, fault, target string) error {
	e, form, err := Parse(fault)
	if err != nil {
		return err
	}
	if form != "" {
		err = e.refuse(set, form)
	} else {
		_, err = e.forms(set)
	}
	if err != nil {
		return err
	}
	return e.aimed(set, e.aim(set, target))
}

// aim gives the target that a kind of fault takes when target is asked for: its
// own choice, where that is no target for it. holder is asked of servers, and
// leader of workers, whenever faults of several kinds are in one run.
func (e Entry) aim(set Setting, target string) string {
	if slices.Contains(Aims, target) && !slices.Contains(e.Aims, target) || target == "" {
		for _, a := range e.Aims {
			if e.aimed(set, a) == nil {
				return a
			}
		}
	}
	return target
}

// aimed says why a fault cannot be aimed at a target in a setting.
func (e Entry) aimed(set Setting, target string) error {
	many, what := set.Workers, "workers"
	if e.Acts.onNodes() {
		many, what = len(set.Data), "servers"
	}
	i, worker := workerName(target)
	switch {
	case slices.Contains(e.Aims, target):
		if target == Leader && !set.Leads {
			return fmt.Errorf("%s cannot be aimed at a leader: %s has none", e.Name, set.Backend)
		}
		if target == Minority && many < 3 {
			return fmt.Errorf("%s cannot be aimed at a minority: there are %d %s", e.Name, many, what)
		}
		return nil
	case slices.Contains(set.Nodes, target):
		if !e.Acts.onNodes() {
			return fmt.Errorf("%s acts on workers: it cannot be aimed at %s", e.Name, target)
		}
		return nil
	case worker && !e.Acts.onNodes():
		if i >= set.Workers {
			return fmt.Errorf("there is no worker %s: they are w0 to w%d", target, set.Workers-1)
		}
		return nil
	case worker:
		return fmt.Errorf("%s acts on servers: it cannot be aimed at %s", e.Name, target)
	}
	return fmt.Errorf("target %q of %s is none of %s, nor a name (servers %s; workers w0 to w%d)",
		target, e.Name, strings.Join(e.Aims, ", "), strings.Join(set.Nodes, ", "), set.Workers-1)
}

// Check says why a step cannot be carried out in a setting.
func (s Step) Check(set Setting) error {
	e, err := Find(s.Fault)
	if err != nil {
		return err
	}
	if err := e.refuse(set, s.Form); err != nil {
		return err
	}
	if err := e.aimed(set, s.Target); err != nil {
		return err
	}
	if e.Acts == OnLinks && !slices.Contains(linkAims, s.Links) && !slices.Contains(set.Nodes, s.Links) {
		return fmt.Errorf("links %q of %s are none of %s, nor a server's name", s.Links, s.Fault, strings.Join(linkAims, ", "))
	}
	return nil
}

// Make gives the fault of a step.
func Make(ctx context.Context, sys System, s Step) (Fault, error) {
	e, err := Find(s.Fault)
	if err != nil {
		return nil, err
	}
	return e.New(ctx, sys, s)
}

// AnyOnLinks reports whether any of the faults, as the command line spells them,
// acts on links, which then have to lead through toxiproxy.
func AnyOnLinks(faults []string, plan []Step) bool {
	for _, s := range plan {
		faults = append(slices.Clip(faults), s.Fault)
	}
	return slices.ContainsFunc(faults, func(f string) bool {
		e, _, err := Parse(f)
		return err == nil && e.Acts == OnLinks
	})
}
