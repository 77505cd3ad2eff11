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
	OnClocks                     // the clocks of servers, or of workers if the form says so: they are started with clocks that can be moved
)

// An Entry is one kind of fault: what the plan, the command line and the runner
// have to know of it.
type Entry struct {
	Name  string
	About string
	Acts  Acts
	Aims  []string // that it can take, besides names; the first that works is its own choice
	Forms []string // variants that the plan draws from; empty for none
	Named []string // variants that the plan takes only when they are asked for by name

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

// Faults lists every kind of fault.
func Faults() []Entry {
	return []Entry{
		pauseEntry, killEntry,
		serverPauseEntry, serverKillEntry, failoverEntry,
		partitionEntry,
		clientCutEntry, lateEntry, slowEntry, jitterEntry, bandwidthEntry, slicerEntry, resetEntry, downEntry,
		clockJumpEntry, clockDriftEntry, clockStrobeEntry,
	}
}

// storied lists faults that only stories ask for: they are about one request of one
// protocol, and no part of what plans draw from.
func storied() []Entry { return []Entry{requestCutEntry} }

// Find gives the kind of fault of that name.
func Find(name string) (Entry, error) {
	var known []string
	for _, e := range slices.Concat(Faults(), storied()) {
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
	if all := e.AllForms(); given && !slices.Contains(all, form) {
		if len(all) == 0 {
			return e, "", fmt.Errorf("fault %s has no forms, and so no %q", name, form)
		}
		return e, "", fmt.Errorf("fault %s has no form %q; there are %s", name, form, strings.Join(all, ", "))
	}
	return e, form, nil
}

// AllForms lists the forms that can be asked for.
func (e Entry) AllForms() []string { return slices.Concat(e.Forms, e.Named) }

// onNodes reports whether the targets of a form are servers.
func (e Entry) onNodes(form string) bool {
	return e.Acts == OnNodes || e.Acts == BetweenNodes || e.Acts == OnClocks && !onWorkersClock(form)
}

// aims lists the targets that a form can take, besides names.
func (e Entry) aims(form string) []string {
	if e.Acts == OnClocks && onWorkersClock(form) {
		return workerAims
	}
	return e.Aims
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

	Clocks func() error // says why no clock of a process can be moved here; nil for always possible
}

// refuse says why a kind of fault cannot work in a setting.
func (e Entry) refuse(set Setting, form string) error {
	switch {
	case set.External && (e.Acts == OnNodes || e.Acts == BetweenNodes):
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
	case e.Acts == OnClocks && set.External:
		return fmt.Errorf("%s is not offered with --provider external", e.Name)
	case e.Acts == OnClocks && set.Containers && !onWorkersClock(form):
		return fmt.Errorf("%s of servers is not available in containers: they are not started by lockcheck's launcher (the clocks of workers can be moved)", e.Name)
	case e.Acts == OnClocks && set.Clocks != nil:
		if err := set.Clocks(); err != nil {
			return fmt.Errorf("%s cannot work here: %w", e.Name, err)
		}
	}
	if e.Possible != nil {
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
	return e.aimed(set, form, e.aim(set, form, target))
}

// aim gives the target that a kind of fault takes when target is asked for: its
// own choice, where that is no target for it. holder is asked of servers, and
// leader of workers, whenever faults of several kinds are in one run.
func (e Entry) aim(set Setting, form, target string) string {
	if slices.Contains(Aims, target) && !slices.Contains(e.aims(form), target) || target == "" {
		for _, a := range e.aims(form) {
			if e.aimed(set, form, a) == nil {
				return a
			}
		}
	}
	return target
}

// aimed says why a fault cannot be aimed at a target in a setting.
func (e Entry) aimed(set Setting, form, target string) error {
	many, what := set.Workers, "workers"
	onNodes := e.onNodes(form)
	if onNodes {
		many, what = len(set.Data), "servers"
	}
	i, worker := workerName(target)
	switch {
	case slices.Contains(e.aims(form), target):
		if target == Leader && !set.Leads {
			return fmt.Errorf("%s cannot be aimed at a leader: %s has none", e.Name, set.Backend)
		}
		if target == Minority && many < 3 {
			return fmt.Errorf("%s cannot be aimed at a minority: there are %d %s", e.Name, many, what)
		}
		return nil
	case slices.Contains(set.Nodes, target):
		if !onNodes {
			return fmt.Errorf("%s acts on workers: it cannot be aimed at %s", e.Name, target)
		}
		return nil
	case worker && !onNodes:
		if i >= set.Workers {
			return fmt.Errorf("there is no worker %s: they are w0 to w%d", target, set.Workers-1)
		}
		return nil
	case worker:
		return fmt.Errorf("%s acts on servers: it cannot be aimed at %s%s", e.Name, target, e.instead())
	}
	return fmt.Errorf("target %q of %s is none of %s, nor a name (servers %s; workers w0 to w%d)",
		target, e.Name, strings.Join(e.aims(form), ", "), strings.Join(set.Nodes, ", "), set.Workers-1)
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
	if err := e.aimed(set, s.Form, s.Target); err != nil {
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

// Any reports whether any of the faults, as the command line spells them, acts on
// a kind of thing: links, which then have to lead through toxiproxy, or clocks,
// which then have to be such as can be moved.
func Any(acts Acts, faults []string, plan []Step) bool {
	for _, s := range plan {
		faults = append(slices.Clip(faults), s.Fault)
	}
	return slices.ContainsFunc(faults, func(f string) bool {
		e, _, err := Parse(f)
		return err == nil && e.Acts == acts
	})
}
