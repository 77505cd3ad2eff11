// Package matrix looks at many experiments side by side: every lock on every
// backend under every fault with every store, against what theory allows each of
// them. It decides which runs there are, has them carried out, keeps what came of
// them, and draws the table and the chart.
//
// It judges nothing by itself: verdicts are the checker's, and theory only says
// which of them are a surprise.
package matrix

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/scenario"
)

// What a list of clients may hold beside names.
const (
	DefaultClient = "default" // the backend's own
	AllClients    = "all"     // every honest one
)

// NoFault is a cell in which nothing is broken.
const NoFault = "none"

// scenarioPrefix marks a story in a list of faults.
const scenarioPrefix = "scenario:"

// A Spec says what a matrix is made of. Two of the same Spec have the same runs,
// whatever machine carries them out.
type Spec struct {
	Backends []string           `json:"backends"`
	Clients  []string           `json:"clients"`
	Faults   []string           `json:"faults"` // as ParseFault reads them
	Stores   []string           `json:"stores"`
	Repeat   int                `json:"repeat"`
	Seed     uint64             `json:"seed"` // of the first run of every cell; the others follow it
	Options  experiment.Options `json:"options"`
}

// A Cell is one lock on one backend under one fault with one store.
type Cell struct {
	Backend string `json:"backend"`
	Client  string `json:"client"`
	Fault   string `json:"fault"`
	Store   string `json:"store"`
}

func (c Cell) String() string {
	return strings.Join([]string{c.Backend, c.Client, c.Fault, c.Store}, " ")
}

// A Fault is what is broken in a cell.
type Fault struct {
	Nemesis  []string // as the command line spells them; none for a scenario
	Target   string   // "" for each fault's usual one
	Scenario string   // a story, in place of all that
}

// ParseFault reads none, a fault (pause, server-kill:lose), several at once
// (pause+partition), any of these aimed (server-kill:lose@majority), or a story
// (scenario:failover).
func ParseFault(s string) (Fault, error) {
	if name, ok := strings.CutPrefix(s, scenarioPrefix); ok {
		_, err := scenario.Find(name)
		return Fault{Scenario: name}, err
	}
	if s == NoFault {
		return Fault{}, nil
	}
	list, target, aimed := strings.Cut(s, "@")
	if aimed && target == "" {
		return Fault{}, fmt.Errorf("fault %q names no target after the @", s)
	}
	f := Fault{Nemesis: strings.Split(list, "+"), Target: target}
	for _, n := range f.Nemesis {
		if _, _, err := nemesis.Parse(n); err != nil {
			return Fault{}, err
		}
	}
	return f, nil
}

// Settle refuses a Spec that makes no sense, and fills in what follows from the
// rest.
func (s *Spec) Settle() error {
	if s.Repeat < 1 {
		return fmt.Errorf("repeat %d is below 1", s.Repeat)
	}
	for _, b := range s.Backends {
		if !slices.Contains(cluster.Backends, b) {
			return fmt.Errorf("backend %q is not known; there are %s", b, strings.Join(cluster.Backends, ", "))
		}
	}
	for _, c := range s.Clients {
		if c == DefaultClient || c == AllClients {
			continue
		}
		e, err := catalog.Find(c)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(s.Backends, e.On) {
			return fmt.Errorf("client %s runs on none of %s; it runs on %s", c, strings.Join(s.Backends, ", "), strings.Join(e.Backends, ", "))
		}
	}
	for _, p := range s.Stores {
		if _, err := fencedstore.ParsePolicy(p); err != nil {
			return err
		}
	}
	for _, f := range s.Faults {
		if _, err := ParseFault(f); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		what string
		list []string
	}{{"backend", s.Backends}, {"client", s.Clients}, {"fault", s.Faults}, {"store", s.Stores}} {
		if len(l.list) == 0 {
			return fmt.Errorf("a matrix needs at least one %s", l.what)
		}
		if x := twice(l.list); x != "" {
			return fmt.Errorf("%s %s is named twice", l.what, x)
		}
	}
	s.settleProxy()
	return s.settleOptions()
}

func twice(list []string) string {
	for i, x := range list {
		if slices.Contains(list[:i], x) {
			return x
		}
	}
	return ""
}

// settleProxy takes toxiproxy into every run if one needs it: else the latencies
// of two cells could not be compared.
func (s *Spec) settleProxy() {
	for _, name := range s.Faults {
		f, err := ParseFault(name)
		if err != nil {
			continue
		}
		faults := f.Nemesis
		if sc, err := scenario.Find(f.Scenario); err == nil {
			faults = sc.Faults
		}
		if nemesis.Any(nemesis.OnLinks, faults, nil) {
			s.Options.Proxy = "always"
		}
	}
}

// settleOptions has a bad parameter refused before the first run, and not by
// each of them.
func (s *Spec) settleOptions() error {
	for _, c := range s.Cells() {
		f, err := ParseFault(c.Fault)
		if err != nil {
			return err
		}
		if f.Scenario != "" {
			continue // it settles its own
		}
		o := s.RunOptions(c, s.Seed)
		if err := o.Settle(); err != nil && s.possible(o) == nil {
			return fmt.Errorf("%v: %w", c, err)
		}
	}
	return nil
}

// Cells lists what the matrix is made of, in the order in which it is shown.
func (s *Spec) Cells() []Cell {
	var out []Cell
	for _, b := range s.Backends {
		for _, c := range s.clientsOn(b) {
			for _, f := range s.Faults {
				for _, p := range s.Stores {
					out = append(out, Cell{b, c, f, p})
				}
			}
		}
	}
	return out
}

// clientsOn are the locks that were asked for and run on a backend.
func (s *Spec) clientsOn(backend string) []string {
	var out []string
	add := func(name string) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, c := range s.Clients {
		switch c {
		case DefaultClient:
			if e, err := catalog.Default(backend); err == nil {
				add(e.Name)
			}
		case AllClients:
			for _, e := range catalog.All {
				if e.On(backend) {
					add(e.Name)
				}
			}
		default:
			if e, err := catalog.Find(c); err == nil && e.On(backend) {
				add(c)
			}
		}
	}
	return out
}

// RunOptions are those of one run of a cell.
func (s *Spec) RunOptions(c Cell, seed uint64) experiment.Options {
	o := s.Options
	o.Backend, o.Client, o.Store, o.Seed = c.Backend, c.Client, fencedstore.Policy(c.Store), seed
	f, err := ParseFault(c.Fault)
	if err != nil {
		return o // Settle says so before
	}
	o.Nemesis, o.Scenario = f.Nemesis, f.Scenario
	if f.Target != "" {
		o.Target = f.Target
	}
	if len(f.Nemesis) > 1 {
		o.AtOnce = max(o.AtOnce, len(f.Nemesis))
	}
	return o
}

// Impossible says why a cell cannot be had on any machine with this network, as
// a partition of servers that do not talk to one another; nil if it can.
func (s *Spec) Impossible(c Cell) error {
	o := s.RunOptions(c, s.Seed)
	err := s.possible(o)
	if err == nil || !slices.ContainsFunc(o.Nemesis, isClock) {
		return err
	}
	// A machine on which no clock can be moved skips such a run, by name; another
	// one may have it.
	o.Nemesis = []string{"clock-jump"}
	if s.possible(o) != nil {
		return nil
	}
	return err
}

// possible says why a run cannot be carried out here.
func (s *Spec) possible(o experiment.Options) error {
	return o.Possible(s.Options.Network != local.NetworkLoopback)
}

func isClock(fault string) bool { return strings.HasPrefix(fault, "clock-") }

// A Place is one run of a Spec: which cell, and which seed.
type Place struct {
	Cell Cell
	Seed uint64
	No   int // among all runs of the Spec, from 0
}

// Places lists the runs of the matrix. The first runs of all cells come before
// the second ones, so that a matrix which is stopped early has something of each.
func (s *Spec) Places() []Place {
	var out []Place
	var cells []Cell
	for _, c := range s.Cells() {
		if s.Impossible(c) == nil {
			cells = append(cells, c)
		}
	}
	for n := range s.Repeat {
		for _, c := range cells {
			out = append(out, Place{c, s.Seed + uint64(n), len(out)})
		}
	}
	return out
}

// A Shard is one part of the runs: No of Of, counted from 1.
type Shard struct{ No, Of int }

// ParseShard reads 3/16; "" is the whole.
func ParseShard(s string) (Shard, error) {
	if s == "" {
		return Shard{1, 1}, nil
	}
	no, of, ok := strings.Cut(s, "/")
	i, err1 := strconv.Atoi(no)
	n, err2 := strconv.Atoi(of)
	if !ok || err1 != nil || err2 != nil || n < 1 || i < 1 || i > n {
		return Shard{}, fmt.Errorf("shard %q is not of the form i/n with i from 1 to n, as in 3/16", s)
	}
	return Shard{i, n}, nil
}

// String is the form that ParseShard reads.
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.No, s.Of) }

// Has reports whether a run belongs to the shard.
func (s Shard) Has(p Place) bool { return p.No%s.Of == s.No-1 }
