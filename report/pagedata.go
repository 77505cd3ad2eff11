package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// timelineData is what the page's script draws. Times are microseconds since the
// run began; the names are short because there are thousands.
type timelineData struct {
	From   int64       `json:"from"` // of what is embedded
	To     int64       `json:"to"`
	Last   int64       `json:"last"` // of the run
	Lanes  []laneData  `json:"lanes"`
	Holds  []holdData  `json:"holds"`
	Faults []faultData `json:"faults"`
	Events []eventData `json:"events"`
	Jumps  []jumpData  `json:"jumps"`
	First  int         `json:"first"` // the jump to the first anomaly of the verdict
	Rates  []int       `json:"rates"` // grants in each of as many equal parts of the run
	Lost   [][2]int64  `json:"lost"`  // windows without a grant
}

type laneData struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // worker, store or server
}

type holdData struct {
	Lane   int        `json:"l"`
	From   int64      `json:"a"`
	To     int64      `json:"b"`
	Index  int        `json:"i"` // of the acquire's ok
	Says   string     `json:"s"`
	Leases [][2]int64 `json:"v,omitempty"`
}

type faultData struct {
	Lane int    `json:"l"` // -1 for all of them
	From int64  `json:"a"`
	To   int64  `json:"b"`
	Name string `json:"s"`
}

type eventData struct {
	Lane   int    `json:"l"`
	At     int64  `json:"t"`
	Index  int    `json:"i"`
	Letter string `json:"m"`
	Class  string `json:"c"`
	Says   string `json:"s"`
	Wrong  string `json:"w,omitempty"`
}

type jumpData struct {
	At    int64  `json:"t"`
	Index int    `json:"i"`
	Says  string `json:"s"`
}

const (
	maxPageLanes  = 24
	maxPageFaults = 200
	maxPageJumps  = 50
	overviewParts = 240
)

func micros(ns int64) int64 { return ns / 1000 }

// laneMap gives lanes numbers as they are needed.
type laneMap struct {
	workers map[history.Process]int
	nodes   map[string]int
	store   int
}

// timelineData chooses what the page can zoom into, and says what is left out.
func (d *drawing) timelineData() (timelineData, string) {
	ops := d.near.window()
	t := timelineData{Last: micros(d.last), Lanes: []laneData{}, Holds: []holdData{}, Faults: []faultData{}, Events: []eventData{}, Jumps: []jumpData{}, Lost: [][2]int64{}}
	if len(ops) == 0 {
		return t, "The history is empty."
	}
	from, to := ops[0].Time, ops[len(ops)-1].Time
	t.From, t.To = micros(from), micros(to)
	lanes, left := d.lanes(ops, &t)
	d.embedEvents(ops, lanes, &t)
	d.embedHolds(from, to, lanes, &t)
	d.embedFaults(lanes, &t)
	d.embedJumps(from, to, &t)
	t.Rates = make([]int, overviewParts)
	for _, a := range d.acquires {
		if a.is == history.OK {
			t.Rates[min(int(a.at*overviewParts/max(d.last, 1)), overviewParts-1)]++
		}
	}
	cut := ""
	if len(ops) < d.events {
		cut = fmt.Sprintf("Drawn are events #%d to #%d of %d, %.3f s to %.3f s, around what is most worth seeing; history.txt has all of them.",
			ops[0].Index, ops[len(ops)-1].Index, d.events, float64(from)/1e9, float64(to)/1e9)
	}
	if left > 0 {
		cut += fmt.Sprintf(" %s no lane here.", plural(left, "worker has", "workers have"))
	}
	return t, cut
}

// lanes gives each worker that did something a lane, then the servers that faults
// were aimed at, then the store.
func (d *drawing) lanes(ops []history.Op, t *timelineData) (*laneMap, int) {
	m := &laneMap{workers: map[history.Process]int{}, nodes: map[string]int{}, store: -1}
	seen := map[history.Process]bool{}
	for i := range ops {
		if p := ops[i].Process; p.Worker() {
			seen[d.worker(p)] = true
		}
	}
	var all []history.Process
	for p := range seen {
		all = append(all, p)
	}
	slices.Sort(all)
	name := "process "
	if d.workers > 0 {
		name = "worker "
	}
	for _, p := range all[:min(len(all), maxPageLanes)] {
		m.workers[p] = len(t.Lanes)
		t.Lanes = append(t.Lanes, laneData{name + p.String(), "worker"})
	}
	var nodes []string
	for _, f := range d.scan.faults {
		nodes = append(nodes, f.nodes...)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	for _, n := range nodes[:min(len(nodes), maxPageLanes)] {
		m.nodes[n] = len(t.Lanes)
		t.Lanes = append(t.Lanes, laneData{"server " + n, "server"})
	}
	m.store = len(t.Lanes)
	t.Lanes = append(t.Lanes, laneData{"store", "store"})
	return m, len(all) - len(m.workers)
}

func (d *drawing) embedEvents(ops []history.Op, lanes *laneMap, t *timelineData) {
	for i := range ops {
		o := &ops[i]
		e := eventData{At: micros(o.Time), Index: o.Index, Wrong: d.wrong[o.Index]}
		var m mark
		ok := true
		switch {
		case o.Process == history.Store:
			e.Lane, m.letter = lanes.store, markReadApplied
			switch {
			case o.Type == history.Fail:
				m.letter = markFenced
			case o.F == history.Write:
				m.letter = markWriteApplied
			}
		case o.Process.Worker():
			if m, ok = letterOf(o); !ok && e.Wrong == "" {
				continue
			}
			if e.Lane, ok = lanes.workers[d.worker(o.Process)]; !ok {
				continue
			}
		default:
			continue
		}
		e.Letter, e.Class = string(m.letter), cmp.Or(markClasses[m.letter], "ink")
		switch m.letter {
		case 0:
			e.Letter = "•"
		case markFenced:
			e.Letter = "✗"
		}
		who, did := describe(o)
		e.Says = who + " " + did
		if o.Key != "" {
			e.Says += ", " + quote(o.Key, 40)
		}
		t.Events = append(t.Events, e)
	}
}

func (d *drawing) embedHolds(from, to int64, lanes *laneMap, t *timelineData) {
	for _, h := range d.scan.holds {
		lane, ok := lanes.workers[d.worker(h.proc)]
		if !ok || h.ok > to || max(h.end, h.leaseEnd()) < from {
			continue
		}
		v := holdData{Lane: lane, From: micros(h.ok), To: micros(min(h.end, d.last)), Index: h.okIdx, Says: quote(h.key, 40)}
		if h.grant.Set {
			v.Says += fmt.Sprintf(", grant %d", h.grant.V)
		}
		if h.token.Set {
			v.Says += fmt.Sprintf(", token %d", h.token.V)
		}
		for _, l := range h.leases {
			if end := min(l.to, h.released, d.last); end > l.from {
				v.Leases = append(v.Leases, [2]int64{micros(l.from), micros(end)})
			}
		}
		t.Holds = append(t.Holds, v)
	}
}

func (d *drawing) embedFaults(lanes *laneMap, t *timelineData) {
	for _, f := range d.scan.faults {
		if f.from == never || len(t.Faults) >= maxPageFaults {
			continue
		}
		v := faultData{Lane: -1, From: micros(f.from), To: micros(min(f.to, d.last)), Name: clip(f.name, 40)}
		placed := false
		for _, p := range f.targets {
			if lane, ok := lanes.workers[d.worker(p)]; ok {
				v.Lane, placed = lane, true
				t.Faults = append(t.Faults, v)
			}
		}
		for _, n := range f.nodes {
			if lane, ok := lanes.nodes[n]; ok {
				v.Lane, placed = lane, true
				t.Faults = append(t.Faults, v)
			}
		}
		if !placed {
			t.Faults = append(t.Faults, v)
		}
	}
	if a := d.res.Availability; a != nil {
		for _, u := range a.Unavailable {
			t.Lost = append(t.Lost, [2]int64{int64(u.From * 1e3), int64(u.To * 1e3)})
		}
	}
}

// embedJumps lists the anomalies that can be jumped to: the first, and all that
// lie in what is embedded.
func (d *drawing) embedJumps(from, to int64, t *timelineData) {
	add := func(at int64, index int, says string) {
		if len(t.Jumps) < maxPageJumps {
			t.Jumps = append(t.Jumps, jumpData{micros(at), index, says})
		}
	}
	for _, name := range shown(d.res) {
		p := d.res.Properties[name]
		if p == nil {
			continue
		}
		for i := range p.Anomalies {
			a := &p.Anomalies[i]
			if a.Time < from || a.Time > to {
				continue
			}
			index := -1
			if len(a.Ops) > 0 {
				index = slices.Max(a.Ops)
			}
			add(a.Time, index, kindOf(a)+": "+clip(a.Message, 300))
		}
	}
	if len(t.Jumps) == 0 && d.near.rank > centerStart && d.near.center < len(d.near.ops) {
		o := &d.near.ops[d.near.center]
		_, did := describe(o)
		if o.Process == history.Nemesis {
			did = faultWords(o)
		}
		add(o.Time, o.Index, did)
	}
	slices.SortStableFunc(t.Jumps, func(a, b jumpData) int { return cmp.Compare(a.At, b.At) })
	if a := d.first; a != nil {
		t.First = max(0, slices.IndexFunc(t.Jumps, func(j jumpData) bool { return j.Says == kindOf(a)+": "+clip(a.Message, 300) }))
	}
}
