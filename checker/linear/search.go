package linear

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// wholeLimit is the number of operations up to which a search of all of them may
// be worth its time, when the windows did not decide.
const wholeLimit = 400

// A window is the part of a history between two neighbouring cores. Nothing but
// phantoms passes a core, so a window can be judged by itself.
type window struct {
	lo, hi   int   // places among the cuts; -1 and len(cuts) are the ends of time
	from, to int64 // the end of the left core, the beginning of the right one
	grants   []int32
	tries    []int32
}

// search decides what no plan could: by porcupine, on each window that holds a
// grant whose place is open, then on the whole if that is small.
func (p *problem) search(lim *limits, d *decided) {
	d.verdict = Unknown
	gaveUp := p.searchWindows(lim, d)
	if d.verdict != Unknown {
		return
	}
	if p.ops.len() <= wholeLimit {
		whole := p.ops.flat()
		found, spent := lim.search(whole)
		switch {
		case found:
			d.verdict = Legal
			return
		case spent == "":
			d.verdict, d.violation = Illegal, &violation{rule: noOrder, ops: whole}
			return
		}
		gaveUp = spent
	}
	d.reason = fmt.Sprintf("%s, and the search for an order gave up: %s", p.odd, gaveUp)
}

// searchWindows judges each window by itself. Phantoms are the one thing that
// windows share: one that is illegal with all of them is illegal, and a history is
// legal when each window is legal with phantoms of its own.
func (p *problem) searchWindows(lim *limits, d *decided) (gaveUp string) {
	cuts := p.cuts()
	windows := p.windows(cuts)
	outer := p.outer(cuts)
	if !p.inTokenOrder(cuts) {
		return "tokens and stamps order the grants differently"
	}
	if v := outer.check(&p.ops, p.share(windows)); v != nil {
		d.verdict, d.violation = Illegal, v
		return ""
	}
	spare := outer.spare()
	open := false
	for i := range windows {
		w := &windows[i]
		var v Verdict
		var why string
		v, spare, why = p.searchWindow(lim, w, outer.phantoms, spare, d)
		if v == Illegal {
			d.verdict = Illegal
			return ""
		}
		open = open || v == Unknown
		gaveUp = cmp.Or(gaveUp, why)
	}
	if !open {
		d.verdict = Legal
		return ""
	}
	return cmp.Or(gaveUp, "what could explain one refusal is needed for another")
}

func (p *problem) searchWindow(lim *limits, w *window, all, spare []int32, d *decided) (Verdict, []int32, string) {
	found, gaveUp := lim.search(p.part(w, nil))
	if found {
		return Legal, spare, ""
	}
	usable := p.useful(all, w)
	if len(usable) == 0 && gaveUp != "" {
		return Unknown, spare, gaveUp
	}
	ops := p.part(w, usable)
	if len(usable) > 0 {
		found, gaveUp = lim.search(ops)
	}
	if !found && gaveUp == "" {
		d.violation = &violation{rule: noOrder, ops: ops}
		return Illegal, spare, ""
	}
	own := p.useful(spare, w)
	for n := 1; n < 2*len(own); n *= 2 { // no more than it needs
		n := min(n, len(own))
		if found, gaveUp = lim.search(p.part(w, own[:n])); found {
			return Legal, slices.Delete(spare, 0, n), ""
		}
	}
	return Unknown, spare, gaveUp
}

// useful are the phantoms that a window can need, of those sorted by their calls:
// no more than it has tries. The first are as good as any if they may also end
// first.
func (p *problem) useful(sorted []int32, w *window) []int32 {
	if len(w.tries) == 0 {
		return nil
	}
	n := sort.Search(len(sorted), func(i int) bool { return p.grants[sorted[i]].la > w.to })
	if n > len(w.tries) && slices.IsSortedFunc(sorted[:n], func(a, b int32) int { return cmp.Compare(p.grants[a].le, p.grants[b].le) }) {
		n = len(w.tries)
	}
	return sorted[:n]
}

// open reports whether the place of a grant among the others is in doubt.
func (g *grant) open() bool {
	return g.exists == definite && (!g.tight() || g.lateRefusal) || g.refused
}

// cuts are the grants at whose cores the history can be cut, in order.
func (p *problem) cuts() []int32 {
	cuts := slices.DeleteFunc(p.cores(), func(i int32) bool { return p.grants[i].open() })
	pl := &plan{grants: p.grants, order: cuts}
	p.dropTies(pl)
	return pl.order
}

// outer is the plan of everything whose place is not in doubt.
func (p *problem) outer(cuts []int32) *plan {
	pl := &plan{grants: p.grants, order: cuts}
	for i := range p.grants {
		if g := &p.grants[i]; g.exists == possible && !g.refused {
			pl.phantoms = append(pl.phantoms, int32(i))
		}
	}
	slices.SortStableFunc(pl.phantoms, func(a, b int32) int {
		x, y := &p.grants[a], &p.grants[b]
		return cmp.Or(cmp.Compare(x.la, y.la), cmp.Compare(x.le, y.le))
	})
	return pl
}

// spare are the phantoms that the plan did not spend.
func (pl *plan) spare() []int32 {
	spent := map[int32]bool{}
	for _, g := range pl.serves {
		spent[g] = true
	}
	return slices.DeleteFunc(slices.Clone(pl.phantoms), func(g int32) bool { return spent[g] })
}

// inTokenOrder reports whether each token is higher than the ones before it.
func (p *problem) inTokenOrder(grants []int32) bool {
	last, known := uint64(0), false
	for _, i := range grants {
		g := &p.grants[i]
		if !g.hasToken {
			continue
		}
		t := g.token(&p.ops)
		if known && t <= last {
			return false
		}
		last, known = t, true
	}
	return true
}

// reach is the time in which each open grant may begin, or its denials may
// matter.
func (p *problem) reach() []span {
	reach := make([]span, len(p.grants))
	for i := range p.grants {
		g := &p.grants[i]
		reach[i] = span{g.la, g.ua}
		if g.exists == possible {
			reach[i].to = Forever
		}
	}
	for _, k := range p.early {
		o := p.ops.at(k)
		r := &reach[o.Grant]
		*r = span{min(r.from, o.Call), max(r.to, o.Return)}
	}
	return reach
}

// windows finds the windows with open grants and joins those that overlap.
func (p *problem) windows(cuts []int32) []window {
	isCut := make([]bool, len(p.grants))
	for _, i := range cuts {
		isCut[i] = true
	}
	reach := p.reach()
	var ws []window
	for i := range p.grants {
		g := &p.grants[i]
		if isCut[i] || g.exists == never || g.exists == possible && !g.refused {
			continue
		}
		r := reach[i]
		ws = append(ws, window{
			lo:     sort.Search(len(cuts), func(k int) bool { return p.grants[cuts[k]].le >= r.from }) - 1,
			hi:     sort.Search(len(cuts), func(k int) bool { return p.grants[cuts[k]].ua > r.to }),
			grants: []int32{int32(i)},
		})
	}
	slices.SortStableFunc(ws, func(a, b window) int { return cmp.Compare(a.lo, b.lo) })
	var out []window
	for _, w := range ws {
		if n := len(out); n > 0 && w.lo < out[n-1].hi {
			out[n-1].hi = max(out[n-1].hi, w.hi)
			out[n-1].grants = append(out[n-1].grants, w.grants...)
			continue
		}
		out = append(out, w)
	}
	for i := range out {
		p.frame(&out[i], cuts)
	}
	return out
}

// frame adds the window's ends and the grants whose cores lie in it.
func (p *problem) frame(w *window, cuts []int32) {
	w.from, w.to = Dawn, Forever
	if w.lo >= 0 {
		w.from = p.grants[cuts[w.lo]].ua
	}
	if w.hi < len(cuts) {
		w.to = p.grants[cuts[w.hi]].le
	}
	for k := max(w.lo, 0); k <= w.hi && k < len(cuts); k++ {
		w.grants = append(w.grants, cuts[k])
	}
	slices.Sort(w.grants)
}

// share gives each window the tries that lie in it, and gives back the others.
func (p *problem) share(ws []window) []int32 {
	var rest []int32
	for _, i := range p.tries {
		o := p.ops.at(i)
		k := sort.Search(len(ws), func(k int) bool { return ws[k].to >= o.Return })
		if k < len(ws) && o.Call >= ws[k].from {
			ws[k].tries = append(ws[k].tries, i)
		} else {
			rest = append(rest, i)
		}
	}
	return rest
}

// part is the operations of a window, with those phantoms.
func (p *problem) part(w *window, phantoms []int32) []Op {
	return p.project(slices.Concat(w.grants, phantoms), w.tries)
}

// project keeps the operations of those grants and those tries, in order.
func (p *problem) project(grants, tries []int32) []Op {
	p.index()
	places := slices.Clone(tries)
	for _, g := range grants {
		places = append(places, p.byGrant[p.firstOf[g]:p.firstOf[g+1]]...)
	}
	slices.Sort(places)
	places = slices.Compact(places)
	out := make([]Op, len(places))
	for i, k := range places {
		out[i] = *p.ops.at(k)
	}
	return out
}

// index files the operations by grant, once.
func (p *problem) index() {
	if p.firstOf != nil {
		return
	}
	p.firstOf = make([]int32, len(p.grants)+1)
	n := 0
	for _, o := range p.ops.all() {
		if g := o.Grant; g != NoGrant {
			p.firstOf[g+1]++
			n++
		}
	}
	for g := range p.grants {
		p.firstOf[g+1] += p.firstOf[g]
	}
	next := slices.Clone(p.firstOf)
	p.byGrant = make([]int32, n)
	for i, o := range p.ops.all() {
		if g := o.Grant; g != NoGrant {
			p.byGrant[next[g]] = i
			next[g]++
		}
	}
}
