package checker

import (
	"fmt"

	"github.com/lockcheck/lockcheck/history"
)

// Kinds of anomalies of exclusion and lease.
const (
	kindOverlap          = "overlap"
	kindGrantedAfterLoss = "granted-after-loss"
	kindHeldAfterLoss    = "held-after-loss"
)

// Classes of overlapping sections, at the later one's ok.
const (
	inLease   = "in-lease"  // both leases stood: the lock itself was given out twice
	ambiguous = "ambiguous" // nobody can tell
	overrun   = "overrun"   // the earlier one's lease was over, and its holder went on
)

// overlap reports two sections of one key that overlap. h was granted first.
func (j *Judge) overlap(h, g *grant) {
	if min(h.end.at, g.end.at) <= g.ok {
		return
	}
	class := ambiguous
	switch {
	case g.ok < h.leaseEndSeenAt(g.ok) && g.ok < g.leaseEnd():
		class = inLease
	case h.surelyOver(g.ok):
		class = overrun
	}
	msg := fmt.Sprintf("process %d was granted %s (grant %d) while process %d still believed to hold it under grant %d, which it had been given %s earlier; %s",
		g.proc, quoted(g.key.name), g.id, h.proc, h.id, ms(g.ok-h.ok), h.standing(class, g.ok))
	j.report(Exclusion, Anomaly{Kind: kindOverlap, Class: class, Key: g.key.name, Ops: []int{h.okIdx, g.okIdx}, Message: msg}, h.ok, g.ok)
}

// standing says in words how the earlier lease stood when the later grant came.
func (g *grant) standing(class string, t int64) string {
	switch {
	case class == inLease && g.promise == forever:
		return "the lock never expires"
	case class == inLease:
		return fmt.Sprintf("its lease had at least %s to go", ms(g.leaseEndSeenAt(t)-t))
	case class == overrun && g.promise == session:
		return fmt.Sprintf("its session had last been proved alive %s before", ms(t-g.leaseEnd()))
	case class == overrun:
		return fmt.Sprintf("its lease had been over for %s", ms(t-g.leaseEndSeenAt(t)))
	}
	return "whether its lease was over cannot be told"
}

// A brokenLease is a lease that another grant of the key overlapped.
type brokenLease struct {
	of, by     *grant
	candidates []*releasing // that may have broken it
}

// leaseOverlap reports two under-stated leases of one key that overlap: the
// lock itself was given out twice, whatever its holders believed.
func (j *Judge) leaseOverlap(h, g *grant) {
	at, ok := meet(h.leases, g.leases)
	if !ok {
		return
	}
	msg := fmt.Sprintf("the leases of grant %d (process %d) and grant %d (process %d) of %s overlap by at least %s: the lock was given to both",
		h.id, h.proc, g.id, g.proc, quoted(g.key.name), ms(at.to-at.from))
	j.report(Lease, Anomaly{Kind: kindOverlap, Key: g.key.name, Ops: []int{h.okIdx, g.okIdx}, Message: msg}, h.ok, at.from)
	h.key.noteBroken(h, g)
}

// meet gives the first stretch that two lists of spans share. Spans that only
// touch do not meet: equal stamps are concurrent.
func meet(a, b []span) (span, bool) {
	for _, x := range a {
		for _, y := range b {
			if s := (span{max(x.from, y.from), min(x.to, y.to)}); s.from < s.to {
				return s, true
			}
		}
	}
	return span{}, false
}

// grantedAfterLoss reports a lock that was granted on a session that was
// already known to be lost, with no newer beginning.
func (j *Judge) grantedAfterLoss(g *grant, op *operation) {
	if !op.lostAt.Set || (op.lostOf.Set && op.lostOf.V != g.id) {
		return
	}
	msg := fmt.Sprintf("process %d was granted %s (grant %d) %s after its session was lost, and began nothing anew in between",
		g.proc, quoted(g.key.name), g.id, ms(g.ok-op.lostAt.V))
	j.report(Lease, Anomaly{Kind: kindGrantedAfterLoss, Key: g.key.name, Ops: []int{g.invokeIdx, op.lostIx, g.okIdx}, Message: msg}, g.invoke, g.ok)
}

// heldAfterLoss reports an operation that was begun after the loss and that the
// lock answered as if it were held.
func (j *Judge) heldAfterLoss(g *grant, op *operation, o *history.Op) {
	if !g.lost.Set || op.at <= g.lost.V {
		return
	}
	msg := fmt.Sprintf("process %d lost %s (grant %d), and %s later a %s of it was ok",
		g.proc, quoted(g.key.name), g.id, ms(op.at-g.lost.V), op.f)
	j.report(Lease, Anomaly{Kind: kindHeldAfterLoss, Key: g.key.name, Ops: []int{g.okIdx, op.idx, o.Index}, Message: msg}, g.lost.V, o.Time)
}

// lost takes what the client's listener, or a watcher, says of a loss: of one
// grant, or of everything that the session holds.
func (j *Judge) lost(p *proc, o *history.Op) {
	if op := p.open; op != nil && op.f == history.Acquire && (o.Key == "" || o.Key == op.key.name) {
		op.lostAt, op.lostIx, op.lostOf = history.Some(o.Time), o.Index, o.Grant
	}
	if o.Grant.Set {
		if g := j.grants[o.Grant.V]; g != nil && g.granted {
			j.loseGrant(p, g, o)
		}
		return
	}
	for _, g := range append([]*grant(nil), p.held...) {
		if o.Key == "" || o.Key == g.key.name {
			j.loseGrant(p, g, o)
		}
	}
}

func (j *Judge) loseGrant(p *proc, g *grant, o *history.Op) {
	if !g.lost.Set {
		g.lost = history.Some(o.Time)
	}
	j.endSection(p, g, o, "it was told that the lock is lost")
}

// ms says a duration of ns for people.
func ms(ns int64) string {
	switch {
	case ns >= inf/2:
		return "the rest of the run"
	case ns < 1e3:
		return fmt.Sprintf("%d ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.3g µs", float64(ns)/1e3)
	case ns < 1e9:
		return fmt.Sprintf("%.3g ms", float64(ns)/1e6)
	}
	return fmt.Sprintf("%.3g s", float64(ns)/1e9)
}

// quoted names a key so that an empty or hostile one does no harm.
func quoted(key string) string { return fmt.Sprintf("%q", key) }
