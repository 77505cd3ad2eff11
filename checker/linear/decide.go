package linear

import (
	"cmp"
	"container/heap"
	"slices"
	"sort"
)

// A rule is what a violation breaks.
type rule uint8

const (
	releasedTwice rule = iota + 1 // two releases of one grant succeeded
	sameToken                     // two grants have one token
	lateStart                     // the second had begun before the first allows it
	lateEnd                       // the second had ended before the first allows it
	noHolder                      // "held", and nobody can have held the lock
	noOrder                       // a search found no order
)

// A violation says why no order explains the history.
type violation struct {
	rule          rule
	first, second int32   // grants
	at            int64   // what the first allows, for lateStart and lateEnd
	gaps          []gap   // for noHolder: the gaps that lack a phantom between them
	phantoms      []int32 // for noHolder: those that compete for the gaps
	plan          *plan
	ops           []Op // for noOrder: what was searched
}

// A plan is one order of the grants that are taken to have held, the tries that
// need a holder, and the phantoms that may be it.
type plan struct {
	grants   []grant
	order    []int32
	twin     int // a place whose grant has the token of the one before, or 0
	phantoms []int32

	loStart []int64 // the least solution: the earliest start of each grant in order
	hiEnd   []int64 // the greatest solution: the latest end; hiStart gives the latest start
	needs   []gap
	serves  []int32 // the phantom of each need, once covered
}

// A gap is a time between two neighbours in the order in which neither can have
// held the lock, although an acquire was told "held" then.
type gap struct {
	slot  int32 // before the grant with this place in the order
	try   int32 // the try that ends first
	after int64 // a phantom cannot begin before
	by    int64 // it must have begun by then
	need  int64 // it must hold then or later
	till  int64 // it must be able to end by then
}

// decided is the outcome of a decision.
type decided struct {
	verdict     Verdict
	reason      string
	violation   *violation
	problem     *problem
	certificate []Step
	searched    bool
}

// decide judges the operations of one key, whose grants are numbered from 0 up to
// grants.
func decide(ops opList, grants int, lim *limits, certificate bool) decided {
	p, v := newProblem(ops, grants)
	d := decided{problem: p}
	switch {
	case v != nil:
		d.verdict, d.violation = Illegal, v
		return d
	case p.broken != "":
		d.verdict, d.reason = Unknown, p.broken
		return d
	}
	pl, tie := p.exactPlan()
	if p.odd != "" || tie {
		if tie {
			p.odd = "two grants without tokens were certainly held at the same instant only"
		}
		p.outside(lim, &d, certificate)
		return d
	}
	if v := pl.check(&p.ops, p.tries); v != nil {
		d.verdict, d.violation = Illegal, v
		return d
	}
	if certificate {
		d.certificate = pl.certify(p)
	}
	return d
}

// exactPlan orders the definite grants: by token where the lock gives tokens,
// otherwise by their cores. It sets odd when that is not the only possible order;
// tie tells that two cores are the same instant.
func (p *problem) exactPlan() (pl *plan, tie bool) {
	n, m := 0, 0
	tokens, loose := 0, 0
	for i := range p.grants {
		switch g := &p.grants[i]; g.exists {
		case definite:
			n++
			if g.hasToken {
				tokens++
			} else if !g.tight() {
				loose++
			}
		case possible:
			m++
		}
	}
	switch {
	case tokens > 0 && tokens < n:
		p.odd = "only some of the grants have tokens"
	case tokens == 0 && loose > 0:
		p.odd = "a grant without a token may have ended before its acquire returned"
	}
	if p.odd != "" {
		return nil, false
	}
	pl = &plan{grants: p.grants, order: make([]int32, 0, n), phantoms: make([]int32, 0, m)}
	for i := range p.grants {
		switch p.grants[i].exists {
		case definite:
			pl.order = append(pl.order, int32(i))
		case possible:
			pl.phantoms = append(pl.phantoms, int32(i))
		}
	}
	if tokens > 0 {
		pl.twin = p.sortByToken(pl.order)
		return pl, false
	}
	return pl, sortByCore(p.grants, pl.order)
}

// sortByToken orders grants by token, and gives the first place whose token is also
// that of the place before it, or 0.
func (p *problem) sortByToken(order []int32) (twin int) {
	if p.inTokenOrder(order) { // as most histories are
		return 0
	}
	type keyed struct {
		token uint64
		grant int32
	}
	keys := make([]keyed, len(order)) // side by side, since the sort compares them often
	for i, g := range order {
		keys[i] = keyed{p.grants[g].token(&p.ops), g}
	}
	slices.SortStableFunc(keys, func(a, b keyed) int { return cmp.Compare(a.token, b.token) })
	for i := range keys {
		order[i] = keys[i].grant
		if twin == 0 && i > 0 && keys[i].token == keys[i-1].token {
			twin = i
		}
	}
	return twin
}

// sortByCore orders grants by their cores and tells whether two of them are the
// same instant, so that either may come first.
func sortByCore(grants []grant, order []int32) (tie bool) {
	byCore := func(a, b int32) int {
		x, y := &grants[a], &grants[b]
		if c := cmp.Compare(x.ua, y.ua); c != 0 {
			return c
		}
		return cmp.Compare(x.le, y.le)
	}
	if !slices.IsSortedFunc(order, byCore) {
		slices.SortStableFunc(order, byCore)
	}
	for i := 1; i < len(order); i++ {
		x, y := &grants[order[i-1]], &grants[order[i]]
		if x.ua == y.ua && x.le == y.le && x.ua == x.le {
			return true
		}
	}
	return false
}

// check looks for a violation of the plan: in the chain of grants, then among the
// tries.
func (pl *plan) check(ops *opList, tries []int32) *violation {
	if v := pl.forward(); v != nil {
		return v
	}
	pl.backward()
	pl.findNeeds(ops, tries)
	return pl.spend()
}

// forward pushes each grant as early as its predecessors allow. A violation has a
// witness of at most two grants: the one that failed, and the one that set t.
func (pl *plan) forward() *violation {
	pl.loStart = make([]int64, len(pl.order))
	t, source := int64(Dawn), int32(-1)
	for k, i := range pl.order {
		g := &pl.grants[i]
		if k > 0 && k == pl.twin {
			return &violation{rule: sameToken, first: pl.order[k-1], second: i, plan: pl}
		}
		if source < 0 || g.la > t {
			t, source = g.la, i
		}
		if t > g.ua {
			return &violation{rule: lateStart, first: source, second: i, at: t, plan: pl}
		}
		pl.loStart[k] = t
		if g.le > t {
			t, source = g.le, i
		}
		if t > g.ue {
			return &violation{rule: lateEnd, first: source, second: i, at: t, plan: pl}
		}
	}
	return nil
}

// backward pulls each grant as late as its successors allow.
func (pl *plan) backward() {
	n := len(pl.order)
	pl.hiEnd = make([]int64, n)
	h := int64(Forever)
	for k := n - 1; k >= 0; k-- {
		g := &pl.grants[pl.order[k]]
		h = min(h, g.ue)
		pl.hiEnd[k] = h
		h = min(h, g.ua)
	}
}

// hiStart is the latest at which the grant at place k can begin.
func (pl *plan) hiStart(k int) int64 {
	return min(pl.hiEnd[k], pl.grants[pl.order[k]].ua)
}

// findNeeds finds the gaps with tries that no grant in the order can cover. With
// every start at its least and every end at its greatest, a try that touches a
// hold is covered; only one that lies wholly between two holds is not.
func (pl *plan) findNeeds(ops *opList, tries []int32) {
	pl.needs = pl.needs[:0]
	pos, n := 0, len(pl.order)
	for _, i := range tries {
		try := ops.at(i)
		pos = gallop(pl.loStart, pos, try.Return)
		if pos > 0 && pl.hiEnd[pos-1] >= try.Call {
			continue
		}
		need := gap{slot: int32(pos), try: i, after: Dawn, by: try.Return, need: try.Call, till: Forever}
		if pos > 0 {
			need.after = max(pl.loStart[pos-1], pl.grants[pl.order[pos-1]].le)
		}
		if pos < n {
			need.till = pl.hiStart(pos)
		}
		if m := len(pl.needs); m > 0 && pl.needs[m-1].slot == need.slot {
			if need.by < pl.needs[m-1].by {
				pl.needs[m-1] = need
			}
			continue
		}
		pl.needs = append(pl.needs, need)
	}
	slices.SortFunc(pl.needs, func(a, b gap) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.by, b.by), cmp.Compare(a.try, b.try))
	})
	pl.needs = slices.CompactFunc(pl.needs, func(a, b gap) bool { return a.slot == b.slot })
}

// gallop gives the smallest p with a[p] > u, looking near from first: tries come
// nearly in order.
func gallop(a []int64, from int, u int64) int {
	lo, hi := from, from
	for step := 1; hi < len(a) && a[hi] <= u; step *= 2 {
		lo, hi = hi+1, hi+step
	}
	hi = min(hi, len(a))
	for step := 1; lo > 0 && a[lo-1] > u; step *= 2 {
		hi, lo = lo-1, max(0, lo-step)
	}
	return lo + sort.Search(hi-lo, func(i int) bool { return a[lo+i] > u })
}

// spend gives each needy gap a phantom. What a gap asks of a phantom grows from
// gap to gap, so each can serve the gaps from a first one to a last one; of those
// that can serve a gap, the one that can serve the fewest later ones is spent. That
// is exact.
func (pl *plan) spend() *violation {
	if len(pl.needs) == 0 {
		return nil
	}
	m := len(pl.needs)
	order, ends, lasting := pl.byFirst()
	pl.serves = make([]int32, 0, m)
	var passing passing
	next := int32(0)
	for j := range pl.needs {
		for ; next < ends[j]; next++ {
			ph := &pl.grants[order[next]]
			last := sort.Search(m, func(i int) bool { return pl.needs[i].after > ph.ua || pl.needs[i].need > ph.ue }) - 1
			if last == m-1 {
				lasting = append(lasting, order[next])
			} else {
				heap.Push(&passing, passer{order[next], int32(last)})
			}
		}
		for len(passing) > 0 && int(passing[0].last) < j {
			heap.Pop(&passing)
		}
		switch n := len(lasting); {
		case len(passing) > 0:
			pl.serves = append(pl.serves, heap.Pop(&passing).(passer).phantom)
		case n > 0:
			pl.serves = append(pl.serves, lasting[n-1])
			lasting = lasting[:n-1]
		default:
			return pl.shortage(j, order[:ends[j]])
		}
	}
	return nil
}

// byFirst sorts the phantoms by the first gap that they can serve: order[:ends[j]]
// are those that can serve gap j or an earlier one. Lasting has room for those that
// can serve all later ones.
func (pl *plan) byFirst() (order, ends, lasting []int32) {
	m := len(pl.needs)
	first := make([]int32, len(pl.phantoms))
	ends = make([]int32, m+1)
	for i, g := range pl.phantoms {
		ph := &pl.grants[g]
		f := sort.Search(m, func(j int) bool { return pl.needs[j].by >= ph.la && pl.needs[j].till >= ph.le })
		first[i] = int32(f)
		ends[f]++
	}
	at := int32(0)
	for f, n := range ends {
		ends[f] = at // where those of f begin; they end where their last one is put
		at += n
	}
	order = make([]int32, len(pl.phantoms))
	for i, f := range first {
		order[ends[f]] = pl.phantoms[i]
		ends[f]++
	}
	return order, ends, first[:0]
}

// shortage finds why gap j is left without a phantom: the gaps that compete with it,
// directly or through others, for the same phantoms, of which there is one too few.
func (pl *plan) shortage(j int, order []int32) *violation {
	began := slices.Clone(order)
	spentOn := make(map[int32]int, j)
	for i, g := range pl.serves[:j] {
		spentOn[g] = i
	}
	v := &violation{rule: noHolder, plan: pl}
	work := 0
	for queue := []int{j}; len(queue) > 0; queue = queue[1:] {
		if work += len(began); work > shortageWork {
			return &violation{rule: noHolder, plan: pl, gaps: pl.needs[:j+1], phantoms: slices.Concat(v.phantoms, began)}
		}
		need := &pl.needs[queue[0]]
		v.gaps = append(v.gaps, *need)
		rest := began[:0]
		for _, i := range began {
			ph := &pl.grants[i]
			if ph.la <= need.by && ph.le <= need.till && ph.ua >= need.after && ph.ue >= need.need {
				v.phantoms = append(v.phantoms, i)
				queue = append(queue, spentOn[i])
			} else {
				rest = append(rest, i)
			}
		}
		began = rest
	}
	slices.SortFunc(v.gaps, func(a, b gap) int { return cmp.Compare(a.slot, b.slot) })
	return v
}

// shortageWork bounds the search for the competing gaps; past it all earlier ones
// are taken.
const shortageWork = 50_000_000

// A passer is a phantom that can serve no gap after last; passing is a heap of
// them, the first to go on top.
type passer struct{ phantom, last int32 }

type passing []passer

func (h passing) Len() int           { return len(h) }
func (h passing) Less(i, j int) bool { return h[i].last < h[j].last }
func (h passing) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *passing) Push(x any)        { *h = append(*h, x.(passer)) }
func (h *passing) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
