package report

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// maxLanes is how many processes a strip shows.
const maxLanes = 6

// A mark is a letter at a time.
type mark struct {
	at     int64
	idx    int
	letter rune
	weight int // of two in one column the heavier one is seen
	value  json.RawMessage
	token  history.Opt[uint64]
}

// The letters of a strip.
const (
	markGranted = 'A'
	markRefused = 'x' // an acquire
	markUnknown = '?'
	markRead    = 'R'
	markWrite   = 'W'
	markCheck   = 'C'
	markRenew   = 'N'
	markRelease = 'U'
	markLost    = '!'
	markKilled  = 'K'

	markReadApplied  = 'r' // by the store
	markWriteApplied = 'w'
	markFenced       = 'X' // refused by the store; drawn as the glyph for it
)

// A lane is one process in a picture.
type lane struct {
	proc  history.Process
	holds []*hold
	marks []mark
	waits []stretch // from the invoke of an acquire to its end
	rank  int       // of the reason for which it is shown
	began int64
}

// A flight is an access on its way to the store.
type flight struct {
	proc history.Process
	at   int64
	idx  int
	on   bool
}

// A picture is what a strip shows.
type picture struct {
	key      string
	from, to int64
	focus    *history.Op         // the event that it is about, nil if there is none
	pointed  int                 // the index of the mark that shows it
	proof    map[int]*history.Op // the events that are pointed out, by index
	lanes    []*lane
	store    []mark
	faults   []*fault
	flight   flight
	before   mark // the last write that the store applied before the focus
	fence    history.Opt[uint64]
	leftOut  map[history.Process]bool // who has no lane; true: did more than ask for the lock in vain
	anchors  []anchor
}

// involve finds the grants that the events are about.
func (s *scan) involve(events map[int]*history.Op) []*hold {
	var out []*hold
	note := func(h *hold) {
		if h != nil && !h.involved {
			h.involved = true
			out = append(out, h)
		}
	}
	open := map[history.Process]int64{} // events that name no grant
	for _, o := range events {
		if o.Grant.Set {
			note(s.byGrant[o.Grant.V])
		} else if o.Process.Worker() {
			open[o.Process] = max(open[o.Process], o.Time)
		}
	}
	if len(open) > 0 {
		latest := map[history.Process]*hold{}
		for _, h := range s.holds {
			if events[h.invokeIdx] != nil || events[h.okIdx] != nil {
				note(h)
			} else if t, ok := open[h.proc]; ok && h.ok <= t {
				latest[h.proc] = h
			}
		}
		for p, h := range latest {
			if !slices.ContainsFunc(out, func(x *hold) bool { return x.proc == p }) {
				note(h)
			}
		}
	}
	slices.SortFunc(out, func(a, b *hold) int { return cmp.Compare(a.okIdx, b.okIdx) })
	return out
}

// around gives the grants that stood at a time, for an anomaly none of whose
// events are there.
func (s *scan) around(t int64) []*hold {
	var out []*hold
	for _, h := range s.holds {
		if h.ok <= t && (h.end >= t || h.leaseEnd() >= t) {
			h.involved = true
			out = append(out, h)
		}
	}
	return out[max(0, len(out)-maxLanes):]
}

// leaseEnd is where the drawn lease ends; its ok if there is none.
func (h *hold) leaseEnd() int64 {
	if n := len(h.leases); n > 0 {
		return min(h.leases[n-1].to, h.released)
	}
	return h.ok
}

// frame chooses the stretch of time that is shown: the events, the beginnings
// of the grants that they are about, and their ends where these are near.
func (p *picture) frame(s *scan, holds []*hold, until int64) {
	p.from, p.to = never, until
	for _, o := range p.proof {
		p.from, p.to = min(p.from, o.Time), max(p.to, o.Time)
	}
	for i, h := range holds {
		p.from, p.to = min(p.from, h.ok), max(p.to, h.ok)
		if i == 0 {
			p.from = min(p.from, h.invoke)
		}
	}
	if p.from == never {
		p.from = p.to
	}
	near := p.to + (p.to-p.from)/2
	if p.focus != nil && p.focus.Process.Worker() { // what came of it is worth seeing
		near = p.to + (p.to - p.from)
	}
	if near == p.to { // one event alone
		near += 1e6
	}
	reach := func(t int64) {
		if t <= near {
			p.to = max(p.to, t)
		}
	}
	for _, h := range holds {
		reach(h.end)
		reach(h.leaseEnd())
		for _, f := range s.faults {
			if f.from <= p.to && slices.Contains(f.targets, h.proc) {
				reach(f.to)
			}
		}
	}
}

// populate chooses the lanes: first those of the anomaly, then whoever held the
// lock meanwhile.
// Of a lock that is stuck those that try belong to it, too.
func (p *picture) populate(s *scan, involved []*hold, stuck bool) {
	byProc := map[history.Process]*lane{}
	see := func(proc history.Process, rank int, began int64) *lane {
		l := byProc[proc]
		if l == nil {
			l = &lane{proc: proc, rank: rank, began: began}
			byProc[proc] = l
			p.lanes = append(p.lanes, l)
		}
		return l
	}
	for _, h := range involved {
		see(h.proc, rankStory, h.ok)
	}
	for _, o := range p.proof {
		if o.Process.Worker() {
			see(o.Process, rankStory, o.Time)
		}
	}
	for _, h := range s.holds {
		if h.ok <= p.to && max(h.end, h.leaseEnd()) >= p.from {
			l := see(h.proc, rankOther, h.ok)
			l.holds = append(l.holds, h)
		}
	}
	for proc, ps := range s.procs {
		if stuck && ps.tried.from <= p.to && ps.tried.to >= p.from {
			see(proc, rankOther, ps.tried.from)
		}
	}
	slices.SortFunc(p.lanes, func(a, b *lane) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.began, b.began), cmp.Compare(a.proc, b.proc))
	})
	for _, l := range p.lanes[min(len(p.lanes), maxLanes):] {
		p.leftOut[l.proc] = true
	}
	p.lanes = p.lanes[:min(len(p.lanes), maxLanes)]
	for _, f := range s.faults {
		if f.from <= p.to && f.to >= p.from && f.from != never {
			p.faults = append(p.faults, f)
		}
	}
}

// sent is what an access and its entry in the store share.
type sent struct {
	grant uint64
	f     string
	value string
}

func sentAs(o *history.Op) sent {
	k := sent{grant: o.Grant.Or(0), f: o.F}
	if o.F == history.Write {
		k.value = string(o.Value)
	}
	return k
}

// collect takes what happened to the key within the frame.
func (p *picture) collect(ops []history.Op) {
	lanes := map[history.Process]*lane{}
	for _, l := range p.lanes {
		lanes[l.proc] = l
	}
	invoked := map[history.Process]*history.Op{}
	flights := map[sent]flight{}
	for i := range ops {
		o := &ops[i]
		l := lanes[o.Process]
		switch {
		case o.Time > p.to || o.Process == history.Nemesis:
		case o.Process == history.Store:
			if o.Key != p.key {
				break
			}
			p.apply(o)
			if o.Time >= p.from {
				p.storeMark(o, flights)
			}
		case o.Key == p.key || l != nil && ofSession(o):
			if o.Time >= p.from {
				p.worker(l, invoked[o.Process], o, flights)
			}
			if o.Type == history.Invoke {
				invoked[o.Process] = o
			} else if !history.Single(o.F) {
				delete(invoked, o.Process)
			}
		}
	}
	for proc, o := range invoked {
		if l := lanes[proc]; l != nil && o.F == history.Acquire {
			l.waits = append(l.waits, stretch{o.Time, never})
		}
	}
}

// worker takes one event of a worker within the frame.
func (p *picture) worker(l *lane, invoke, o *history.Op, flights map[sent]flight) {
	if o.Type == history.Invoke && (o.F == history.Write || o.F == history.Read) {
		flights[sentAs(o)] = flight{proc: o.Process, at: o.Time, idx: o.Index, on: true}
	}
	if o == p.focus {
		p.point(o, invoke)
	}
	if l != nil && o.F == history.Acquire && o.Type != history.Invoke && invoke != nil {
		l.waits = append(l.waits, stretch{invoke.Time, o.Time})
	}
	p.workerMark(l, o)
}

// point chooses the mark of the focus: where its end has no mark of its own, as
// that of an acknowledged write, its beginning has.
func (p *picture) point(o, invoke *history.Op) {
	p.pointed = o.Index
	if _, ok := letterOf(o); !ok && invoke != nil && invoke.F == o.F {
		p.pointed = invoke.Index
	}
}

// ofSession reports whether an event ends what its process holds of any key.
func ofSession(o *history.Op) bool {
	if o.Type == history.Info {
		return !history.Single(o.F) || o.F == history.Lost && o.Key == ""
	}
	return o.F == history.Close
}

// apply follows what the store holds, up to the focus.
func (p *picture) apply(o *history.Op) {
	if o.Type != history.OK || (p.focus != nil && o.Index >= p.focus.Index) {
		return
	}
	if o.Token.Set && (!p.fence.Set || o.Token.V > p.fence.V) {
		p.fence = o.Token
	}
	if o.F == history.Write {
		p.before = mark{at: o.Time, idx: o.Index, value: o.Value, token: o.Token, letter: markWriteApplied}
	}
}

func (p *picture) storeMark(o *history.Op, flights map[sent]flight) {
	m := mark{at: o.Time, idx: o.Index, value: o.Value, token: o.Token, weight: 2}
	switch {
	case o.Type == history.Fail:
		m.letter, m.weight = markFenced, 3
	case o.Type != history.OK:
		return
	case o.F == history.Write:
		m.letter = markWriteApplied
	case o.F == history.Read:
		m.letter, m.weight = markReadApplied, 1
	default:
		return
	}
	p.store = append(p.store, p.weigh(m))
	k := sentAs(o)
	if o == p.focus {
		p.pointed = o.Index
		p.flight = flights[k]
	}
	delete(flights, k)
}

// weigh lets what is pointed out be seen, and gives it room.
func (p *picture) weigh(m mark) mark {
	rank := rankAccess
	if p.proof[m.idx] != nil {
		m.weight, rank = 10, rankProof
	}
	p.anchors = append(p.anchors, anchor{m.at, rank})
	return m
}

// workerMark files what a worker did. Those without a lane are counted.
func (p *picture) workerMark(l *lane, o *history.Op) {
	m, ok := letterOf(o)
	if !ok {
		return
	}
	if l == nil {
		p.leftOut[o.Process] = p.leftOut[o.Process] || m.letter != markRefused
		return
	}
	m.at, m.idx = o.Time, o.Index
	switch {
	case p.proof[m.idx] != nil:
		m = p.weigh(m)
	case m.letter == markRefused:
	case l.rank == rankStory:
		p.anchors = append(p.anchors, anchor{m.at, rankAccess})
	default:
		p.anchors = append(p.anchors, anchor{m.at, rankOther})
	}
	l.marks = append(l.marks, m)
}

// letterOf says how an event of a worker is drawn, if it is.
func letterOf(o *history.Op) (mark, bool) {
	single := o.Type == history.Info && history.Single(o.F)
	switch {
	case single && o.F == history.Renewed:
		return mark{letter: markRenew, weight: 1}, true
	case single && o.F == history.Lost:
		return mark{letter: markLost, weight: 6}, true
	case single:
	case o.Type == history.Info:
		return mark{letter: markUnknown, weight: 4}, true
	case o.F == history.Acquire && o.Type == history.OK:
		return mark{letter: markGranted, weight: 5}, true
	case o.F == history.Acquire && o.Type == history.Fail:
		return mark{letter: markRefused, weight: 0}, true
	case o.Type == history.Fail && o.Error == history.ErrNotHeld:
		return mark{letter: markLost, weight: 6}, true
	case o.Type != history.Invoke:
	case o.F == history.Write:
		return mark{letter: markWrite, weight: 3}, true
	case o.F == history.Read:
		return mark{letter: markRead, weight: 2}, true
	case o.F == history.Release, o.F == history.Close:
		return mark{letter: markRelease, weight: 4}, true
	case o.F == history.Renew:
		return mark{letter: markRenew, weight: 1}, true
	case o.F == history.Check:
		return mark{letter: markCheck, weight: 1}, true
	}
	return mark{}, false
}

// story adds the times of what is drawn beside the marks.
func (p *picture) story() {
	add := func(rank int, times ...int64) {
		for _, t := range times {
			if t != never {
				p.anchors = append(p.anchors, anchor{t, rank})
			}
		}
	}
	if p.flight.on {
		add(rankProof, p.flight.at)
	}
	for _, l := range p.lanes {
		for _, h := range l.holds {
			rank := rankOther
			if h.involved {
				rank = rankStory
			}
			add(rank, h.ok, h.end)
			for i, s := range h.leases {
				if i == len(h.leases)-1 && h.involved && h == l.holds[0] {
					add(rankProof, h.leaseEnd())
				}
				add(rank, min(s.to, h.released))
			}
		}
		for _, f := range p.faults {
			if slices.Contains(f.targets, l.proc) {
				add(l.rank, f.from, f.to)
			}
		}
	}
}
