package linear

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
)

// Expiry stands for the operation of a Step at which a lease ends by itself.
const Expiry = -1

// A Step is one entry of a certificate: when an operation took effect, or a
// lease ended. Indeterminate operations without a step never took effect.
type Step struct {
	Op    int   // index of the operation, or Expiry
	Grant int32 // whose lease ended, for Expiry
	At    int64
}

// Verify replays a certificate through the sequential model. It shares nothing
// with the decision.
func Verify(ops []Op, steps []Step) error {
	v := verifier{ops: ops, seen: make([]bool, len(ops)), holder: NoGrant, now: Dawn}
	for _, s := range steps {
		if s.At < v.now {
			return fmt.Errorf("step %+v: time runs backwards from %d", s, v.now)
		}
		v.now = s.At
		if err := v.step(s); err != nil {
			return fmt.Errorf("step %+v, held by %d: %w", s, v.holder, err)
		}
	}
	for i := range ops {
		if !v.seen[i] && ops[i].Outcome != Info {
			return fmt.Errorf("operation %d has no step", i)
		}
	}
	return nil
}

// verifier is the state of the sequential model.
type verifier struct {
	ops      []Op
	seen     []bool
	holder   int32
	deadline int64
	token    uint64
	anyToken bool
	now      int64
}

func (v *verifier) step(s Step) error {
	if s.Op == Expiry {
		if v.holder != s.Grant || s.At < v.deadline {
			return fmt.Errorf("a lease ends that is not held or runs until %d", v.deadline)
		}
		v.holder = NoGrant
		return nil
	}
	if s.Op < 0 || s.Op >= len(v.ops) || v.seen[s.Op] {
		return errors.New("no such operation, or a second time")
	}
	v.seen[s.Op] = true
	o := &v.ops[s.Op]
	if s.At < o.Call || s.At > o.Return {
		return fmt.Errorf("outside [%d, %d]", o.Call, o.Return)
	}
	if o.Kind == Acquire {
		return v.acquire(o)
	}
	if (v.holder == o.Grant) != (o.Outcome != Denied) {
		return fmt.Errorf("%v %v of grant %d", o.Kind, o.Outcome, o.Grant)
	}
	switch {
	case o.Outcome == Denied:
	case o.Kind == Release:
		v.holder = NoGrant
	default:
		v.deadline = o.Deadline
	}
	return nil
}

func (v *verifier) acquire(o *Op) error {
	if (v.holder == NoGrant) != (o.Outcome != Denied) {
		return fmt.Errorf("acquire %v", o.Outcome)
	}
	if o.Outcome == Denied {
		return nil
	}
	if o.HasToken {
		if v.anyToken && o.Token <= v.token {
			return fmt.Errorf("token %d after %d", o.Token, v.token)
		}
		v.token, v.anyToken = o.Token, true
	}
	v.holder, v.deadline = o.Grant, o.Deadline
	return nil
}

// A timeline is a plan with a time for everything. Its segments are numbered in
// order: for the grant at place k, 3k is the time before it in which nobody
// holds, 3k+1 that in which a phantom does, 3k+2 its own hold.
type timeline struct {
	plan       *plan
	problem    *problem
	start, end []int64
	ghost      map[int32]span  // by place: the hold of the phantom before it
	ended      []bool          // by grant: an ok release ends it
	frees      map[int32]int32 // by grant: its earliest indeterminate release
	steps      []placed
}

type span struct{ from, to int64 }

type placed struct {
	segment int64
	rank    int8 // begins, within, shortened, ends
	last    bool
	step    Step
}

const (
	begins int8 = iota
	within
	shortened
	ends
)

// certify writes down an order that explains a legal plan.
func (pl *plan) certify(p *problem) []Step {
	t := &timeline{plan: pl, problem: p, ghost: map[int32]span{}, frees: p.earliestFrees(), ended: make([]bool, len(p.grants))}
	t.fix()
	t.place()
	slices.SortStableFunc(t.steps, func(a, b placed) int {
		if c := cmp.Compare(a.segment, b.segment); c != 0 {
			return c
		}
		if c := cmp.Compare(a.rank, b.rank); c != 0 {
			return c
		}
		if c := cmp.Compare(a.step.At, b.step.At); c != 0 {
			return c
		}
		return cmp.Compare(boolInt(a.last), boolInt(b.last))
	})
	steps := make([]Step, len(t.steps))
	for i := range t.steps {
		steps[i] = t.steps[i].step
	}
	return steps
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// fix chooses the times: holds reach as far into the gaps as they can, and a
// phantom fills the rest of the gaps that need one.
func (t *timeline) fix() {
	pl, n := t.plan, len(t.plan.order)
	t.start, t.end = make([]int64, n), make([]int64, n)
	serves := map[int32]*grant{}
	for j, g := range pl.serves {
		serves[pl.needs[j].slot] = &pl.grants[g]
	}
	previous := int64(Dawn)
	for k := 0; k <= n; k++ {
		lo, hi := int64(Forever), int64(Dawn)
		if k < n {
			lo = pl.loStart[k]
		}
		if k > 0 {
			hi = pl.hiEnd[k-1]
			if k < n && lo <= hi {
				previous = max(lo, previous)
				t.end[k-1], t.start[k] = previous, previous
				continue
			}
			t.end[k-1] = hi
		}
		if ph, ok := serves[int32(k)]; ok {
			from := max(ph.la, hi)
			to := int64(Forever)
			if k < n {
				to = max(ph.le, from, lo)
				lo = to
			}
			t.ghost[int32(k)] = span{from, to}
		}
		if k < n {
			t.start[k], previous = lo, lo
		}
	}
}

// at gives the segment that covers time x.
func (t *timeline) at(x int64) int64 {
	k := sort.Search(len(t.start), func(i int) bool { return t.start[i] > x }) - 1
	if k >= 0 && x <= t.end[k] {
		return int64(3*k + 2)
	}
	if h, ok := t.ghost[int32(k+1)]; ok && h.from <= x {
		return int64(3*(k+1) + 1)
	}
	return int64(3 * (k + 1))
}

func (t *timeline) put(segment int64, rank int8, op int, at int64) {
	t.steps = append(t.steps, placed{segment: segment, rank: rank, step: Step{Op: op, At: at}})
}

// place gives each operation its segment and time.
func (t *timeline) place() {
	p := t.problem
	places := make([]int64, len(p.grants))
	for i := range places {
		places[i] = -1
	}
	for k, g := range t.plan.order {
		places[g] = int64(k)
	}
	last, shortest := p.deadlines()
	for i, o := range p.ops.all() {
		if o.Kind == Acquire && o.Outcome == Denied {
			t.try(int(i), o)
			continue
		}
		k := places[o.Grant]
		switch {
		case o.Outcome == Denied:
			t.denial(int(i), o, k)
		case k < 0 || o.Outcome == Info && o.Kind != Acquire:
		case o.Kind == Acquire:
			t.put(3*k+2, begins, int(i), t.start[k])
		case o.Kind == Renew:
			at := max(o.Call, t.start[k])
			if last[o.Grant] == i {
				at = max(at, p.grants[o.Grant].renewCall)
			}
			t.put(3*k+2, within, int(i), at)
			t.steps[len(t.steps)-1].last = last[o.Grant] == i
		default:
			t.put(3*k+2, ends, int(i), t.end[k])
			t.ended[o.Grant] = true
		}
	}
	for j, g := range t.plan.serves {
		slot := t.plan.needs[j].slot
		hold := t.ghost[slot]
		t.put(3*int64(slot)+1, begins, int(p.grants[g].acquire), hold.from)
		t.finish(3*int64(slot)+1, g, hold.to, last[g], shortest[g])
	}
	for k, g := range t.plan.order {
		t.finish(int64(3*k+2), g, t.end[k], last[g], shortest[g])
	}
}

// earliestFrees finds the earliest indeterminate release of each grant that has one.
func (p *problem) earliestFrees() map[int32]int32 {
	first := map[int32]int32{}
	for _, i := range p.frees {
		o := p.ops.at(i)
		if old, ok := first[o.Grant]; !ok || o.Call < p.ops.at(old).Call {
			first[o.Grant] = i
		}
	}
	return first
}

// deadlines finds, for each grant, the ok renewal that sets its deadline by being
// the last, and the indeterminate renewal that would set the earliest; -1 is none.
func (p *problem) deadlines() (last, shortest []int32) {
	last, shortest = make([]int32, len(p.grants)), make([]int32, len(p.grants))
	for i := range last {
		last[i], shortest[i] = -1, -1
	}
	for _, i := range p.renews {
		o := p.ops.at(i)
		best := &last[o.Grant]
		if o.Outcome == Info {
			best = &shortest[o.Grant]
		} else if o.Return < p.grants[o.Grant].renewCall {
			continue
		}
		if *best < 0 || max(o.Deadline, o.Call) < max(p.ops.at(*best).Deadline, p.ops.at(*best).Call) {
			*best = i
		}
	}
	return last, shortest
}

func (t *timeline) try(i int, o *Op) {
	k := sort.Search(len(t.start), func(i int) bool { return t.start[i] > o.Return }) - 1
	if k >= 0 && t.end[k] >= o.Call {
		t.put(int64(3*k+2), within, i, max(o.Call, t.start[k]))
		return
	}
	t.put(int64(3*(k+1)+1), within, i, max(o.Call, t.ghost[int32(k+1)].from))
}

// denial puts a "not-held" of the grant at place k after its hold, or before it.
func (t *timeline) denial(i int, o *Op, k int64) {
	x := o.Call
	after := k >= 0 && t.end[k] <= o.Return
	if after {
		x = max(x, t.end[k])
	}
	segment := t.at(x)
	if k >= 0 && segment == 3*k+2 {
		segment = 3 * k
		if _, ok := t.ghost[int32(k)]; ok {
			segment++
		}
		if after {
			segment = 3 * (k + 1)
		}
	}
	t.put(segment, within, i, x)
}

// finish ends a hold that no ok release ends: by itself if its lease is over by
// then, after an indeterminate renewal that shortened it if need be; or by a release
// of unknown outcome, if there was one in time.
func (t *timeline) finish(segment int64, grant int32, at int64, last, shortest int32) {
	p := t.problem
	g := &p.grants[grant]
	if at == Forever || t.ended[grant] {
		return
	}
	if i, ok := t.frees[grant]; ok && p.ops.at(i).Call <= at {
		t.put(segment, ends, int(i), at)
		return
	}
	deadline := p.ops.at(g.acquire).Deadline
	if last >= 0 {
		deadline = p.ops.at(last).Deadline
	}
	if deadline > at && shortest >= 0 {
		t.put(segment, shortened, int(shortest), at)
	}
	t.put(segment, ends, Expiry, at)
	t.steps[len(t.steps)-1].step.Grant = grant
}
