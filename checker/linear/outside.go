package linear

import (
	"cmp"
	"slices"
	"sort"
)

// outside decides a history that the passes alone cannot order. First it is held
// between two that they can: one that demands less (if that is illegal, so is the
// history) and some that fix what is open (if one is legal, so is the history).
// What lies between goes to a search.
func (p *problem) outside(lim *limits, d *decided, certificate bool) {
	if v := p.relaxed(); v != nil {
		d.verdict, d.violation = Illegal, v
		return
	}
	if v := p.enclosed(); v != nil {
		d.verdict, d.violation = Illegal, v
		return
	}
	if pl, q := p.restricted(); pl != nil {
		d.verdict = Legal
		if certificate {
			d.certificate = pl.certify(q)
		}
		return
	}
	d.searched = true
	p.search(lim, d)
}

// relaxed checks what remains of the history when each grant whose place is in
// doubt counts as one that may have held or not, and each denial that may have
// come early is left out.
func (p *problem) relaxed() *violation {
	if p.tokened() {
		pl := p.demote(func(g *grant) bool { return g.hasToken })
		pl.twin = p.sortByToken(pl.order)
		if v := pl.check(&p.ops, p.tries); v != nil {
			return v
		}
	}
	pl := p.demote((*grant).tight)
	sortByCore(p.grants, pl.order)
	p.dropTies(pl)
	return pl.check(&p.ops, p.tries)
}

func (p *problem) tokened() bool {
	return slices.ContainsFunc(p.grants, func(g grant) bool { return g.exists == definite && g.hasToken })
}

// demote is the plan in which only the grants that keep says are certain to have
// held, not yet in order.
func (p *problem) demote(keep func(*grant) bool) *plan {
	pl := &plan{grants: p.grants}
	for i := range p.grants {
		g := &p.grants[i]
		switch {
		case g.exists == definite && keep(g):
			pl.order = append(pl.order, int32(i))
		case g.exists != never:
			pl.phantoms = append(pl.phantoms, int32(i))
		}
	}
	return pl
}

// dropTies demotes, in an order by cores, the grants whose cores are one and the
// same instant: either may have come first.
func (p *problem) dropTies(pl *plan) {
	same := func(a, b int32) bool {
		x, y := &p.grants[a], &p.grants[b]
		return x.ua == y.ua && x.le == y.le && x.ua == x.le
	}
	kept := make([]int32, 0, len(pl.order))
	for k, i := range pl.order {
		if k > 0 && same(pl.order[k-1], i) || k+1 < len(pl.order) && same(i, pl.order[k+1]) {
			pl.phantoms = append(pl.phantoms, i)
			continue
		}
		kept = append(kept, i)
	}
	pl.order = kept
}

// enclosed looks for a grant without a core that has no instant to be held at: by
// its own operations, or because another was certainly held all through the time in
// which it must have been.
func (p *problem) enclosed() *violation {
	cores := p.cores()
	for i := range p.grants {
		g := &p.grants[i]
		if g.exists != definite || g.tight() {
			continue
		}
		lo, hi := max(g.la, g.le), min(g.ua, g.ue)
		if lo > hi {
			return &violation{rule: lateEnd, first: int32(i), second: int32(i), at: lo, plan: &plan{grants: p.grants}}
		}
		k := sort.Search(len(cores), func(k int) bool { return p.grants[cores[k]].le > lo })
		if k < len(cores) {
			if c := &p.grants[cores[k]]; c.ua < lo && hi < c.le {
				return &violation{rule: lateStart, first: cores[k], second: int32(i), at: c.le, plan: &plan{grants: p.grants}}
			}
		}
	}
	return nil
}

// cores are the grants that were certainly held for some time, in order.
func (p *problem) cores() []int32 {
	var cores []int32
	for i := range p.grants {
		if g := &p.grants[i]; g.exists == definite && g.tight() {
			cores = append(cores, int32(i))
		}
	}
	sortByCore(p.grants, cores)
	return cores
}

// restricted tries a few histories that fix what is open: each early denial
// before or after its grant's hold, each grant without a core where a try needs it,
// or as early or as late as it can be, and no refused phantom at all. It gives the
// first plan that is legal, with the problem that it belongs to.
func (p *problem) restricted() (*plan, *problem) {
	for _, before := range []bool{false, true} {
		if before && len(p.early) == 0 {
			continue
		}
		q := p.settleEarly(before)
		needed := q.neededAt()
		for _, late := range []bool{false, true} {
			for _, needed := range []map[int32]int64{nil, needed} {
				pl := q.guess(late, needed)
				if pl.check(&q.ops, q.tries) == nil {
					return pl, q
				}
			}
		}
	}
	return nil, nil
}

// neededAt gives, for the grants without a core that explain a try in the relaxed
// history, a time at which they do.
func (p *problem) neededAt() map[int32]int64 {
	pl := p.demote((*grant).tight)
	sortByCore(p.grants, pl.order)
	p.dropTies(pl)
	needed := map[int32]int64{}
	if pl.check(&p.ops, p.tries) != nil {
		return needed
	}
	for j, i := range pl.serves {
		if g := &p.grants[i]; g.exists == definite {
			needed[i] = max(g.la, pl.needs[j].after)
		}
	}
	return needed
}

// settleEarly puts each early denial before its grant's hold, or after it.
func (p *problem) settleEarly(before bool) *problem {
	if len(p.early) == 0 {
		return p
	}
	q := *p
	q.grants = slices.Clone(p.grants)
	for _, i := range p.early {
		o := q.ops.at(i)
		g := &q.grants[o.Grant]
		if before {
			g.la = max(g.la, o.Call)
		} else {
			g.ue = min(g.ue, o.Return)
		}
	}
	return &q
}

// guess orders all definite grants: tokens first of all, then cores, then the
// guess that a grant without a core was held when it was needed, or else as early,
// or as late, as it can.
func (p *problem) guess(late bool, needed map[int32]int64) *plan {
	pl := &plan{grants: p.grants}
	cores := p.cores()
	at, then := make([]int64, len(p.grants)), make([]int64, len(p.grants))
	var tokened, plain []int32
	for i := range p.grants {
		g := &p.grants[i]
		switch {
		case g.exists == possible && !g.refused:
			pl.phantoms = append(pl.phantoms, int32(i))
		case g.exists == definite:
			at[i], then[i] = p.place(g, cores, late), g.le
			if t, ok := needed[int32(i)]; ok {
				at[i], then[i] = t, Forever // after a core that ends just then
			}
			if g.hasToken {
				tokened = append(tokened, int32(i))
			} else {
				plain = append(plain, int32(i))
			}
		}
	}
	p.sortByToken(tokened)
	for k := 1; k < len(tokened); k++ {
		at[tokened[k]] = max(at[tokened[k]], at[tokened[k-1]])
	}
	byPlace := func(a, b int32) int {
		return cmp.Or(cmp.Compare(at[a], at[b]), cmp.Compare(then[a], then[b]))
	}
	slices.SortStableFunc(plain, byPlace)
	pl.order = merge(tokened, plain, byPlace)
	return pl
}

// place is where a grant goes among the others: where its core begins, or at an
// instant that no core covers.
func (p *problem) place(g *grant, cores []int32, late bool) int64 {
	if g.tight() {
		return g.ua
	}
	t := max(g.la, g.le)
	if late {
		t = max(t, min(g.ua, g.ue))
	}
	k := sort.Search(len(cores), func(k int) bool { return p.grants[cores[k]].le > t })
	if k < len(cores) && p.grants[cores[k]].ua < t {
		if late {
			return p.grants[cores[k]].ua
		}
		return p.grants[cores[k]].le
	}
	return t
}

func merge(a, b []int32, by func(x, y int32) int) []int32 {
	out := make([]int32, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if by(a[0], b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}
