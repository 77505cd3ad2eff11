package checker

import (
	"context"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/history"
)

// Check judges a whole history.
func Check(ctx context.Context, ops []history.Op, h history.Header) Results {
	j := New(h)
	for i := range ops {
		j.Add(&ops[i])
	}
	return j.Finish(ctx)
}

// A Judge judges a history event by event. It keeps what is open, and a short
// record of each grant for as long as something may still come of it; the events
// themselves are not kept. (Linearizability needs a record of each lock
// operation of a key; package linear keeps them.)
type Judge struct {
	header history.Header
	procs  map[history.Process]*proc
	recent [64]*proc // of procs, by the last bits of their numbers
	keys   map[string]*keyState
	same   *keyState   // the one asked for last, which most events are about
	order  []*keyState // as they appeared
	grants map[uint64]*grant
	latest *grant // the one granted last, which most events are about
	faults faults
	store  storeOrder
	now    int64
	unseen uint64 // numbers for grants that a history does not number

	results map[string]*Result
	exp     Exposure
	earned  earned
	avail   availability
	linear  linearity
}

// proc is what is known about one worker process.
type proc struct {
	id        history.Process
	open      *operation
	slot      operation // what open points to, used again and again
	lastHeard int64     // the last stamp of something that came from it
	held      []*grant  // whose sections it has not ended
	last      map[*keyState]*grant
	pending   []*keyState // with grants of its that are not judged yet
	dying     int         // kills that were asked for and are not yet done
}

// An operation is an open invocation.
type operation struct {
	f      string
	key    *keyState
	grant  *grant
	at     int64
	idx    int
	value  value
	valid  history.Opt[int64]
	ttl    history.Opt[int64]
	floor  tokenUse // acquire: the highest token granted before it was invoked
	begun  int64    // acquire: the invoke, or the last mark since
	lostAt history.Opt[int64]
	lostIx int
	lostOf history.Opt[uint64] // the grant that the loss was told about; none for the session
	rel    *releasing
	ending []*grant // close: what it held
}

// keyState is what is known about one key.
type keyState struct {
	name     string
	waiting  []*grant // granted, in the order of their oks; the first is not final yet
	active   []*grant // final, and their sections may reach into those to come
	held     int      // sections that nothing has ended
	awaiting []*grant // nobody was granted after them yet
	recent   []*grant // judged, oldest first, and not forgotten yet
	calm     int      // how many of the first faults were over before the latest grant
	lastProc history.Process
	hasLast  bool
	procs    map[history.Process]bool // granted to

	contended bool // an acquire waited or was refused

	tokens   map[uint64]tokenUse
	top, low tokenUse // highest token so far; the same without the latest stamp
	topAt    int64

	releases    []*releasing
	unconfirmed []*releasing // nobody was refused since they completed
	broken      []*brokenLease
	data        keyData
	tries       tries
	want        wanting
	standing    []history.Standing // on the servers, as they said themselves
	standingIdx int
	leftovers   []leftover // acquires that came to no clear end, since somebody was last granted
	blocks      []block    // in which progress is not asked for, because somebody holds
}

// New begins a judgement.
func New(h history.Header) *Judge {
	j := &Judge{
		header: h, procs: map[history.Process]*proc{}, keys: map[string]*keyState{}, grants: map[uint64]*grant{},
		results: map[string]*Result{}, unseen: 1 << 63,
	}
	for _, p := range Properties {
		j.results[p] = &Result{Verdict: Valid}
	}
	j.avail = newAvailability(&h)
	j.linear.start(h)
	return j
}

// NewCheap begins a judgement by all properties but [Linearizable], which is the one
// that needs all operations of a key at once: what this judge keeps is bounded by
// what is open, however long the history.
func NewCheap(h history.Header) *Judge {
	j := New(h)
	j.linear.builder = nil
	delete(j.results, Linearizable)
	return j
}

// Add takes the next event.
func (j *Judge) Add(o *history.Op) {
	j.now = max(j.now, o.Time)
	j.linear.add(o)
	switch {
	case o.Process == history.Nemesis && o.F == history.Standings:
		for key, ss := range history.StandingsOf(o) {
			if k := j.keys[key]; k != nil {
				k.standing, k.standingIdx = ss, o.Index
			}
		}
	case o.Process == history.Nemesis:
		j.nemesis(o)
	case o.Process == history.Store:
		j.storeEvent(o)
	case o.Type == history.Info && history.Single(o.F):
		j.single(j.process(o.Process), o)
	case o.Type == history.Invoke:
		j.invoke(j.process(o.Process), o)
	default:
		p := j.process(o.Process)
		op := p.open
		if op == nil {
			return // the readers refuse such a history
		}
		p.open = nil
		j.exp.Operations++
		j.complete(p, op, o)
		if !crashed(o) {
			p.lastHeard = o.Time
		}
		j.settle(p)
	}
}

func (j *Judge) process(id history.Process) *proc {
	slot := &j.recent[uint64(id)%uint64(len(j.recent))]
	if p := *slot; p != nil && p.id == id {
		return p
	}
	p := j.procs[id]
	if p == nil {
		p = &proc{id: id, last: map[*keyState]*grant{}}
		j.procs[id] = p
	}
	*slot = p
	return p
}

func (j *Judge) key(name string) *keyState {
	if k := j.same; k != nil && k.name == name {
		return k
	}
	k := j.keys[name]
	j.same = k
	if k == nil {
		k = &keyState{name: name, procs: map[history.Process]bool{}, tokens: map[uint64]tokenUse{}}
		j.keys[name], j.same = k, k
		j.order = append(j.order, k)
	}
	return k
}

// grantOf finds the grant that an event speaks of. A history that does not
// number its grants means the process's latest one of the key.
func (j *Judge) grantOf(p *proc, o *history.Op) *grant {
	if !o.Grant.Set {
		return p.last[j.key(o.Key)]
	}
	return j.numbered(o.Grant.V, o.Key)
}

func (j *Judge) numbered(id uint64, key string) *grant {
	if g := j.latest; g != nil && g.id == id {
		return g
	}
	g := j.grants[id]
	if g == nil {
		g = &grant{id: id, key: j.key(key), proc: history.Nemesis}
		j.grants[id] = g
	}
	return g
}

func (j *Judge) invoke(p *proc, o *history.Op) {
	p.slot = operation{f: o.F, key: j.key(o.Key), at: o.Time, idx: o.Index, valid: o.Valid, ttl: o.TTL}
	p.open = &p.slot
	op := p.open
	switch o.F {
	case history.Acquire:
		j.invokeAcquire(p, op)
	case history.Release:
		op.grant = j.grantOf(p, o)
		if g := op.grant; g != nil {
			j.endSection(p, g, o, "it began to release")
			if !g.release.Set {
				g.release, g.relIdx = history.Some(o.Time), o.Index
			}
		}
		j.earned.release = true
		invokeRelease(op)
	case history.Close:
		op.ending = slices.Clone(p.held)
		for _, g := range op.ending {
			g.release, g.relIdx = history.Some(o.Time), o.Index
			j.endSection(p, g, o, "it closed its session")
		}
	case history.Write, history.Read:
		op.grant = j.grantOf(p, o)
		j.invokeAccess(op, o)
	default:
		op.grant = j.grantOf(p, o)
	}
}

func (j *Judge) invokeAcquire(p *proc, op *operation) {
	k := op.key
	op.begun = op.at
	op.floor = k.topBefore(op.at)
	k.tries.begin(op.at, op.ttl.Or(j.header.TTL))
	j.avail.begin(k, p.id, op.at, op.ttl.Or(j.header.TTL))
	if j.header.Reentrant {
		return
	}
	for _, g := range slices.Clone(p.held) {
		if g.key == k {
			j.endSection(p, g, &history.Op{Time: op.at, Index: op.idx}, "it asked for the lock again")
		}
	}
}

// endSection files a reason for the end of g's section, as its user sees it.
func (j *Judge) endSection(p *proc, g *grant, o *history.Op, why string) {
	if !g.granted || o.Time < g.ok {
		return
	}
	if !g.ended {
		g.key.held--
	}
	g.endAt(o.Time, o.Index, why)
	p.held = slices.DeleteFunc(p.held, func(h *grant) bool { return h == g })
}

func (j *Judge) complete(p *proc, op *operation, o *history.Op) {
	if o.Type == history.Info {
		j.retire(p, op, o)
	}
	switch op.f {
	case history.Acquire:
		j.completeAcquire(p, op, o)
	case history.Renew, history.Check:
		j.completeRenewal(p, op, o)
	case history.Release:
		j.completeRelease(op, o)
	case history.Write:
		if op.grant != nil && o.Type != history.Info {
			op.grant.writes--
		}
		if o.Type == history.OK {
			j.acknowledged(op, o)
		}
	}
	if o.Type == history.Fail && o.Error == history.ErrNotHeld && op.grant != nil {
		g := op.grant
		if !g.notHeld.Set {
			g.notHeld = history.Some(o.Time)
		}
		j.endSection(p, g, &history.Op{Time: op.at, Index: op.idx}, "the server said that it does not hold the lock")
	}
}

// Why the section of one who died was over.
const (
	whyKilled  = "its process was killed"
	whyCrashed = "its worker crashed"
)

func crashed(o *history.Op) bool {
	return o.Type == history.Info && strings.HasPrefix(o.Error, history.ErrCrashed)
}

// retire ends the sections of a process one of whose operations ended as info.
// A worker that crashed believed nothing after the last that was heard from it.
func (j *Judge) retire(p *proc, op *operation, o *history.Op) {
	end, why := *o, "its operation ended as info"
	over := slices.Clone(p.held)
	if crashed(o) {
		end.Time, why = p.lastHeard, whyCrashed
		over = append(over, op.ending...) // the runner closes what an idle worker held when it died
		if op.grant != nil && op.f == history.Release {
			over = append(over, op.grant)
		}
	}
	j.exp.Info++
	clear(p.last)
	for _, g := range over {
		at := end
		at.Time = max(at.Time, g.ok)
		j.endSection(p, g, &at, why)
	}
}

// single takes what a worker tells without being asked.
func (j *Judge) single(p *proc, o *history.Op) {
	p.lastHeard = o.Time
	switch o.F {
	case history.Mark:
		if op := p.open; op != nil && op.f == history.Acquire && (o.Key == "" || o.Key == op.key.name) {
			op.begun, op.lostAt = o.Time, history.Opt[int64]{}
		}
	case history.Renewed:
		if g := j.grantOf(p, o); g != nil && g.granted {
			j.background(g, o)
		}
	case history.Lost:
		j.lost(p, o)
		j.settle(p)
	}
}

// settle looks which sections of p's keys are final now and judges them.
func (j *Judge) settle(p *proc) {
	p.pending = slices.DeleteFunc(p.pending, func(k *keyState) bool {
		j.emit(k)
		return !slices.ContainsFunc(k.waiting, func(g *grant) bool { return g.proc == p.id })
	})
}

// emit judges the grants of a key, in the order of their oks, as far as their
// sections are final.
func (j *Judge) emit(k *keyState) {
	for len(k.waiting) > 0 && j.final(k.waiting[0]) {
		g := k.waiting[0]
		k.waiting = k.waiting[1:]
		j.judge(g)
	}
}

// final reports whether nothing that comes can move the section's end: a check
// or renewal still open may turn out to have failed, and ends it at its invoke;
// a worker may turn out to have crashed, and believed nothing after what was
// heard from it last; a kill that was asked for may turn out to have been skipped.
func (j *Judge) final(g *grant) bool {
	p := j.procs[g.proc]
	return g.ended && p.dying == 0 && (p.open == nil || (p.open.grant != g && g.end.at <= p.lastHeard))
}

func (j *Judge) judge(g *grant) {
	k := g.key
	g.settle()
	j.countGrant(g)
	j.available(g)
	k.active = slices.DeleteFunc(k.active, func(h *grant) bool { return h.end.at <= g.ok })
	for _, h := range k.active {
		if h.proc == g.proc {
			continue
		}
		j.overlap(h, g)
		j.leaseOverlap(h, g)
	}
	k.active = append(k.active, g)
	k.block(g)
	j.remember(g)
}

// keepGrants is how many judged grants of a key are remembered at least: a
// duplicate of an old request may still arrive.
const keepGrants = 1024

// remember keeps a judged grant and forgets the oldest ones. One with a write
// whose outcome nobody knows is kept: that write may come at any time.
func (j *Judge) remember(g *grant) {
	k := g.key
	k.recent = append(k.recent, g)
	for len(k.recent) > keepGrants {
		old := k.recent[0]
		k.recent = k.recent[1:]
		if old.writes > 0 {
			continue
		}
		if j.grants[old.id] == old {
			delete(j.grants, old.id)
		}
		if t := old.token; t.Set && k.tokens[t.V].grant == old {
			delete(k.tokens, t.V)
		}
	}
}

// Finish ends the history and gives the judgement.
func (j *Judge) Finish(ctx context.Context) Results {
	for _, p := range j.procs {
		p.dying = 0
		if op := p.open; op != nil { // still open is info: it ends after everything
			indeterminateRenewal(op, &history.Op{})
			p.open = nil
			j.exp.Info++
		}
	}
	for _, f := range j.faults.all {
		if f.name == killFault && !f.skipped && f.done == inf {
			j.killed(f)
		}
	}
	for _, k := range j.order {
		for _, g := range k.waiting {
			if !g.ended {
				g.endAt(inf, -1, "the history ends")
			}
		}
		j.emit(k)
	}
	avail := j.finishAvailability()
	j.finishStore()
	for _, k := range j.order {
		j.explainBroken(k)
		j.stuck(k)
	}
	j.linear.finish(ctx, j)
	res := j.conclude()
	res.Availability = avail
	return res
}

// conclude turns what was found into verdicts.
func (j *Judge) conclude() Results {
	j.finishExposure()
	for name, r := range j.results {
		j.decide(name, r)
		slices.SortStableFunc(r.Anomalies, func(a, b Anomaly) int { return int(min(max(a.Time-b.Time, -1), 1)) })
	}
	res := Results{Properties: j.results, Exposure: j.exp, illegal: j.linear.illegal}
	for _, n := range j.faults.neverInForce() {
		res.Reasons = append(res.Reasons, NeverInForce(n))
	}
	req := j.header.Require
	if len(req) == 0 {
		req = DefaultRequired
	}
	res.Require(req)
	return res
}

// report files an anomaly. from and to are the times of its first and last event.
func (j *Judge) report(property string, a Anomaly, from, to int64) {
	a.Faults = j.faults.during(from, to)
	a.Time = to
	if a.Ops == nil {
		a.Ops = []int{}
	}
	j.results[property].add(a)
}

// Found is how many anomalies of the required properties were found so far.
func (j *Judge) Found() int {
	req := j.header.Require
	if len(req) == 0 {
		req = DefaultRequired
	}
	n := 0
	for _, name := range req {
		if r := j.results[name]; r != nil {
			n += r.AnomalyCount
		}
	}
	return n
}
