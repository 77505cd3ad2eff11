package checker

import (
	"fmt"

	"github.com/lockcheck/lockcheck/history"
)

// Kinds of anomalies of release.
const (
	kindReleasedOther    = "released-other"
	kindRenewedAfterLoss = "renewed-after-loss"
)

// maxReleases bounds how many releases of a key are remembered as the possible
// cause of a broken lease.
const maxReleases = 256

// A releasing is a release from its invoke to its completion.
type releasing struct {
	grant    *grant
	at, ret  int64
	idx      int
	failed   bool  // it did not happen
	held     int64 // when a later try had seen the lock held again
	reported bool
}

func invokeRelease(op *operation) {
	if op.grant == nil {
		return
	}
	k := op.key
	op.rel = &releasing{grant: op.grant, at: op.at, idx: op.idx, ret: inf, held: inf}
	if len(k.releases) == maxReleases {
		k.releases[0] = nil
		k.releases = k.releases[1:]
	}
	k.releases = append(k.releases, op.rel)
}

// confirmHeld notes that somebody was refused although these releases were
// over: whoever held the lock then still had it.
func (k *keyState) confirmHeld(at, ret int64) {
	kept := k.unconfirmed[:0]
	for _, r := range k.unconfirmed {
		if r.ret < at {
			r.held = ret
			continue
		}
		kept = append(kept, r)
	}
	k.unconfirmed = kept
}

func (j *Judge) completeRelease(op *operation, o *history.Op) {
	g, r := op.grant, op.rel
	if r != nil {
		r.ret, r.failed = o.Time, o.Type == history.Fail
		if !r.failed {
			op.key.unconfirmed = append(op.key.unconfirmed, r)
		}
	}
	j.results[Release].Checked++
	if o.Type != history.OK || g == nil || !g.granted {
		return
	}
	j.exp.ReleasesOK++
	g.freed = true
	if g.promise == session {
		g.proof = max(g.proof, op.at)
	}
	j.heldAfterLoss(g, op, o)
	if h := g.overtaken(op.at); h != nil {
		r.reported = true
		msg := fmt.Sprintf("process %d released grant %d of %s and was told ok, %s after process %d had been granted the lock (grant %d): it held nothing any more, and what it freed, if anything, was another's",
			g.proc, g.id, quoted(g.key.name), ms(op.at-h.ok), h.proc, h.id)
		j.report(Release, Anomaly{Kind: kindReleasedOther, Key: g.key.name, Ops: []int{g.okIdx, h.okIdx, op.idx, o.Index}, Message: msg}, g.ok, o.Time)
	}
}

// overtaken gives a grant that was asked for after g's ok and granted before
// time t. Then g was over by t.
func (g *grant) overtaken(t int64) *follower {
	if g.next != nil && g.next.ok < t {
		return g.next
	}
	return nil
}

func (j *Judge) completeRenewal(p *proc, op *operation, o *history.Op) {
	g := op.grant
	if g == nil || !g.granted {
		return
	}
	switch o.Type {
	case history.Info:
		indeterminateRenewal(op, o)
	case history.OK:
		j.heldAfterLoss(g, op, o)
		g.extend(op.f, min(o.From.Or(op.at), o.Time), max(op.at, min(o.From.Or(op.at), o.Time)), o)
		if op.f == history.Renew {
			j.renewedAfterLoss(g, op.at, []int{op.idx, o.Index}, o.Time)
		}
	}
}

// extend takes an ok renewal or check. from is where its validity counts from,
// sent a time before which its request had not left.
func (g *grant) extend(f string, from, sent int64, o *history.Op) {
	switch {
	case g.promise == session && (f != history.Check || o.Session || o.From.Set || o.Valid.Set):
		g.proof = max(g.proof, sent)
	case g.promise == timed && f == history.Renew && o.Valid.Set: // a check extends nothing
		g.renewed(term{from: from, ok: o.Time, end: from + o.Valid.V, valid: o.Valid.V, certain: true})
	}
}

// indeterminateRenewal can only shorten a lease: nobody knows whether it
// happened.
func indeterminateRenewal(op *operation, o *history.Op) {
	g := op.grant
	if g == nil || op.f != history.Renew || g.promise != timed || !g.granted {
		return
	}
	valid := op.valid.Or(o.Valid.Or(op.ttl.Or(g.lastValid())))
	g.renewed(term{from: op.at, ok: inf, end: op.at + valid, valid: valid})
}

// background takes a renewal that the worker did by itself. Without the mark
// that it counts from it proves nothing.
func (j *Judge) background(g *grant, o *history.Op) {
	if !o.From.Set {
		return
	}
	from := min(o.From.V, o.Time)
	g.extend(history.Renew, from, from, o)
	j.renewedAfterLoss(g, from, []int{o.Index}, o.Time)
}

// renewedAfterLoss reports a renewal that was sent after another had been
// granted the lock, and succeeded.
func (j *Judge) renewedAfterLoss(g *grant, sent int64, ops []int, at int64) {
	j.exp.RenewalsOK++
	h := g.overtaken(sent)
	if h == nil {
		return
	}
	msg := fmt.Sprintf("process %d renewed grant %d of %s and was told ok, %s after process %d had been granted the lock (grant %d): the renewal crossed the other's hold",
		g.proc, g.id, quoted(g.key.name), ms(sent-h.ok), h.proc, h.id)
	j.report(Release, Anomaly{Kind: kindRenewedAfterLoss, Key: g.key.name, Ops: append([]int{g.okIdx, h.okIdx}, ops...), Message: msg}, g.ok, at)
}

// noteBroken remembers which releases may have broken the lease of h.
func (k *keyState) noteBroken(h, by *grant) {
	if len(k.broken) == maxAnomalies {
		return
	}
	b := &brokenLease{of: h, by: by}
	for _, r := range k.releases {
		if r.grant != h && r.grant != by && r.grant.granted && r.grant.ok < h.ok && r.at < by.ok {
			b.candidates = append(b.candidates, r)
		}
	}
	k.broken = append(k.broken, b)
}

// explainBroken names the release of an earlier grant that was open while a
// lease was broken: it compared, or did not, and then freed what had become
// another's.
func (j *Judge) explainBroken(k *keyState) {
	for _, b := range k.broken {
		for _, r := range b.candidates {
			if r.failed || r.reported || r.ret <= b.of.ok || b.standsAfter(r) {
				continue
			}
			r.reported = true
			g := r.grant
			msg := fmt.Sprintf("the lease of grant %d of %s (process %d) was broken while process %d's release of its earlier grant %d was under way: it freed what was no longer its own",
				b.of.id, quoted(k.name), b.of.proc, g.proc, g.id)
			j.report(Release, Anomaly{Kind: kindReleasedOther, Key: k.name, Ops: []int{r.idx, b.of.okIdx, b.by.okIdx}, Message: msg}, r.at, b.by.ok)
		}
	}
}

// standsAfter reports whether the lease is known to have stood when the release
// was over, so that the release did not break it.
func (b *brokenLease) standsAfter(r *releasing) bool {
	if r.held < b.by.invoke {
		return true
	}
	for _, t := range b.of.terms[min(1, len(b.of.terms)):] {
		if t.certain && t.from > r.ret {
			return true
		}
	}
	return b.of.promise == session && b.of.proof > r.ret
}
