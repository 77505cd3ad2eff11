package checker

import (
	"slices"
	"sort"

	"github.com/lockcheck/lockcheck/history"
)

// promise is what the acquire's ok says about how long the lock is held.
type promise uint8

const (
	timed   promise = iota // a lease of a known length
	session                // while a session lives that may end unannounced
	forever                // until it is released
)

// A term is one stretch that a lease was granted for: by the acquire, or by a
// renewal.
type term struct {
	from, ok, end int64 // end = from + valid
	valid         int64
	certain       bool // the renewal's outcome is known; else it can only shorten what was there
}

// An ending is a reason for a section to be over.
type ending struct {
	at  int64
	idx int
	why string
}

// A grant is everything known about one acquire that was ok, or, with granted
// false, about a number that others used and no acquire brought.
type grant struct {
	id      uint64
	key     *keyState
	proc    history.Process
	granted bool

	invoke, ok       int64
	invokeIdx, okIdx int
	token            history.Opt[uint64]
	promise          promise
	terms            []term
	first            [1]term // where terms begins: most grants have one
	lease            [1]span
	proof            int64 // session: the latest time at which it is proved to have been held

	ended   bool // some reason is known; the earliest counts once nothing earlier can come
	end     ending
	release history.Opt[int64] // invoke of its release, or of its process's close
	freed   bool               // a release of it was ok
	relIdx  int
	lost    history.Opt[int64]
	notHeld history.Opt[int64] // when a "not-held" came back
	next    *follower          // the first grant of the key that was asked for after this one's ok

	leases []span // computed once the section is final

	writes         int // of its process that are open, or whose outcome nobody knows
	firstAccess    int // place in the key's store order, from 1; 0 is none
	firstAccessIdx int
	outside        []outsideWrite
}

// A follower is what has to be known of the grant that comes after another one. It
// is not that grant itself, since whoever remembered one grant would then remember
// all that came after it.
type follower struct {
	id    uint64
	proc  history.Process
	ok    int64
	okIdx int
}

// An outsideWrite is a write that was invoked after its grant was known to be gone.
type outsideWrite struct {
	value value
	idx   int
	at    int64
	why   string
}

func (g *grant) endAt(at int64, idx int, why string) {
	if !g.ended || at < g.end.at {
		g.ended, g.end = true, ending{at, idx, why}
	}
}

// renewed adds a term. Terms are kept in the order of their beginnings.
func (g *grant) renewed(t term) {
	i := sort.Search(len(g.terms), func(i int) bool { return g.terms[i].from > t.from })
	g.terms = slices.Insert(g.terms, i, t)
}

// lastValid is the length of the latest promise, for a renewal that does not
// say for how long it asked.
func (g *grant) lastValid() int64 {
	if len(g.terms) == 0 {
		return 0
	}
	return g.terms[len(g.terms)-1].valid
}

// settle computes the under-stated lease, once the section's end is final.
func (g *grant) settle() {
	switch g.promise {
	case forever:
		g.leaseIs(g.end.at)
	case session:
		g.leaseIs(min(g.proof, g.end.at))
	case timed:
		if len(g.terms) == 1 {
			g.leaseIs(min(g.terms[0].end, g.end.at))
			return
		}
		g.leases = g.union()
	}
}

// leaseIs makes the lease one stretch, from the ok to a time after it.
func (g *grant) leaseIs(to int64) {
	if to > g.ok {
		g.lease[0] = span{g.ok, to}
		g.leases = g.lease[:]
	}
}

// union is the lease of a timed grant: the terms, each cut where a renewal that
// may have come after it made the lease shorter, and at the section's end.
func (g *grant) union() []span {
	ends := g.cutEnds()
	var out []span
	for i, t := range g.terms {
		if !t.certain {
			continue
		}
		s := span{t.ok, min(ends[i], g.end.at)}
		if s.to <= s.from {
			continue
		}
		if n := len(out); n > 0 && s.from <= out[n-1].to && s.from >= out[n-1].from {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b span) int { return int(min(max(a.from-b.from, -1), 1)) })
	return out
}

// cutEnds gives for each term the end that can be relied on. A renewal sets the
// key's remaining life anew, so one that may have taken effect later with an
// earlier end shortens the lease. Two requests that overlap may have taken
// effect in either order.
func (g *grant) cutEnds() []int64 {
	n := len(g.terms)
	ends := make([]int64, n)
	later := int64(inf)
	for i := n - 1; i >= 0; i-- {
		ends[i] = min(g.terms[i].end, later)
		later = min(later, g.terms[i].end)
	}
	for i := 1; i < n; i++ {
		for j := i - 1; j >= 1 && g.terms[j].ok >= g.terms[i].from; j-- { // term 0 is the acquire: before all others
			ends[i] = min(ends[i], g.terms[j].end)
		}
	}
	return ends
}

// leaseEnd is the end of the under-stated lease; its ok when there is none.
func (g *grant) leaseEnd() int64 {
	if n := len(g.leases); n > 0 {
		return g.leases[n-1].to
	}
	return g.ok
}

// leaseEndSeenAt is the end of the under-stated lease as far as it was begun by
// time t: a renewal that was asked for later is no part of what stood then.
func (g *grant) leaseEndSeenAt(t int64) int64 {
	if g.promise != timed {
		return g.leaseEnd()
	}
	if len(g.terms) == 1 {
		return g.leaseEnd()
	}
	ends := g.cutEnds()
	e := g.ok
	for i, tm := range g.terms {
		if tm.certain && tm.from <= t {
			e = max(e, min(ends[i], g.end.at))
		}
	}
	return e
}

// surelyOver reports whether the lease had certainly ended by time t: even if
// the server carried the latest renewal out at the last moment.
func (g *grant) surelyOver(t int64) bool {
	switch g.promise {
	case forever:
		return false
	case session:
		return t > g.leaseEnd()
	}
	bound, newest := g.ok, int64(-inf)
	for i := len(g.terms) - 1; i >= 0; i-- {
		tm := g.terms[i]
		if !tm.certain || tm.from > t {
			continue
		}
		if newest == -inf {
			newest = tm.from
		}
		if tm.ok >= newest { // the newest, and those that may have come after it
			bound = max(bound, tm.ok+tm.valid)
		}
	}
	return t >= bound
}

// promisedEnd is the end of the lease, whatever became of its holder.
func (g *grant) promisedEnd() int64 {
	e := g.ok
	switch g.promise {
	case session:
		e = g.proof
	case timed:
		for _, t := range g.terms {
			if t.certain {
				e = max(e, t.end)
			}
		}
	}
	return e
}
