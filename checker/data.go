package checker

import (
	"container/heap"
	"fmt"
	"strconv"

	"github.com/lockcheck/lockcheck/history"
)

// Kinds of anomalies of data.
const (
	kindStaleWrite       = "stale-write"
	kindLostUpdate       = "lost-update"
	kindWriteOutsideHold = "write-outside-hold"
)

// window is how many entries of the store may be out of order in the history.
// The runner records them as they happen, so that they hardly ever are.
const window = 4096

// An access is an entry of the store: a read or a write that it applied.
type access struct {
	seq   uint64
	idx   int
	at    int64
	key   *keyState
	grant *grant
	token history.Opt[uint64]
	write bool
	value value
}

// A value is what was read or written: a number, or, where another tool wrote
// something else, its text.
type value struct {
	n    int64
	text string // of what is no number
}

func valueOf(raw []byte) value {
	if n, ok := parseInt(raw); ok {
		return value{n: n}
	}
	if len(raw) == 0 {
		return value{text: "nothing"}
	}
	return value{text: string(raw)}
}

// parseInt reads a decimal number of up to eighteen digits, which is all that a
// counter comes to.
func parseInt(raw []byte) (n int64, ok bool) {
	digits := raw
	if len(raw) > 0 && raw[0] == '-' {
		digits = raw[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if len(digits) < len(raw) {
		n = -n
	}
	return n, true
}

// isInt reports whether it is a number.
func (v value) isInt() bool { return v.text == "" }

func (v value) String() string {
	if v.text != "" {
		return v.text
	}
	return strconv.FormatInt(v.n, 10)
}

// storeOrder brings the store's entries into the store's own order.
type storeOrder struct {
	queue   entries
	next    uint64 // for entries without a number
	applied map[ackKey]int
	acked   map[ackKey][]ack
	any     bool
	late    bool // an entry came when its place had already been judged
	lastSeq uint64
}

// ackKey is what an acknowledged write and its entry in the store share.
type ackKey struct {
	key   *keyState
	grant uint64
	value value
}

type ack struct {
	invokeIdx, idx int
	invoke, at     int64
	proc           history.Process
}

type entries []access

func (e entries) Len() int           { return len(e) }
func (e entries) Less(a, b int) bool { return e[a].seq < e[b].seq }
func (e entries) Swap(a, b int)      { e[a], e[b] = e[b], e[a] }
func (e *entries) Push(x any)        { *e = append(*e, x.(access)) }
func (e *entries) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// storeEvent takes what the store says that it applied or refused.
func (j *Judge) storeEvent(o *history.Op) {
	s := &j.store
	s.any = true
	write := o.F == history.Write
	if o.Type == history.Fail && o.Error == history.ErrFenced {
		if write {
			j.exp.WritesRefused++
		} else {
			j.exp.ReadsRefused++
		}
	}
	if o.Type != history.OK || (!write && o.F != history.Read) {
		return
	}
	if !o.Token.Set {
		j.exp.AccessesWithoutToken++
	}
	a := access{seq: o.Seq.Or(s.next), idx: o.Index, at: o.Time, key: j.key(o.Key), token: o.Token, write: write, value: valueOf(o.Value)}
	s.next = a.seq + 1
	if o.Grant.Set {
		a.grant = j.numbered(o.Grant.V, o.Key)
	}
	if write {
		s.match(ackKey{a.key, o.Grant.V, a.value})
	}
	if len(s.queue) == 0 && a.seq == s.lastSeq+1 {
		j.apply(a) // nothing can come before it
		return
	}
	heap.Push(&s.queue, a)
	for len(s.queue) > window {
		j.apply(heap.Pop(&s.queue).(access))
	}
}

// match pairs an entry with a write that is, or will be, acknowledged.
func (s *storeOrder) match(k ackKey) {
	if s.applied == nil {
		s.applied = map[ackKey]int{}
	}
	if as := s.acked[k]; len(as) > 0 {
		if s.acked[k] = as[1:]; len(as) == 1 {
			delete(s.acked, k)
		}
		return
	}
	s.applied[k]++
}

// acknowledged takes a write that the worker was told is done.
func (j *Judge) acknowledged(op *operation, o *history.Op) {
	s := &j.store
	k := ackKey{op.key, 0, op.value}
	if op.grant != nil && op.grant.id < 1<<63 {
		k.grant = op.grant.id
	}
	if n := s.applied[k]; n > 0 {
		if s.applied[k] = n - 1; n == 1 {
			delete(s.applied, k)
		}
		return
	}
	if s.acked == nil {
		s.acked = map[ackKey][]ack{}
	}
	s.acked[k] = append(s.acked[k], ack{op.idx, o.Index, op.at, o.Time, o.Process})
}

// finishStore judges what is left in the queue, and the writes that were
// acknowledged and never reached the store.
func (j *Judge) finishStore() {
	s := &j.store
	for len(s.queue) > 0 {
		j.apply(heap.Pop(&s.queue).(access))
	}
	if !s.any {
		return
	}
	for k, as := range s.acked {
		for _, a := range as {
			msg := fmt.Sprintf("process %d was told that its write of %v to %s (grant %d) was done, and the store has no such entry", a.proc, k.value, quoted(k.key.name), k.grant)
			j.report(Data, Anomaly{Kind: kindLostUpdate, Key: k.key.name, Ops: []int{a.invokeIdx, a.idx}, Message: msg}, a.invoke, a.at)
		}
	}
}

// keyData is what is known about the register of one key, in store order.
type keyData struct {
	place       int
	last, other touch // the latest access, and the latest of another grant than that
	top         access
	written     access
	hasWritten  bool
	first       *grant
}

type touch struct {
	grant *grant
	place int
	a     access
}

// apply judges one entry of the store, in the store's order.
func (j *Judge) apply(a access) {
	j.store.late = j.store.late || a.seq < j.store.lastSeq
	j.store.lastSeq = max(j.store.lastSeq, a.seq)
	d := &a.key.data
	d.place++
	j.results[Data].Checked++
	j.staleToken(d, a)
	if g := a.grant; g != nil {
		if a.write {
			j.staleWrite(d, a)
			j.outsideHold(a)
		}
		d.touch(a)
		if d.first == nil {
			d.first = g
		}
		j.earned.twoAccessors = j.earned.twoAccessors || d.first != g
	}
	if a.write {
		j.lostUpdate(d, a)
		d.written, d.hasWritten = a, true
	}
}

func (d *keyData) touch(a access) {
	g := a.grant
	if g.firstAccess == 0 {
		g.firstAccess, g.firstAccessIdx = d.place, a.idx
	}
	if d.last.grant != nil && d.last.grant != g {
		d.other = d.last
	}
	d.last = touch{g, d.place, a}
}

func (j *Judge) staleToken(d *keyData, a access) {
	if !a.token.Set {
		return
	}
	if d.top.token.Set && a.token.V < d.top.token.V {
		msg := fmt.Sprintf("the store applied a %s of %s with token %d%s after it had applied one with token %d%s",
			a.verb(), quoted(a.key.name), a.token.V, a.by(), d.top.token.V, d.top.by())
		j.report(Fencing, Anomaly{Kind: kindStaleTokenApplied, Key: a.key.name, Ops: []int{d.top.idx, a.idx}, Message: msg}, d.top.at, a.at)
		return
	}
	d.top = a
}

func (a *access) verb() string {
	if a.write {
		return history.Write
	}
	return history.Read
}

// by names who made an access, where that is known.
func (a *access) by() string {
	if a.grant == nil {
		return ""
	}
	return " (" + a.grant.says("", history.Opt[uint64]{}) + ")"
}

// staleWrite: an access of g, then an access of another grant, then a write of g.
func (j *Judge) staleWrite(d *keyData, a access) {
	g := a.grant
	between := d.last
	if between.grant == g {
		between = d.other
	}
	if g.firstAccess == 0 || between.grant == nil || between.place < g.firstAccess {
		return
	}
	j.exp.StaleWritesApplied++
	b := between.a
	msg := fmt.Sprintf("%s%s; in between %s", g.says("wrote "+a.value.String(), a.token), g.lateness(a.at), between.grant.says(b.did(), history.Opt[uint64]{}))
	j.report(Data, Anomaly{Kind: kindStaleWrite, Key: a.key.name, Ops: []int{g.firstAccessIdx, b.idx, a.idx}, Message: msg}, min(b.at, a.at), a.at)
}

// says names the process and the grant of an access.
func (g *grant) says(did string, token history.Opt[uint64]) string {
	who := "somebody"
	if g.granted {
		who = fmt.Sprintf("process %d", g.proc)
	}
	if did == "" {
		return fmt.Sprintf("%s under grant %d", who, g.id)
	}
	s := fmt.Sprintf("%s %s under grant %d", who, did, g.id)
	if token.Set {
		s += fmt.Sprintf(", token %d", token.V)
	}
	return s
}

// lateness says how long a lease was over at time t.
func (g *grant) lateness(t int64) string {
	if !g.granted || g.promise == forever {
		return ""
	}
	if g.promise == session {
		if e := g.proof; t > e {
			return fmt.Sprintf(", %s after its session was last proved alive", ms(t-e))
		}
		return ""
	}
	if e := g.promisedEnd(); t > e {
		return fmt.Sprintf(", %s after its lease ended", ms(t-e))
	}
	return ""
}

func (a *access) did() string {
	if a.write {
		return "had written " + a.value.String()
	}
	return "had read the register"
}

// lostUpdate: an applied write that is not its predecessor's value + 1.
func (j *Judge) lostUpdate(d *keyData, a access) {
	w := d.written
	if !d.hasWritten || !w.value.isInt() || !a.value.isInt() || a.value.n == w.value.n+1 {
		return
	}
	due := w.value.n + 1
	msg := fmt.Sprintf("the store applied %v to %s where %d was due: it held %v", a.value, quoted(a.key.name), due, w.value)
	if a.grant != nil && w.grant != nil {
		msg = fmt.Sprintf("%s to %s where %d was due: %s", a.grant.says("wrote "+a.value.String(), a.token), quoted(a.key.name), due, w.grant.says(w.did(), w.token))
	}
	j.report(Data, Anomaly{Kind: kindLostUpdate, Key: a.key.name, Ops: []int{w.idx, a.idx}, Message: msg}, w.at, a.at)
}

// outsideHold: a write that was applied after its own release or close was
// invoked, or that was invoked when its holder already knew that it held no more.
func (j *Judge) outsideHold(a access) {
	g := a.grant
	if g.release.Set && a.at > g.release.V {
		msg := fmt.Sprintf("%s to %s, %s after it had begun to give the lock up", g.says("wrote "+a.value.String(), a.token), quoted(a.key.name), ms(a.at-g.release.V))
		j.report(Data, Anomaly{Kind: kindWriteOutsideHold, Key: a.key.name, Ops: []int{g.relIdx, a.idx}, Message: msg}, g.release.V, a.at)
		return
	}
	for i, w := range g.outside {
		if w.value != a.value || a.at < w.at {
			continue
		}
		msg := fmt.Sprintf("%s to %s although it %s", g.says("wrote "+a.value.String(), a.token), quoted(a.key.name), w.why)
		j.report(Data, Anomaly{Kind: kindWriteOutsideHold, Key: a.key.name, Ops: []int{w.idx, a.idx}, Message: msg}, a.at, a.at)
		g.outside = append(g.outside[:i:i], g.outside[i+1:]...)
		return
	}
}

// invokeAccess notes what is known when a read or write is begun.
func (j *Judge) invokeAccess(op *operation, o *history.Op) {
	if top := op.key.top; o.Token.Set && top.set && o.Token.V < top.token {
		j.exp.StaleAccessesSent++
	}
	g := op.grant
	if o.F != history.Write {
		return
	}
	op.value = valueOf(o.Value)
	if g == nil {
		return
	}
	g.writes++
	switch {
	case g.lost.Set && o.Time > g.lost.V:
		g.outside = append(g.outside, outsideWrite{op.value, o.Index, o.Time, "had been told that the lock was lost"})
	case g.notHeld.Set && o.Time > g.notHeld.V:
		g.outside = append(g.outside, outsideWrite{op.value, o.Index, o.Time, "had been told that it did not hold the lock"})
	}
}
