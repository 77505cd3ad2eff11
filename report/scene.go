package report

import (
	"math"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/history"
)

// never is the end of what does not end in the history.
const never = math.MaxInt64

// A stretch of time; both ends belong to it.
type stretch struct{ from, to int64 }

// A hold is one grant of the key: what its user believed (from ok to end), and
// what it was promised.
type hold struct {
	key              string
	proc             history.Process
	grant, token     history.Opt[uint64]
	invoke, ok, end  int64
	invokeIdx, okIdx int
	leases           []stretch // by the promise; of a session, as far as it was proved
	session          bool
	released         int64 // when it was given up; never if it was not
	involved         bool  // an event of the anomaly is about it
}

// renew lets the lease go on, or begin anew if it had ended.
func (h *hold) renew(s stretch) {
	if n := len(h.leases); n > 0 && s.from <= h.leases[n-1].to {
		h.leases[n-1].to = max(h.leases[n-1].to, s.to)
		return
	}
	h.leases = append(h.leases, s)
}

// after gives the end of d ns from a time; of a lease without end, never.
func after(from, d int64) int64 {
	if d > never-from {
		return never
	}
	return from + max(d, 0)
}

// A fault is one that came into force.
type fault struct {
	name    string
	asked   int64
	from    int64 // never until it was in force
	to      int64
	targets []history.Process
	nodes   []string
}

const killFault = "kill"

// A scan follows one key, or all of them, through a history, in one pass. It looks
// at the rest only for what ends a section: a loss, a kill, the end of a process.
type scan struct {
	key       string
	all       bool
	reentrant bool

	procs    map[history.Process]*procScan
	holds    []*hold
	byGrant  map[uint64]*hold
	faults   []*fault
	byNumber map[int]*fault
	byName   map[string]*fault
	last     int64
}

type procScan struct {
	open   history.Op // the open invocation
	isOpen bool
	held   []*hold
	latest map[string]*hold // by key
	tried  stretch          // from its first to its last try to acquire the key
	heard  int64
}

func newScan(key string, reentrant bool) *scan {
	return &scan{
		key: key, reentrant: reentrant, procs: map[history.Process]*procScan{}, byGrant: map[uint64]*hold{},
		byNumber: map[int]*fault{}, byName: map[string]*fault{},
	}
}

// follows reports whether the scan is about a key.
func (s *scan) follows(key string) bool { return s.all || key == s.key }

// only gives what a scan of all keys found out about one.
func (s *scan) only(key string) *scan {
	one := *s
	one.key, one.all, one.holds = key, false, nil
	for _, h := range s.holds {
		if h.key == key {
			one.holds = append(one.holds, h)
		}
	}
	return &one
}

func (s *scan) add(o *history.Op) {
	s.last = max(s.last, o.Time)
	switch {
	case o.Process == history.Nemesis && o.F == history.Standings: // no fault
	case o.Process == history.Nemesis:
		s.nemesis(o)
	case !o.Process.Worker():
	case o.Type == history.Info && history.Single(o.F):
		p := s.proc(o.Process)
		p.heard = o.Time
		s.single(p, o)
	case o.Type == history.Invoke:
		p := s.proc(o.Process)
		p.open, p.isOpen = *o, true
		s.invoke(p, o)
	default:
		p := s.proc(o.Process)
		if p.isOpen {
			s.complete(p, &p.open, o)
		}
		p.isOpen, p.heard = false, o.Time
	}
}

func (s *scan) proc(id history.Process) *procScan {
	p := s.procs[id]
	if p == nil {
		p = &procScan{latest: map[string]*hold{}, tried: stretch{never, -never}}
		s.procs[id] = p
	}
	return p
}

// holdOf gives the hold that an event of the key speaks of.
func (s *scan) holdOf(o *history.Op) *hold {
	if o.Grant.Set {
		return s.byGrant[o.Grant.V]
	}
	if p := s.procs[o.Process]; p != nil && s.follows(o.Key) {
		return p.latest[o.Key]
	}
	return nil
}

func (s *scan) invoke(p *procScan, o *history.Op) {
	switch {
	case o.F == history.Close:
		for _, h := range p.held {
			h.released = min(h.released, o.Time)
		}
		p.endAll(o.Time)
	case !s.follows(o.Key):
	case o.F == history.Release:
		if h := s.holdOf(o); h != nil {
			h.released = min(h.released, o.Time)
			p.end(h, o.Time)
		}
	case o.F == history.Acquire:
		p.tried = stretch{min(p.tried.from, o.Time), never}
		if !s.reentrant {
			p.endKey(o.Key, o.Time)
		}
	}
}

func (s *scan) complete(p *procScan, open, o *history.Op) {
	if o.Type == history.Info {
		at := o.Time
		if strings.HasPrefix(o.Error, history.ErrCrashed) {
			at = p.heard
		}
		p.endAll(at)
	}
	if !s.follows(open.Key) {
		return
	}
	h := s.holdOf(open)
	switch {
	case open.F == history.Acquire:
		p.tried.to = o.Time
		if o.Type == history.OK {
			s.granted(p, open, o)
		}
	case o.Type == history.Fail && o.Error == history.ErrNotHeld:
		p.end(h, open.Time)
	case o.Type == history.OK && h != nil && renews(open.F, h, o):
		s.renewed(h, open.Time, o)
	}
}

// renews reports whether an ok says that the lease goes on.
func renews(f string, h *hold, o *history.Op) bool {
	switch f {
	case history.Renew, history.Release:
		return h.session || o.Valid.Set
	case history.Check:
		return o.Valid.Set || h.session && (o.Session || o.From.Set)
	}
	return false
}

func (s *scan) renewed(h *hold, sent int64, o *history.Op) {
	from := min(o.From.Or(sent), o.Time)
	switch {
	case h.session:
		h.renew(stretch{h.ok, max(sent, from)})
	case o.Valid.Set:
		h.renew(stretch{from, after(from, o.Valid.V)})
	}
}

func (s *scan) granted(p *procScan, open, o *history.Op) {
	h := &hold{
		key: open.Key, proc: o.Process, grant: o.Grant, token: o.Token, invoke: open.Time, ok: o.Time, end: never, released: never,
		invokeIdx: open.Index, okIdx: o.Index, session: o.Session && !o.Valid.Set,
	}
	switch {
	case o.Valid.Set:
		from := min(o.From.Or(open.Time), o.Time)
		h.renew(stretch{from, after(from, o.Valid.V)})
	case o.Session:
		h.renew(stretch{o.Time, o.Time})
	}
	s.holds = append(s.holds, h)
	if o.Grant.Set {
		s.byGrant[o.Grant.V] = h
	}
	p.held, p.latest[h.key] = append(p.held, h), h
}

func (s *scan) single(p *procScan, o *history.Op) {
	switch o.F {
	case history.Renewed:
		if h := s.holdOf(o); h != nil && o.From.Set {
			s.renewed(h, o.From.V, o)
		}
	case history.Lost:
		if o.Grant.Set {
			p.end(s.byGrant[o.Grant.V], o.Time)
		} else if o.Key == "" {
			p.endAll(o.Time)
		} else {
			p.endKey(o.Key, o.Time)
		}
	}
}

// end ends a section; the earliest reason counts.
func (p *procScan) end(h *hold, at int64) {
	if h == nil {
		return
	}
	h.end = min(h.end, max(at, h.ok))
	p.held = slices.DeleteFunc(p.held, func(x *hold) bool { return x == h })
}

// endKey ends the sections of one key.
func (p *procScan) endKey(key string, at int64) {
	for _, h := range slices.Clone(p.held) {
		if h.key == key {
			p.end(h, at)
		}
	}
}

func (p *procScan) endAll(at int64) {
	for _, h := range p.held {
		h.end = min(h.end, max(at, h.ok))
	}
	p.held = p.held[:0]
}

func (s *scan) nemesis(o *history.Op) {
	v, ok := history.FaultOf(o)
	if !ok || v.Phase == "" { // the first of a name is asked and in force, the second ends it
		if f := s.byName[o.F]; f != nil {
			delete(s.byName, o.F)
			f.to = o.Time
			return
		}
		f := s.newFault(o, &v)
		f.from = o.Time
		s.byName[o.F] = f
		s.kill(f)
		return
	}
	f := s.byNumber[v.Fault]
	if f == nil || v.Phase == history.Asked {
		f = s.newFault(o, &v)
		s.byNumber[v.Fault] = f
	}
	if len(v.Targets) > 0 {
		f.aim(&v)
	}
	switch v.Phase {
	case history.Done:
		f.from = o.Time
		if f.name == killFault {
			f.to = o.Time
		}
		s.kill(f)
	case history.Healed:
		f.to = o.Time
	}
}

func (s *scan) newFault(o *history.Op, v *history.Fault) *fault {
	f := &fault{name: o.F, asked: o.Time, from: never, to: never}
	f.aim(v)
	s.faults = append(s.faults, f)
	return f
}

func (f *fault) aim(v *history.Fault) {
	f.targets, f.nodes = v.Processes(), nil
	for _, t := range v.Targets {
		if len(t) > 0 && t[0] == '"' {
			f.nodes = append(f.nodes, clip(strings.Trim(string(t), `"`), 20))
		}
	}
}

// kill ends the sections of those killed, when it was asked for.
func (s *scan) kill(f *fault) {
	if f.name != killFault {
		return
	}
	for _, t := range f.targets {
		if p := s.procs[t]; p != nil {
			p.endAll(f.asked)
		}
	}
}
