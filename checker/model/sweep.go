package model

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/checker"
)

// A sweep decides a history by going through its events and keeping each state
// that the lock or register may be in, with the open operations that have taken
// effect there. An operation takes effect at the latest when it returns, so only
// returns have to look for orders, and only among what is open: a long history
// costs no more an event than a short one. Operations of unknown outcome stay
// open for ever; alike ones are counted instead of told apart, and of two states
// that differ in how many of them were spent, the more thrifty one is enough.
//
// It is exact. It can only be defeated by many operations open at once, and then
// gives up at its limits.
type sweep struct {
	model string
	limit int32
	ops   []op

	slots   [64]int // which operation each bit of a mask is
	likes   [64]int // bits of the same input have the same number
	like    map[input]int
	masks   []uint64 // the bits of each number
	used    uint64   // bits that are taken
	reads   uint64   // bits that are reads
	spares  []input  // of unknown outcome, alike ones once
	spareAt map[input]int
	have    []int // how many of each were invoked so far

	now  *configs
	next *configs
	seen *configs
	todo []config

	ctx   context.Context
	room  int64 // bytes that configurations may take
	ticks int
	why   string // it gave up
}

// A config is one way in which it may have come to this.
type config struct {
	state state
	done  uint64 // open operations that have taken effect
	spent string // how many of each spare, two bytes each
}

// configs is a set of them without those that another one makes needless.
type configs struct {
	all   map[place][]string
	list  []config // as they came; one may have become needless since
	bytes int64
}

type place struct {
	state state
	done  uint64
}

func newConfigs() *configs { return &configs{all: map[place][]string{}} }

func (c *configs) clear() {
	clear(c.all)
	c.list, c.bytes = c.list[:0], 0
}

// add reports whether the configuration is a new one.
func (c *configs) add(x config) bool {
	at := place{x.state, x.done}
	old := c.all[at]
	for _, s := range old {
		if thrifty(s, x.spent) {
			return false
		}
	}
	old = slices.DeleteFunc(old, func(s string) bool { return thrifty(x.spent, s) })
	c.all[at] = append(old, x.spent)
	c.list = append(c.list, x)
	c.bytes += 192 + int64(len(x.spent))
	return true
}

// alive reports whether nothing better than x came after it.
func (c *configs) alive(x *config) bool {
	return slices.Contains(c.all[place{x.state, x.done}], x.spent)
}

// thrifty reports whether a spent no more of anything than b.
func thrifty(a, b string) bool {
	for i := 0; i < len(a); i += 2 {
		if spentOf(a, i/2) > spentOf(b, i/2) {
			return false
		}
	}
	return true
}

func spentOf(spent string, i int) int {
	if 2*i >= len(spent) {
		return 0
	}
	return int(spent[2*i])<<8 | int(spent[2*i+1])
}

func spend(spent string, i int) string {
	b := make([]byte, max(len(spent), 2*i+2))
	copy(b, spent)
	if b[2*i+1]++; b[2*i+1] == 0 {
		b[2*i]++
	}
	return string(b)
}

// maxSpare is how many alike operations of unknown outcome can be counted.
const maxSpare = 1<<16 - 1

// A finding is what a decision comes to.
type finding struct {
	verdict checker.Verdict
	why     string
	proof   []int // the events that prove it
	bad     *op   // the operation that nothing explains, if it is known
}

// decide judges the operations of one key, which are in the order of their
// completions.
func (b *Judge) decide(ctx context.Context, ops []op) finding {
	half, cancel := context.WithCancel(ctx)
	if end, ok := ctx.Deadline(); ok { // the other half is for porcupine
		half, cancel = context.WithTimeout(ctx, time.Until(end)/2)
	}
	defer cancel()
	s := b.sweep(half, ops)
	bad := s.run(events(ops))
	switch {
	case s.why != "":
		return b.search(ctx, ops, s.why)
	case bad < 0:
		return finding{verdict: checker.Valid}
	}
	return finding{verdict: checker.Invalid, why: b.explain(s, bad), proof: s.proof(bad), bad: &ops[bad]}
}

// sweep begins one over those operations.
func (b *Judge) sweep(ctx context.Context, ops []op) *sweep {
	s := &sweep{
		model: b.model, limit: int32(b.opts.Reentry), ops: ops, spareAt: map[input]int{}, like: map[input]int{},
		now: newConfigs(), next: newConfigs(), seen: newConfigs(), ctx: ctx, room: b.opts.Memory,
	}
	s.now.add(config{})
	return s
}

// An event is the call or the return of an operation.
type event struct {
	at  int
	op  int
	ret bool
}

func events(ops []op) []event {
	es := make([]event, 0, 2*len(ops))
	for i := range ops {
		es = append(es, event{ops[i].call, i, false})
		if ops[i].ret != never {
			es = append(es, event{ops[i].ret, i, true})
		}
	}
	slices.SortFunc(es, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.op, b.op)) })
	return es
}

// run takes the events and gives the operation that nothing explains, or -1.
func (s *sweep) run(es []event) int {
	slot := make(map[int]int)
	for _, e := range es {
		o := &s.ops[e.op]
		switch {
		case o.ret == never:
			if s.spare(o); s.why != "" {
				return -1
			}
		case !e.ret:
			n := bits.TrailingZeros64(^s.used)
			if n == 64 {
				s.why = "more than 64 operations were open at once"
				return -1
			}
			slot[e.op] = n
			s.called(n, e.op)
		default:
			n := slot[e.op]
			delete(slot, e.op)
			s.returned(n)
			if s.why != "" {
				return -1
			}
			if len(s.next.list) == 0 {
				return e.op
			}
			s.used &^= 1 << n
			s.reads &^= 1 << n
			s.masks[s.likes[n]] &^= 1 << n
			s.now, s.next = s.next, s.now
			s.next.clear()
		}
	}
	return -1
}

// called puts an operation into a slot.
func (s *sweep) called(n, i int) {
	in := s.ops[i].in
	s.slots[n] = i
	s.used |= 1 << n
	if in.kind == read {
		s.reads |= 1 << n
	}
	k, ok := s.like[in]
	if !ok {
		k = len(s.masks)
		s.like[in] = k
		s.masks = append(s.masks, 0)
	}
	s.likes[n] = k
	s.masks[k] |= 1 << n
}

// sooner reports whether one of the open operations does the same as that of the
// slot and returns before it. Then that one may as well take effect first.
func (s *sweep) sooner(n int, open uint64) bool {
	for m := s.masks[s.likes[n]] & open; m != 0; m &= m - 1 {
		if s.ops[s.slots[bits.TrailingZeros64(m)]].ret < s.ops[s.slots[n]].ret {
			return true
		}
	}
	return false
}

func (s *sweep) spare(o *op) {
	i, ok := s.spareAt[o.in]
	if !ok {
		i = len(s.spares)
		s.spareAt[o.in] = i
		s.spares = append(s.spares, o.in)
		s.have = append(s.have, 0)
	}
	if s.have[i]++; s.have[i] > maxSpare {
		s.why = fmt.Sprintf("more than %d operations of unknown outcome are alike", maxSpare)
	}
}

// returned finds each way in which the operation of that slot took effect by now.
func (s *sweep) returned(slot int) {
	bit := uint64(1) << slot
	s.seen.clear()
	s.todo = s.todo[:0]
	for i := range s.now.list {
		if x := &s.now.list[i]; s.now.alive(x) {
			s.found(*x, bit)
		}
	}
	for len(s.todo) > 0 && s.why == "" {
		x := s.todo[len(s.todo)-1]
		s.todo = s.todo[:len(s.todo)-1]
		if s.seen.alive(&x) {
			s.follow(&x, bit)
		}
		s.account()
	}
}

// found takes a configuration: as a result if the operation has taken effect,
// else to go on from. Reads take effect as soon as they can, since that changes
// nothing else.
func (s *sweep) found(x config, bit uint64) {
	for m := s.reads &^ x.done; m != 0; m &= m - 1 {
		n := bits.TrailingZeros64(m)
		if s.ops[s.slots[n]].in.value == x.state.value {
			x.done |= 1 << n
		}
	}
	if x.done&bit != 0 {
		x.done &^= bit
		s.next.add(x)
		return
	}
	if s.seen.add(x) {
		s.todo = append(s.todo, x)
	}
}

// follow lets each open operation take effect that may.
func (s *sweep) follow(x *config, bit uint64) {
	open := s.used &^ s.reads &^ x.done
	for m := open; m != 0; m &= m - 1 {
		n := bits.TrailingZeros64(m)
		if s.sooner(n, open) {
			continue
		}
		if st, ok := step(s.model, s.limit, x.state, &s.ops[s.slots[n]].in); ok {
			s.found(config{st, x.done | 1<<n, x.spent}, bit)
		}
	}
	for i := range s.spares {
		if spentOf(x.spent, i) >= s.have[i] {
			continue
		}
		if st, ok := step(s.model, s.limit, x.state, &s.spares[i]); ok && st != x.state {
			s.found(config{st, x.done, spend(x.spent, i)}, bit)
		}
	}
}

// account looks at the limits now and then.
func (s *sweep) account() {
	if s.now.bytes+s.next.bytes+s.seen.bytes > s.room {
		s.why = "its memory was used up"
	}
	if s.ticks++; s.ticks&255 == 0 && s.ctx.Err() != nil {
		s.why = "its time was up"
	}
}

// proof gives the events of the operation that nothing explains, and of those
// that were open beside it.
func (s *sweep) proof(bad int) []int {
	idx := []int{s.ops[bad].invoked, s.ops[bad].completed}
	for m := s.used; m != 0; m &= m - 1 {
		o := &s.ops[s.slots[bits.TrailingZeros64(m)]]
		idx = append(idx, o.invoked)
	}
	idx = slices.DeleteFunc(idx, func(i int) bool { return i < 0 })
	slices.Sort(idx)
	return slices.Compact(idx)
}

// explain says in one sentence what is wrong.
func (b *Judge) explain(s *sweep, bad int) string {
	var states []string
	for _, st := range s.states() {
		states = append(states, b.describeState(st))
	}
	slices.Sort(states)
	states = slices.Compact(states)
	if len(states) > 3 {
		states = append(states[:3], "...")
	}
	return fmt.Sprintf("no order of the operations explains %s (events %d and %d): whatever came before, %s",
		b.describe(&s.ops[bad]), s.ops[bad].invoked, s.ops[bad].completed, strings.Join(states, ", or "))
}
