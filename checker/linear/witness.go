package linear

import (
	"context"
	"slices"
	"time"
)

// What shrinking a witness may cost; past it, the part found so far is shown.
// The limits count work and not time, so that a history always has one witness.
const (
	shrinkWork   = 2_000_000 // operations decided
	shrinkTries  = 400
	shrinkMemory = 2 << 20 // of one search
)

// fill turns a decision into a Result.
func (k *keyOps) fill(r *Result, d decided) {
	r.Verdict, r.Reason, r.Searched, r.Certificate = d.verdict, d.reason, d.searched, d.certificate
	if d.verdict != Illegal {
		return
	}
	part := d.problem.witness(d.violation)
	if part == nil {
		part = d.violation.ops
	}
	part = shrink(part)
	r.Reason = d.problem.sentence(d.violation, k, part)
	r.names = k.nameGrants(part)
	renumber(part)
	r.Window = part
	for i := range part {
		for _, index := range []int32{part[i].Invoked, part[i].Completed} {
			if index >= 0 {
				r.Ops = append(r.Ops, int(index))
			}
		}
	}
	slices.Sort(r.Ops)
	r.Ops = slices.Compact(r.Ops)
}

// witness gives the operations that are illegal by themselves, or nil if only a
// search knows.
//
// For a chain they are those of the two grants. For tries without a holder they
// are the tries, the neighbours of their gaps, the grants that keep the neighbours
// apart, and the phantoms that they compete for; no other grant or phantom can
// have covered them, so leaving the others out proves nothing that was not so.
func (p *problem) witness(v *violation) []Op {
	switch v.rule {
	case noOrder:
		return nil
	case noHolder:
	default:
		return p.project([]int32{v.first, v.second}, nil)
	}
	pl := v.plan
	var grants, tries []int32
	for _, g := range v.gaps {
		tries = append(tries, g.try)
		grants = append(grants, pl.neighbours(int(g.slot))...)
	}
	return p.project(append(grants, v.phantoms...), tries)
}

// neighbours are the grants on both sides of a gap and those that fix their least
// and greatest times.
func (pl *plan) neighbours(slot int) []int32 {
	var out []int32
	if slot > 0 {
		out = append(out, pl.order[slot-1], pl.later(slot-1))
	}
	if slot < len(pl.order) {
		out = append(out, pl.order[slot], pl.earlier(slot), pl.later(slot))
	}
	return out
}

// earlier is the grant that keeps the one at place k from starting earlier.
func (pl *plan) earlier(k int) int32 {
	for j := k - 1; j >= 0; j-- {
		if g := &pl.grants[pl.order[j]]; max(g.la, g.le) == pl.loStart[k] {
			return pl.order[j]
		}
		if pl.loStart[j] < pl.loStart[k] && pl.grants[pl.order[j]].le < pl.loStart[k] {
			break
		}
	}
	return pl.order[k]
}

// later is the grant that keeps the one at place k from ending later.
func (pl *plan) later(k int) int32 {
	for j := k; j < len(pl.order); j++ {
		if g := &pl.grants[pl.order[j]]; j > k && g.ua == pl.hiEnd[k] || g.ue == pl.hiEnd[k] {
			return pl.order[j]
		}
	}
	return pl.order[k]
}

// renumber counts the grants of a part from 0 and says how many there are.
func renumber(part []Op) int {
	numbers := map[int32]int32{}
	for i := range part {
		g := part[i].Grant
		if g == NoGrant {
			continue
		}
		n, ok := numbers[g]
		if !ok {
			n = int32(len(numbers))
			numbers[g] = n
		}
		part[i].Grant = n
	}
	return len(numbers)
}

// shrink removes what a part is illegal without: by halves, then one by one.
func shrink(part []Op) []Op {
	s := shrinker{lim: &limits{ctx: context.Background(), deadline: time.Now().Add(time.Minute), memory: shrinkMemory}}
	if !s.illegal(part) {
		return part
	}
	s.base = s.windows(part)
	for size := (len(part) + 1) / 2; size >= 1; size /= 2 {
		for at := 0; at < len(part); {
			less, ok := s.without(part, at, min(at+size, len(part)))
			if ok && s.sound(less) && s.illegal(less) {
				part = less
			} else {
				at += size
			}
		}
	}
	return s.wholeGrants(part)
}

type shrinker struct {
	lim   *limits
	base  map[int32]grant
	work  int
	tries int
}

func (s *shrinker) spent() bool { return s.work > shrinkWork || s.tries > shrinkTries }

// illegal decides a part on its own.
func (s *shrinker) illegal(part []Op) bool {
	s.work += len(part)
	s.tries++
	sub := slices.Clone(part)
	return decide(listOf(sub), renumber(sub), s.lim, false).verdict == Illegal
}

func (s *shrinker) windows(part []Op) map[int32]grant {
	sub := slices.Clone(part)
	p, _ := newProblem(listOf(sub), renumber(sub))
	out := map[int32]grant{}
	for i := range part {
		if g := part[i].Grant; g != NoGrant {
			out[g] = p.grants[sub[i].Grant]
		}
	}
	return out
}

// without leaves out, between two places, everything but the acquires that grant.
func (s *shrinker) without(part []Op, from, to int) ([]Op, bool) {
	if s.spent() {
		return nil, false
	}
	less := slices.Clone(part[:from])
	for _, o := range part[from:to] {
		if o.Kind == Acquire && o.Outcome != Denied {
			less = append(less, o)
		}
	}
	less = append(less, part[to:]...)
	return less, len(less) < len(part)
}

// sound reports whether each grant's windows are at least as wide as they were:
// then what is illegal without an operation is illegal with it. A grant without
// its release, say, may be illegal for a reason that the history does not have.
func (s *shrinker) sound(part []Op) bool {
	for i, g := range s.windows(part) {
		b := s.base[i]
		if g.la > b.la || g.ua < b.ua || g.le > b.le || g.ue < b.ue {
			return false
		}
	}
	return true
}

// wholeGrants leaves out grants with all their operations, if no try is left that
// one of them might have covered.
func (s *shrinker) wholeGrants(part []Op) []Op {
	if slices.ContainsFunc(part, func(o Op) bool { return o.Grant == NoGrant }) {
		return part
	}
	for _, g := range grantsOf(part) {
		less := slices.DeleteFunc(slices.Clone(part), func(o Op) bool { return o.Grant == g })
		if !s.spent() && s.illegal(less) {
			part = less
		}
	}
	return part
}

func grantsOf(part []Op) []int32 {
	var grants []int32
	for i := range part {
		if g := part[i].Grant; g != NoGrant && !slices.Contains(grants, g) {
			grants = append(grants, g)
		}
	}
	return grants
}
