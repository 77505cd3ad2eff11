package linear

// existence says what is known about the beginning of a grant.
type existence uint8

const (
	never    existence = iota // no acquire brought it
	definite                  // it held: its acquire was ok, or a later operation proves it
	possible                  // an indeterminate acquire: it may have held
)

// A grant is the window in which its hold must begin, [la, ua], and the one in
// which it must end, [le, ue]. If ua <= le, the lock was certainly held by it all
// the time between them: its core. A long history has many, and all are in memory
// at once: 56 bytes each.
//
// A grant that may have held or not is called a phantom in a plan: an indeterminate
// acquire, or one that held but whose place among the others is open.
type grant struct {
	la, ua int64
	le, ue int64

	renewCall   int64 // the latest invoke of an ok renewal
	acquire     int32 // index of its acquire
	exists      existence
	hasToken    bool
	released    bool
	renewed     bool
	proved      bool // its acquire is indeterminate, but a later operation succeeded
	refused     bool // an indeterminate acquire that was told "not-held" later
	lateRefusal bool // a "not-held" may have come before the hold began
}

func newGrant() grant {
	return grant{ua: Forever, le: Forever, ue: Forever, renewCall: Dawn, acquire: -1}
}

// token is the token of a grant that has one.
func (g *grant) token(ops *opList) uint64 { return ops.at(g.acquire).Token }

// leased makes le the time from which on the grant may end by itself, as long as no
// release has set it.
func (g *grant) leased(until int64) {
	if !g.released {
		g.le = until
	}
}

// tight reports whether the grant has a core.
func (g *grant) tight() bool { return g.ua <= g.le }

// A problem is the history of one key, with the window of each grant.
type problem struct {
	ops     opList
	grants  []grant
	tries   []int32 // acquires that were told "held"
	renews  []int32
	frees   []int32 // indeterminate releases
	denials []int32 // releases and renewals that were told "not-held"
	early   []int32 // the denials that may have come before their grant's hold began
	odd     string  // why the passes alone are not exact, or ""
	broken  string  // why nothing can be decided, or ""

	firstOf []int32 // by grant: its first place in byGrant
	byGrant []int32 // operations, filed by grant
}

// newProblem computes the windows. The violation is a grant that was released
// twice, which no order can mend.
func newProblem(ops opList, grants int) (*problem, *violation) {
	p := &problem{ops: ops, grants: make([]grant, grants),
		tries: make([]int32, 0, ops.tries), frees: make([]int32, 0, ops.frees)}
	for i := range p.grants {
		p.grants[i] = newGrant()
	}
	for i, o := range ops.all() {
		switch {
		case o.Kind == Acquire && o.Outcome == Denied:
			p.tries = append(p.tries, i)
		case o.Kind == Acquire:
			p.acquired(o, i)
		case o.Outcome == Denied:
			p.denials = append(p.denials, i)
		case o.Kind == Renew:
			p.renewedBy(o, i)
		case o.Outcome == Info:
			p.frees = append(p.frees, i)
		default:
			if twice := p.releasedBy(o); twice != nil {
				return p, twice
			}
		}
	}
	p.settleLeases()
	p.settleExistence()
	p.settleDenials()
	p.settleEnds()
	return p, nil
}

func (p *problem) acquired(o *Op, i int32) {
	g := &p.grants[o.Grant]
	if g.acquire >= 0 {
		p.broken = "a grant has two acquires"
		return
	}
	g.acquire = i
	g.la = o.Call
	g.leased(o.Deadline)
	if o.Outcome == OK {
		g.exists = definite
		g.ua = min(g.ua, o.Return)
		g.hasToken = o.HasToken
	} else {
		g.exists = possible
	}
}

func (p *problem) releasedBy(o *Op) *violation {
	g := &p.grants[o.Grant]
	if g.released {
		return &violation{rule: releasedTwice, first: o.Grant, second: o.Grant}
	}
	g.released = true
	g.le, g.ue = o.Call, o.Return
	return nil
}

func (p *problem) renewedBy(o *Op, i int32) {
	p.renews = append(p.renews, i)
	if o.Outcome != OK {
		return
	}
	g := &p.grants[o.Grant]
	g.renewed = true
	g.renewCall = max(g.renewCall, o.Call)
	g.ua = min(g.ua, o.Return)
}

// settleLeases finds from when on each grant may have ended by itself. The last
// ok renewal sets the deadline; where several overlap, any of them that may have
// been the last. An indeterminate renewal may have come last of all.
func (p *problem) settleLeases() {
	for _, i := range p.renews {
		if g := &p.grants[p.ops.at(i).Grant]; g.renewed {
			g.leased(Forever)
		}
	}
	for _, i := range p.renews {
		o := p.ops.at(i)
		g := &p.grants[o.Grant]
		switch {
		case o.Outcome == Info:
			g.leased(min(g.le, max(o.Deadline, o.Call)))
		case o.Return >= g.renewCall:
			g.leased(min(g.le, o.Deadline))
		}
	}
}

// settleExistence makes definite what a later success proves.
func (p *problem) settleExistence() {
	for i := range p.grants {
		g := &p.grants[i]
		if !g.released && !g.renewed {
			continue
		}
		switch g.exists {
		case never:
			p.broken = "an operation succeeded on a grant that was never asked for"
		case possible:
			g.exists, g.proved = definite, true
			g.ua = min(g.ua, g.ue) // nothing but a release has bounded the end so far
			p.odd = "an acquire of unknown outcome was proved by a later operation"
		}
	}
}

// settleDenials uses each "not-held": the hold was over by then, if it cannot
// have been before the hold began.
func (p *problem) settleDenials() {
	for _, i := range p.denials {
		o := p.ops.at(i)
		g := &p.grants[o.Grant]
		switch {
		case g.exists == never || o.Return < g.la:
		case g.exists == possible:
			g.refused = true
			p.odd = `an acquire of unknown outcome was told "not-held" later`
		case o.Call <= g.ua:
			g.lateRefusal = true
			p.early = append(p.early, i)
			p.odd = `a "not-held" came while its own acquire was under way`
		default:
			g.ue = min(g.ue, o.Return)
		}
	}
}

func (p *problem) settleEnds() {
	for _, i := range p.frees {
		o := p.ops.at(i)
		if g := &p.grants[o.Grant]; !g.released {
			g.le = min(g.le, o.Call)
		}
	}
	for i := range p.grants {
		g := &p.grants[i]
		g.le = max(g.le, g.renewCall)
	}
}
