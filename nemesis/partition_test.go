package nemesis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// wires is a network whose nodes all talk to one another at every look.
type wires struct {
	cuts   map[string]map[string]uint64
	silent bool
	broken error
}

func (w *wires) Cut(node string, from ...string) error {
	if w.cuts[node] == nil {
		w.cuts[node] = map[string]uint64{}
	}
	for _, f := range from {
		w.cuts[node][f] = 0
	}
	return nil
}

func (w *wires) HealCuts() error { clear(w.cuts); return w.broken }

func (w *wires) Dropped(node string) (map[string]uint64, error) {
	for f := range w.cuts[node] {
		if !w.silent {
			w.cuts[node][f]++
		}
	}
	return maps.Clone(w.cuts[node]), nil
}

// hears gives whom each node still hears, itself among them.
func hears(nodes []string, cuts []deaf) map[string][]string {
	h := map[string][]string{}
	for _, n := range nodes {
		h[n] = slices.Clone(nodes)
	}
	for _, d := range cuts {
		h[d.node] = slices.DeleteFunc(h[d.node], func(n string) bool { return slices.Contains(d.to, n) })
	}
	return h
}

func nodes(n int) []string {
	var ns []string
	for i := range n {
		ns = append(ns, fmt.Sprint("n", i+1))
	}
	return ns
}

// The forms are what they are called, for clusters of any size.
func TestPartitionForms(t *testing.T) {
	for n := 3; n <= 7; n++ {
		for pick := range uint64(9) {
			ns := nodes(n)
			cut := func(form, way string) map[string][]string {
				cs, err := Partition{Nodes: ns, Form: form, Way: way, Pick: pick}.cuts("n2")
				if err != nil || len(cs) == 0 {
					t.Fatal(cs, err)
				}
				return hears(ns, cs)
			}
			if h := cut(One, Both); len(h["n2"]) != 1 || len(h["n1"]) != n-1 || slices.Contains(h["n1"], "n2") {
				t.Errorf("one: %v", h)
			}
			if h := cut(Alone, In); len(h["n2"]) != 1 || len(h["n1"]) != n {
				t.Errorf("leader, in: %v", h)
			}
			if h := cut(One, Out); len(h["n2"]) != n || len(h["n1"]) != n-1 {
				t.Errorf("one, out: %v", h)
			}
			sizes := map[int]int{}
			for _, of := range cut(Halves, Both) {
				sizes[len(of)]++
			}
			if sizes[n/2] != n/2 && n%2 == 1 || sizes[n-n/2] < n-n/2 {
				t.Errorf("halves of %d: %v", n, sizes)
			}
			seen := map[string]bool{}
			for _, of := range cut(Ring, Both) {
				slices.Sort(of)
				if len(of) != n/2+1 || seen[fmt.Sprint(of)] {
					t.Errorf("ring: a node hears %v", of)
				}
				seen[fmt.Sprint(of)] = true
			}
			bridges := 0
			for _, of := range cut(Bridge, Both) {
				if len(of) == n {
					bridges++
				}
			}
			if bridges != 1 {
				t.Errorf("%d bridges", bridges)
			}
		}
	}
	cs, err := Partition{Nodes: []string{"n1", "n2", "n3", "s1"}, Data: nodes(3), Form: Replicas}.cuts("n2")
	if h := hears([]string{"n1", "n2", "n3", "s1"}, cs); err != nil || len(h["n1"]) != 3 || len(h["n3"]) != 3 || len(h["n2"]) != 4 || len(h["s1"]) != 4 {
		t.Errorf("replicas: %v, %v", h, err)
	}
	for _, p := range []Partition{{Nodes: nodes(1), Form: One}, {Nodes: nodes(2), Form: Bridge}, {Nodes: nodes(3), Form: "star"}} {
		if cs, err := p.cuts("n1"); err == nil {
			t.Errorf("%v: %v", p, cs)
		}
	}
}

func TestPartition(t *testing.T) {
	w := &wires{cuts: map[string]map[string]uint64{}}
	p := Partition{Network: w, Nodes: nodes(3), Form: Ring, Way: Both}
	ev, heal, err := p.Inject(t.Context(), []Target{{Node: "n1"}})
	if err != nil || len(ev["dropped"].(map[string]uint64)) != 3 {
		t.Fatal(ev, err)
	}
	for range 2 {
		if _, err := heal(t.Context()); err != nil || len(w.cuts) > 0 {
			t.Error(w.cuts, err)
		}
	}
	w.broken = errors.New("the kernel says no")
	if _, err := heal(t.Context()); !errors.Is(err, w.broken) {
		t.Error(err)
	}
}

// Cuts that lose nothing are not believed, nor are those that were never made;
// what was done halfway is undone.
func TestPartitionWithoutEffect(t *testing.T) {
	quiet := &wires{cuts: map[string]map[string]uint64{}, silent: true}
	fine := &wires{cuts: map[string]map[string]uint64{}}
	n := 0
	for _, p := range []Partition{
		{Network: quiet},
		{Network: fine, Cut: func(string, ...string) error { return nil }},
		{Network: fine, Cut: func(node string, from ...string) error {
			if n++; n > 1 {
				return errors.New("no")
			}
			return fine.Cut(node, from...)
		}},
	} {
		p.Nodes, p.Form, p.Way = nodes(3), Halves, Both
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if ev, _, err := p.Inject(ctx, []Target{{Node: "n1"}}); err == nil {
			t.Errorf("believed: %v", ev)
		}
		cancel()
		if len(quiet.cuts)+len(fine.cuts) > 0 {
			t.Error("left:", quiet.cuts, fine.cuts)
		}
	}
}
