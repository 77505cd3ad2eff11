package model

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

// Options limit the work. The zero value is good for ordinary use.
type Options struct {
	Timeout time.Duration // of all keys together; 0 means a minute
	Memory  int64         // of one key's search, in bytes; 0 means 256 MB
	Reentry int           // how often a re-entrant lock may be held; 0 means DefaultReentry
}

// A Judge takes a history event by event and judges it at the end.
type Judge struct {
	model string
	opts  Options

	n       int // events so far
	open    map[history.Process]*pending
	keys    map[string]*keyOps
	order   []*keyOps
	values  texts
	owners  texts
	clients clients
	odd     string           // what makes the history unreadable to the model
	exp     checker.Exposure // of the model's own operations
}

type pending struct {
	op
	key   *keyOps
	f     string
	value json.RawMessage
}

// keyOps are the operations of one key.
type keyOps struct {
	name  string
	ops   []op // without those that failed
	ended []op // leases that had ended, by the second reading
	held  map[history.Process]int
}

// New begins a judgement by one of the models, other than LeaseLock.
func New(model string, opts Options) *Judge {
	if opts.Timeout <= 0 {
		opts.Timeout = time.Minute
	}
	if opts.Memory <= 0 {
		opts.Memory = 256 << 20
	}
	if opts.Reentry <= 0 {
		opts.Reentry = DefaultReentry
	}
	return &Judge{
		model: model, opts: opts, open: map[history.Process]*pending{}, keys: map[string]*keyOps{},
		values: newTexts(), owners: newTexts(), clients: newClients(),
	}
}

func (b *Judge) key(name string) *keyOps {
	k := b.keys[name]
	if k == nil {
		k = &keyOps{name: name, held: map[history.Process]int{}}
		b.keys[name] = k
		b.order = append(b.order, k)
	}
	return k
}

// kindOf is what f means to the model, or 0.
func (b *Judge) kindOf(f string) kind {
	if isLock(b.model) {
		return map[string]kind{"acquire": acquire, "release": release}[f]
	}
	k := map[string]kind{"read": read, "write": write, "cas": cas}[f]
	if k == cas && b.model == Register {
		b.say("the model register knows no cas; cas-register does")
		return 0
	}
	return k
}

// say files the first reason why the history cannot be judged.
func (b *Judge) say(format string, a ...any) {
	if b.odd == "" {
		b.odd = fmt.Sprintf(format, a...)
	}
}

// Add takes the next event.
func (b *Judge) Add(o *history.Op) {
	at := b.n
	b.n++
	if !o.Process.Worker() || o.Type == history.Info && history.Single(o.F) {
		return
	}
	if o.Type == history.Invoke {
		p := &pending{f: o.F, value: bytes.Clone(o.Value)}
		p.op = op{call: at, ret: never, process: o.Process, invoked: o.Index, completed: -1, in: input{kind: b.kindOf(o.F)}}
		p.key = b.key(o.Key)
		b.open[o.Process] = p
		b.clients.invoked(o.Process)
		return
	}
	p := b.open[o.Process]
	if p == nil || p.in.kind == 0 {
		delete(b.open, o.Process)
		return
	}
	delete(b.open, o.Process)
	p.completed = o.Index
	b.exp.Operations++
	switch o.Type {
	case history.OK:
		p.ret = at
		b.ok(p, o)
	case history.Info:
		b.exp.Info++
		b.clients.retired()
		b.unknown(p)
	case history.Fail:
		b.failed(p, o, at)
	}
}

// ok takes an operation that happened.
func (b *Judge) ok(p *pending, o *history.Op) {
	k := p.key
	switch p.in.kind {
	case acquire:
		b.exp.AcquiresOK++
		k.held[p.process]++
		p.in.fence = fence(o)
		b.clients.learn(p.process, o.Value)
	case release:
		b.exp.ReleasesOK++
		k.held[p.process] = max(k.held[p.process]-1, 0)
		b.clients.learn(p.process, o.Value)
	case read:
		p.in.value = b.value(o.Value)
	default:
		b.written(p)
	}
	k.ops = append(k.ops, p.op)
}

// unknown takes an operation that may have happened. A read that may have
// happened says nothing.
func (b *Judge) unknown(p *pending) {
	switch p.in.kind {
	case read:
		return
	case write, cas:
		b.written(p)
	}
	p.ret = never
	p.key.ops = append(p.key.ops, p.op)
}

func (b *Judge) failed(p *pending, o *history.Op, at int) {
	switch p.in.kind {
	case acquire:
		b.exp.AcquiresFailed++
	case release:
		if p.key.held[p.process] > 0 && leaseGone(o.Error) {
			p.key.held[p.process] = 0
			p.key.ended = append(p.key.ended, b.leaseEnd(p, at))
		}
	}
}

// leaseEnd reads a release that found its lease gone as what it is: the lease had
// ended, at some time after it was asked for and before this was told.
func (b *Judge) leaseEnd(p *pending, at int) op {
	e := p.op
	e.in.kind, e.ret = expire, at
	for i := range slices.Backward(p.key.ops) {
		if o := &p.key.ops[i]; o.process == p.process && o.in.kind == acquire && o.ret != never {
			e.call = o.call
			break
		}
	}
	return e
}

// leaseGone reports whether an error of a release says that the lease, or the
// session, that held the lock had ended.
func leaseGone(text string) bool {
	text = strings.ToLower(text)
	if text == history.ErrNotHeld {
		return true
	}
	for _, what := range []string{"lease", "session"} {
		for _, how := range []string{"not found", "not-found", "expired", "gone", "closed", "lost"} {
			if strings.Contains(text, what) && strings.Contains(text, how) {
				return true
			}
		}
	}
	return false
}

// value numbers a value. Nothing, null and an empty one are the same.
func (b *Judge) value(v json.RawMessage) int32 {
	if len(v) == 0 || string(v) == "null" {
		return 0
	}
	var c bytes.Buffer
	if json.Compact(&c, v) != nil {
		return b.values.id(string(v))
	}
	return b.values.id(c.String())
}

func (b *Judge) written(p *pending) {
	if p.in.kind == write {
		p.in.value = b.value(p.value)
		return
	}
	var pair []json.RawMessage
	if json.Unmarshal(p.value, &pair) != nil || len(pair) != 2 {
		b.say("event %d: the value of a cas is a pair of what is expected and what is to be written, not %.100s", p.invoked, p.value)
		return
	}
	p.in.value, p.in.to = b.value(pair[0]), b.value(pair[1])
}

// fence gives the fence of an acquire: our token, the field of a map as the tests
// of Hazelcast write it, or the value itself. What is not positive is none.
func fence(o *history.Op) int64 {
	if o.Token.Set {
		return int64(min(o.Token.V, 1<<62))
	}
	var m struct {
		Fence int64 `json:"fence"`
	}
	if len(o.Value) > 0 && (json.Unmarshal(o.Value, &m) == nil || json.Unmarshal(o.Value, &m.Fence) == nil) {
		return max(m.Fence, 0)
	}
	return 0
}

// A Result is the verdict on a history.
type Result struct {
	Model   string
	Verdict checker.Verdict
	Checked int    // operations, failed ones too
	Reason  string // why it is unknown
	Keys    []KeyResult
	// Leases is what the second reading came to, if there was one: Valid if
	// leases that had ended explain the history.
	Leases checker.Verdict
	Ended  []int // events that say that a lease had ended

	exp   checker.Exposure
	judge *Judge
}

// A KeyResult is the verdict on one key that is not valid.
type KeyResult struct {
	Key     string
	Verdict checker.Verdict
	Reason  string
	Ops     []int // the events that prove it

	ops []op
	bad *op // the one that nothing explains, if it is known
}

// Finish ends the history and judges it.
func (b *Judge) Finish(ctx context.Context) Result {
	still := make([]*pending, 0, len(b.open))
	for _, p := range b.open {
		if p.in.kind != 0 {
			still = append(still, p)
		}
	}
	slices.SortFunc(still, func(x, y *pending) int { return x.call - y.call })
	for _, p := range still {
		b.exp.Info++
		b.exp.Operations++
		b.unknown(p)
	}
	b.nameOwners()
	r := Result{Model: b.model, Verdict: checker.Valid, exp: b.exp, judge: b}
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	r.Checked = b.exp.Operations
	for _, k := range b.order {
		if b.odd == "" {
			b.finishKey(ctx, k, &r)
		}
	}
	switch {
	case b.odd != "":
		r.Verdict, r.Reason = checker.Unknown, b.odd
	case r.Checked == 0:
		r.Verdict, r.Reason = checker.Unknown, "nothing checked: there is no operation of this model"
	}
	return r
}

func (b *Judge) finishKey(ctx context.Context, k *keyOps, r *Result) {
	f := b.decide(ctx, k.ops)
	if f.verdict == checker.Valid {
		return
	}
	r.Keys = append(r.Keys, KeyResult{Key: k.name, Verdict: f.verdict, Reason: f.why, Ops: f.proof, ops: k.ops, bad: f.bad})
	if f.verdict == checker.Unknown && r.Reason == "" {
		r.Reason = f.why
	}
	r.Verdict = checker.Worst(r.Verdict, f.verdict)
	if f.verdict == checker.Invalid && isLock(b.model) {
		b.withLeases(ctx, k, r)
	}
}

// withLeases judges the key again, with the releases that found their lease gone
// read as leases that had ended.
func (b *Judge) withLeases(ctx context.Context, k *keyOps, r *Result) {
	if len(k.ended) == 0 {
		r.Leases = checker.Invalid
		return
	}
	if b.model == Mutex { // nobody else's lease may end
		b.setOwners(k.ops)
	}
	ops := slices.Concat(k.ops, k.ended)
	slices.SortStableFunc(ops, func(x, y op) int { return x.call - y.call })
	r.Leases = max(r.Leases, b.decide(ctx, ops).verdict)
	for _, e := range k.ended {
		r.Ended = append(r.Ended, e.invoked, e.completed)
	}
}

// nameOwners tells who did what, where the model asks.
func (b *Judge) nameOwners() {
	b.clients.settle()
	for _, k := range b.order {
		if named(b.model) {
			b.setOwners(k.ops)
		} else {
			for i := range k.ops {
				k.ops[i].in.owner = b.owners.id("somebody")
			}
		}
		b.setOwners(k.ended)
	}
}

func (b *Judge) setOwners(ops []op) {
	for i := range ops {
		ops[i].in.owner = b.owners.id(b.clients.name(ops[i].process))
	}
}

// clients knows which client a process speaks for. The tests of Hazelcast write
// it beside the fence; elsewhere a process speaks for itself.
type clients struct {
	names  map[history.Process]string
	lanes  map[history.Process]string // the n-th process after one goes on in its place
	width  history.Process            // processes in the beginning: n
	closed bool
}

func newClients() clients { return clients{names: map[history.Process]string{}} }

func (c *clients) invoked(p history.Process) {
	if !c.closed {
		c.width = max(c.width, p+1)
	}
}

// retired notes that from now on processes are replaced.
func (c *clients) retired() { c.closed = true }

func (c *clients) learn(p history.Process, value json.RawMessage) {
	var m struct {
		Client json.RawMessage `json:"client"`
	}
	if len(value) == 0 || value[0] != '{' || json.Unmarshal(value, &m) != nil || len(m.Client) == 0 {
		return
	}
	c.names[p] = string(m.Client)
}

// settle finds the clients of processes that never said theirs.
func (c *clients) settle() {
	c.lanes = map[history.Process]string{}
	for _, p := range slices.Sorted(maps.Keys(c.names)) {
		if _, ok := c.lanes[p%c.width]; !ok {
			c.lanes[p%c.width] = c.names[p]
		}
	}
}

func (c *clients) name(p history.Process) string {
	if n, ok := c.names[p]; ok {
		return n
	}
	if len(c.lanes) > 0 {
		if n, ok := c.lanes[p%c.width]; ok {
			return n
		}
	}
	return fmt.Sprintf("process %d", p)
}

// Results gives the verdict as that of the property linearizable, the only one
// that such a history can be asked for.
func (r *Result) Results() checker.Results {
	p := &checker.Result{Verdict: r.Verdict, Checked: r.Checked, Reason: r.Reason}
	for _, k := range r.Keys {
		if k.Verdict != checker.Invalid {
			continue
		}
		p.AnomalyCount++
		if len(p.Anomalies) < maxAnomalies {
			p.Anomalies = append(p.Anomalies, checker.Anomaly{Kind: "not-linearizable", Key: k.Key, Ops: k.Ops, Message: k.Reason})
		}
	}
	res := checker.Results{Properties: map[string]*checker.Result{checker.Linearizable: p}, Exposure: r.exp}
	res.Require([]string{checker.Linearizable})
	return res
}

// maxAnomalies bounds how many keys are told of.
const maxAnomalies = 100

// Explanation says what an illegal verdict of a lock comes to once leases may
// end, or nothing.
func (r *Result) Explanation() string {
	switch {
	case r.Leases == checker.Valid:
		return fmt.Sprintf("taken literally this is no %s. But %s that the lease was gone: once a lease may end by itself, a legal order exists",
			r.Model, releasesFailed(r.Ended))
	case r.Leases == checker.Unknown:
		return "whether leases that had ended explain it could not be decided"
	case r.Leases == checker.Invalid && len(r.Ended) > 0:
		return fmt.Sprintf("%s that the lease was gone, but leases that end by themselves do not explain it either", releasesFailed(r.Ended))
	case r.Leases == checker.Invalid:
		return "no release failed because a lease was gone, so leases that end by themselves do not explain it"
	}
	return ""
}

// releasesFailed names the releases by their two events each.
func releasesFailed(events []int) string {
	var names []string
	for i := 1; i < len(events); i += 2 {
		names = append(names, fmt.Sprint("#", events[i]))
	}
	const most = 8
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	if len(names) == 1 {
		return "one release failed and says (event " + names[0] + ")"
	}
	return fmt.Sprintf("%d releases failed and say (events %s)", len(events)/2, strings.Join(names, ", "))
}
