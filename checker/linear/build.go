package linear

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/history"
)

// A Builder turns the events of a history, in order, into the lock operations of
// each key. It keeps about seventy bytes for each of them and nothing else, so a
// history larger than memory can be read past it.
type Builder struct {
	reentrant bool
	keys      []*keyOps
	byName    map[string]*keyOps
	procs     map[history.Process]*process
	recent    [64]*process // of procs, by the last bits of their numbers
	kills     []*kill
	unsettled int // kills that are asked for and neither done nor skipped
	now       int64
}

// keyOps are the operations of one key.
type keyOps struct {
	name    string
	ops     opList
	grants  int32
	numbers map[uint64]int32 // of the history's grants
	odd     string           // why the key cannot be decided
	nested  bool             // some process acquired again what it held
}

// process is what is known about a worker process.
type process struct {
	id     history.Process
	open   pending
	heard  int64   // the last stamp that came from the worker itself
	latest *keyOps // that it asked about
	holds  map[*keyOps]hold
	kills  []*kill // asked for and perhaps not done yet
}

// pending is an operation that was invoked and not completed.
type pending struct {
	f     string // empty: none
	key   *keyOps
	call  int64
	index int
	grant history.Opt[uint64]
}

// hold is the latest grant of a key to a process.
type hold struct {
	grant    int32
	depth    int32 // of re-entries; 0 once it was released
	session  bool
	numbered bool
	over     bool // the process was told that it holds no longer, or ended its session
}

// NewBuilder starts a history.
func NewBuilder(h history.Header) *Builder {
	return &Builder{
		reentrant: h.Reentrant,
		byName:    map[string]*keyOps{},
		procs:     map[history.Process]*process{},
		now:       Dawn + 1,
	}
}

// Add takes the next event. It keeps nothing of o.
func (b *Builder) Add(o *history.Op) {
	b.now = max(b.now, min(o.Time, Forever-1))
	switch {
	case o.Process == history.Nemesis:
		if o.F == faultKill {
			b.kill(o)
		}
	case !o.Process.Worker():
	case o.Type == history.Info && history.Single(o.F):
		b.single(o)
	case o.Type == history.Invoke:
		b.invoke(o)
	default:
		b.complete(o)
	}
}

func (b *Builder) key(name string) *keyOps {
	k := b.byName[name]
	if k == nil {
		k = &keyOps{name: name, numbers: map[uint64]int32{}}
		b.byName[name] = k
		b.keys = append(b.keys, k)
	}
	return k
}

func (b *Builder) process(id history.Process) *process {
	slot := &b.recent[uint64(id)%uint64(len(b.recent))]
	if p := *slot; p != nil && p.id == id {
		return p
	}
	p := b.procs[id]
	if p == nil {
		p = &process{id: id, heard: b.now, holds: map[*keyOps]hold{}}
		b.procs[id] = p
	}
	*slot = p
	return p
}

// key is Builder.key for a process: it mostly goes on with the key that it had.
func (p *process) key(b *Builder, name string) *keyOps {
	if p.latest == nil || p.latest.name != name {
		p.latest = b.key(name)
	}
	return p.latest
}

// lockOp reports whether f is an operation that this package judges.
func lockOp(f string) bool {
	return f == history.Acquire || f == history.Release || f == history.Renew
}

func (b *Builder) invoke(o *history.Op) {
	p := b.process(o.Process)
	b.abandon(p) // a well-formed history has nothing open here
	p.open = pending{f: o.F, call: b.now, index: o.Index, grant: o.Grant}
	if lockOp(o.F) {
		p.open.key = p.key(b, o.Key)
	}
	if o.F == history.Close {
		p.letGo(b.now, o.Index, Closed)
		for k := range p.holds {
			p.over(k)
		}
	}
}

// over ends what the process believes of its hold of k: acquiring it again is not
// a re-entry.
func (p *process) over(k *keyOps) {
	if h, ok := p.holds[k]; ok {
		h.over = true
		p.holds[k] = h
	}
}

// abandon takes an operation that will not complete as indeterminate.
func (b *Builder) abandon(p *process) {
	open := p.open
	p.open = pending{}
	if open.key != nil {
		b.indeterminate(p, open, &history.Op{F: open.f, Index: -1})
	}
}

func (b *Builder) complete(o *history.Op) {
	p := b.process(o.Process)
	open := p.open
	p.open = pending{}
	if open.f != o.F {
		open = pending{f: o.F, call: Dawn, index: -1, grant: o.Grant}
		if lockOp(o.F) {
			open.key = b.key(o.Key)
		}
	}
	if o.Grant.Set {
		open.grant = o.Grant
	}
	if open.key != nil {
		switch o.Type {
		case history.OK:
			b.ok(p, open, o)
		case history.Fail:
			b.denied(p, open, o)
		default:
			b.indeterminate(p, open, o)
		}
	}
	if o.Type == history.Fail && o.Error == history.ErrNotHeld {
		p.over(b.byName[o.Key])
	}
	if strings.HasPrefix(o.Error, history.ErrCrashed) {
		p.letGo(p.heard, o.Index, Crashed)
	}
	p.heard = b.now
	if o.Type == history.Info {
		p.letGo(b.now, o.Index, Retired)
		b.retire(p)
	}
}

// retire forgets a process whose number is not used again. While a kill is on its
// way it is kept: the kill may turn out to have been what ended it.
func (b *Builder) retire(p *process) {
	if b.unsettled == 0 {
		delete(b.procs, p.id)
		b.recent[uint64(p.id)%uint64(len(b.recent))] = nil
	}
}

// letGo adds an indeterminate release, from that stamp on, of what p holds.
func (p *process) letGo(at int64, index int, why Cause) {
	for k, h := range p.holds {
		if h.depth > 0 {
			k.ops.add(Op{Kind: Release, Outcome: Info, Cause: why, Grant: h.grant, Process: int64(p.id),
				Call: at, Return: Forever, Completed: place(index), Invoked: -1})
		}
	}
}

// place narrows an index. A history of more than two thousand million events
// loses the places of the late ones, not the verdict.
func place(index int) int32 {
	if index < 0 || index > math.MaxInt32 {
		return -1
	}
	return int32(index)
}

// operation is what all operations have in common.
func (b *Builder) operation(p *process, open pending, o *history.Op) Op {
	return Op{Process: int64(p.id), Call: open.call, Return: b.now,
		Invoked: place(open.index), Completed: place(o.Index), Grant: NoGrant}
}

func (b *Builder) ok(p *process, open pending, o *history.Op) {
	switch o.F {
	case history.Acquire:
		b.granted(p, open, o)
	case history.Release:
		if g, ok := b.held(p, open, o); ok {
			b.released(p, open, o, g)
		}
	case history.Renew:
		if g, ok := b.held(p, open, o); ok {
			op := b.operation(p, open, o)
			op.Kind, op.Outcome, op.Grant = Renew, OK, g
			op.Deadline = b.renewedUntil(p, open, o, g)
			open.key.ops.add(op)
		}
	}
}

// granted takes an acquire that was answered with ok.
func (b *Builder) granted(p *process, open pending, o *history.Op) {
	k := open.key
	op := b.operation(p, open, o)
	h := p.holds[k]
	if b.reentrant && h.depth > 0 && !h.over {
		b.reentered(p, open, o, h)
		return
	}
	op.Kind, op.Outcome = Acquire, OK
	op.Token, op.HasToken = o.Token.V, o.Token.Set
	op.Deadline = b.leasedUntil(open, o)
	op.Grant = k.newGrant(open.grant)
	k.ops.add(op)
	p.holds[k] = hold{grant: op.Grant, depth: 1, session: o.Session, numbered: open.grant.Set}
	p.dieWith(k, op.Grant, open.call)
}

// reentered takes an acquire of a key that the process holds already.
func (b *Builder) reentered(p *process, open pending, o *history.Op, h hold) {
	k := open.key
	k.nested = true
	op := b.operation(p, open, o)
	op.Kind, op.Outcome, op.Cause, op.Grant = Renew, OK, Reentry, h.grant
	op.Deadline = b.leasedUntil(open, o)
	k.ops.add(op)
	if open.grant.Set {
		k.numbers[open.grant.V] = h.grant
	}
	h.depth++
	h.session = h.session || o.Session
	p.holds[k] = h
}

func (k *keyOps) newGrant(number history.Opt[uint64]) int32 {
	g := k.grants
	k.grants++
	if number.Set {
		if _, twice := k.numbers[number.V]; twice {
			k.odd = fmt.Sprintf("the grant number %d was given to two acquires, so its releases cannot be told apart", number.V)
		}
		k.numbers[number.V] = g
	}
	return g
}

// released takes a release that was answered with ok. Only the outermost release
// of a re-entrant lock lets others in.
func (b *Builder) released(p *process, open pending, o *history.Op, g int32) {
	h, held := p.holds[open.key]
	held = held && h.grant == g
	if held && h.depth > 1 {
		h.depth--
		p.holds[open.key] = h
		return
	}
	op := b.operation(p, open, o)
	op.Kind, op.Outcome, op.Grant = Release, OK, g
	open.key.ops.add(op)
	if !held {
		return
	}
	if h.numbered {
		delete(p.holds, open.key)
		return
	}
	h.depth = 0 // kept, so that a second release without a number has a grant
	p.holds[open.key] = h
}

// denied takes a failure. Only "held" and "not-held" say something about the
// lock; any other failure proves no more than that the operation did not happen.
func (b *Builder) denied(p *process, open pending, o *history.Op) {
	op := b.operation(p, open, o)
	op.Outcome = Denied
	switch {
	case o.F == history.Acquire && o.Error == history.ErrHeld:
		op.Kind = Acquire
	case o.F == history.Release && o.Error == history.ErrNotHeld:
		op.Kind = Release
	case o.F == history.Renew && o.Error == history.ErrNotHeld:
		op.Kind = Renew
	default:
		return
	}
	if op.Kind != Acquire {
		g, ok := open.key.find(p, open.grant)
		if !ok {
			return // true of a grant that never was
		}
		op.Grant = g
	}
	open.key.ops.add(op)
}

// indeterminate takes an operation of which nobody knows whether it happened.
func (b *Builder) indeterminate(p *process, open pending, o *history.Op) {
	k := open.key
	op := b.operation(p, open, o)
	op.Outcome, op.Return = Info, Forever
	switch o.F {
	case history.Acquire:
		// Its process is retired, and its session may be closed at once.
		op.Kind, op.Deadline = Acquire, op.Call
		op.Grant = k.newGrant(open.grant)
	case history.Release, history.Renew:
		g, ok := k.find(p, open.grant)
		if !ok {
			return
		}
		op.Kind, op.Grant = Release, g
		if o.F == history.Renew {
			op.Kind = Renew
			op.Deadline = b.renewedUntil(p, open, o, g)
		}
	}
	k.ops.add(op)
}

// find gives the grant with that number, or without one the latest grant of the
// key to p.
func (k *keyOps) find(p *process, number history.Opt[uint64]) (int32, bool) {
	if number.Set {
		g, ok := k.numbers[number.V]
		return g, ok
	}
	h, ok := p.holds[k]
	return h.grant, ok
}

// held finds the grant of an operation that can only have succeeded for a holder.
func (b *Builder) held(p *process, open pending, o *history.Op) (int32, bool) {
	g, ok := open.key.find(p, open.grant)
	if !ok && open.key.odd == "" {
		what := "a grant that it was never given"
		if open.grant.Set {
			what = fmt.Sprintf("grant %d, which the history never grants", open.grant.V)
		}
		open.key.odd = fmt.Sprintf("process %d succeeded in a %s of %s: a piece of the history may be missing", p.id, o.F, what)
	}
	return g, ok
}

// leasedUntil is the deadline that an acquire's ok promises.
func (b *Builder) leasedUntil(open pending, o *history.Op) int64 {
	switch {
	case o.Session:
		return Dawn
	case o.Valid.Set:
		return add(b.from(open, o), o.Valid.V)
	}
	return Forever
}

// renewedUntil is the deadline that a renewal sets if it took effect.
func (b *Builder) renewedUntil(p *process, open pending, o *history.Op, g int32) int64 {
	if h, ok := p.holds[open.key]; ok && h.grant == g && h.session {
		return Dawn
	}
	if o.Session || !o.Valid.Set {
		return open.call
	}
	return add(b.from(open, o), o.Valid.V)
}

// from is the stamp that a validity counts from.
func (b *Builder) from(open pending, o *history.Op) int64 {
	return min(o.From.Or(open.call), b.now)
}

// single takes an event that stands alone.
func (b *Builder) single(o *history.Op) {
	p := b.process(o.Process)
	p.heard = b.now
	if o.F == history.Lost {
		p.over(b.byName[o.Key])
	}
	if o.F != history.Renewed || !o.From.Set || o.From.V > b.now {
		return
	}
	k := b.byName[o.Key]
	if k == nil {
		return
	}
	h := p.holds[k]
	if !o.Grant.Set && (h.depth == 0 || p.open.key == k && p.open.f == history.Acquire) {
		return
	}
	g, ok := k.find(p, o.Grant)
	if !ok {
		return
	}
	open := pending{f: history.Renew, key: k, call: o.From.V, index: -1}
	op := b.operation(p, open, o)
	op.Kind, op.Outcome, op.Cause, op.Grant = Renew, OK, Background, g
	op.Deadline = b.renewedUntil(p, open, o, g)
	k.ops.add(op)
}

// closeOpen ends the history: what is open never completes, and the kills that
// were not skipped have happened.
func (b *Builder) closeOpen() {
	ids := make([]history.Process, 0, len(b.procs))
	for id := range b.procs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		b.abandon(b.procs[id])
	}
	for _, kl := range b.kills {
		kl.apply()
	}
	b.procs, b.kills, b.byName, b.recent = nil, nil, nil, [len(b.recent)]*process{}
}

// loosenNested turns what a re-entrant process says of a lock that it acquired
// twice into what it proves whatever the lock does: each re-entry may have been a
// grant of its own, and each release and renewal may have been of either.
func loosenNested(ops opList, grants int32) (opList, int32) {
	nested := map[int32]bool{}
	for _, o := range ops.all() {
		if o.Cause == Reentry {
			nested[o.Grant] = true
		}
	}
	var out opList
	for _, p := range ops.all() {
		o := *p
		switch {
		case o.Cause == Reentry:
			o.Kind, o.Outcome, o.Return, o.Deadline, o.Grant = Acquire, Info, Forever, o.Call, grants
			grants++
		case nested[o.Grant] && o.Kind != Acquire:
			if o.Outcome == Denied {
				continue
			}
			o.Outcome, o.Return, o.Deadline = Info, Forever, o.Call
		}
		out.add(o)
	}
	return out, grants
}
