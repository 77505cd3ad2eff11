package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Forms of a partition.
const (
	One    = "one"    // a node alone
	Alone  = "leader" // the leader alone
	Halves = "halves" // two parts; none need be a majority
	Ring   = "ring"   // each node hears a majority, no two the same
	Bridge = "bridge" // two parts that one node hears both of

	// Replicas do not hear their master, and sentinels hear both: what the master
	// says it has done goes no further.
	Replicas = "replicas"
)

// Ways in which packets are lost.
const (
	Both = "both"
	In   = "in"  // the first part does not hear the second
	Out  = "out" // the second part does not hear the first
)

var partitionEntry = Entry{
	Name:  "partition",
	About: "packets between servers are lost: one node alone, the leader alone, halves, a ring of majorities, a bridge, a master's replicas; both ways or one way",
	Acts:  BetweenNodes,
	Aims:  []string{All, Leader, Random},
	Forms: []string{One, Alone, Halves, Ring, Bridge, Replicas},
	Possible: func(set Setting, form string) error {
		if set.Containers && !set.Namespaces && form != One && form != Alone {
			return fmt.Errorf("partition:%s needs packet rules, which need root on the engine's own Linux machine; without them there are partition:%s and partition:%s", form, One, Alone)
		}
		if form == Alone && !set.Leads {
			return fmt.Errorf("partition:leader cannot work on %s: it has no leader", set.Backend)
		}
		if form == Replicas && len(set.Data) == len(set.Nodes) {
			return fmt.Errorf("partition:replicas cannot work on %s: nobody but its servers decides who leads (use partition:leader)", set.Backend)
		}
		return nil
	},
	Draw: func(rng *rand.Rand, cfg Config, s *Step) {
		s.Way = []string{Both, Both, In, Out}[rng.IntN(4)]
		if cfg.Setting.Containers && !cfg.Setting.Namespaces {
			s.Way = Both
		}
		switch {
		case s.Form == Replicas:
			s.Target, s.Way = Leader, Out
		case s.Target == Leader:
			s.Form = Alone
		case s.Target != All: // a random or a named node
			s.Form = One
		case s.Form == Alone:
			s.Target = Leader
		case s.Form == One:
			s.Target = Random
		case s.Form == Ring:
			s.Way = Both // a ring says by itself who does not hear whom
		}
	},
	New: func(_ context.Context, sys System, s Step) (Fault, error) {
		if sys.Network == nil && sys.Boxes != nil {
			if s.Way != "" && s.Way != Both {
				return nil, fmt.Errorf("partition one way (%s) needs packet rules", s.Way)
			}
			return Detached{Boxes: sys.Boxes}, nil
		}
		return Partition{Network: sys.Network, Nodes: sys.Nodes, Data: sys.Data, Form: s.Form, Way: s.Way, Pick: s.Pick}, nil
	},
}

// Partition loses packets between nodes, in the receiver's kernel. The heal ends
// every cut, so one partition at a time can be in force.
type Partition struct {
	Network Network
	Nodes   []string // all of them
	Data    []string // those that hold data, for Replicas
	Form    string
	Way     string
	Pick    uint64
	// Cut replaces what cuts, for the test.
	Cut func(node string, from ...string) error
}

// Name is "partition".
func (Partition) Name() string { return partitionEntry.Name }

// A deaf is a node and those that it is not to hear.
type deaf struct {
	node string
	to   []string
}

// Inject makes nodes deaf to others. The evidence is that the kernel has lost
// packets because of it: nodes chat, and it waits until they do.
func (p Partition) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	cut := p.Cut
	if cut == nil {
		cut = p.Network.Cut
	}
	cuts, err := p.cuts(ts[0].Node)
	if err != nil {
		return nil, nil, err
	}
	heal := func(context.Context) (Evidence, error) { return p.heal(cuts) }
	for _, d := range cuts {
		if err := cut(d.node, d.to...); err != nil {
			return nil, nil, undone(ctx, heal, provedWithin, fmt.Errorf("partition %s: %w", p.Form, err))
		}
	}
	for {
		ev, some, err := p.dropped(cuts)
		if err == nil && some {
			ev["form"], ev["way"] = p.Form, p.Way
			return ev, heal, nil
		}
		if err == nil && ctx.Err() != nil {
			err = fmt.Errorf("no packet was lost: %w", ctx.Err())
		}
		if err != nil {
			return nil, nil, undone(ctx, heal, provedWithin, fmt.Errorf("partition %s: %w", p.Form, err))
		}
		wait(ctx, targetPoll)
	}
}

// heal ends the cuts, and looks whether they are gone.
func (p Partition) heal(cuts []deaf) (Evidence, error) {
	ev, _, err := p.dropped(cuts) // before the counters go with the rules
	if err := errors.Join(err, p.Network.HealCuts()); err != nil {
		return ev, err
	}
	for _, d := range cuts {
		left, err := p.Network.Dropped(d.node)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("packets to %s are still dropped: %v", d.node, left)
		}
		if err != nil {
			return ev, err
		}
	}
	return ev, nil
}

// dropped reads the counters. some says that at least one has grown from zero,
// where it began.
func (p Partition) dropped(cuts []deaf) (ev Evidence, some bool, err error) {
	packets := map[string]uint64{}
	for _, d := range cuts {
		by, err := p.Network.Dropped(d.node)
		if err != nil {
			return nil, false, err
		}
		for from, n := range by {
			packets[from+">"+d.node] = n
			some = some || n > 0
		}
	}
	return Evidence{"dropped": packets}, some, nil
}

// cuts says who is to be deaf to whom.
func (p Partition) cuts(focus string) ([]deaf, error) {
	n := len(p.Nodes)
	if n < 2 {
		return nil, fmt.Errorf("a partition of %d node", n)
	}
	first := int(p.Pick % uint64(n))
	round := slices.Concat(p.Nodes[first:], p.Nodes[:first])
	others := func(ns []string) []string {
		return slices.DeleteFunc(slices.Clone(ns), func(s string) bool { return s == focus })
	}
	switch p.Form {
	case One, Alone:
		return split(p.Way, []string{focus}, others(p.Nodes)), nil
	case Replicas:
		return split(Out, []string{focus}, others(p.Data)), nil
	case Halves:
		return split(p.Way, round[:n/2], round[n/2:]), nil
	case Bridge: // the last of the round is the bridge
		if n < 3 {
			return nil, fmt.Errorf("a bridge needs three nodes, not %d", n)
		}
		return split(p.Way, round[:(n-1)/2], round[(n-1)/2:n-1]), nil
	case Ring:
		return ring(round), nil
	}
	return nil, fmt.Errorf("a partition has no form %q", p.Form)
}

// split cuts two parts from each other.
func split(way string, a, b []string) []deaf {
	var out []deaf
	if way != Out {
		for _, n := range a {
			out = append(out, deaf{n, b})
		}
	}
	if way != In {
		for _, n := range b {
			out = append(out, deaf{n, a})
		}
	}
	return out
}

// ring lets each node hear a majority: itself and those that follow it.
func ring(round []string) []deaf {
	n := len(round)
	var out []deaf
	for i, node := range round {
		var to []string
		for k := n/2 + 1; k < n; k++ {
			to = append(to, round[(i+k)%n])
		}
		out = append(out, deaf{node, to})
	}
	return out
}
