package checker

import (
	"fmt"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// Kinds of anomalies of fencing.
const (
	kindTokenReused        = "token-reused"
	kindTokenNotIncreasing = "token-not-increasing"
	kindStaleTokenApplied  = "stale-token-applied"
)

// A tokenUse is a token and the grant that it was given to.
type tokenUse struct {
	set   bool
	token uint64
	grant *grant
}

// topBefore gives the highest token that was granted strictly before time t.
func (k *keyState) topBefore(t int64) tokenUse {
	if k.topAt < t {
		return k.top
	}
	return k.low
}

func (j *Judge) completeAcquire(p *proc, op *operation, o *history.Op) {
	k := op.key
	k.tries.end(o.Time)
	j.avail.end(k, p.id, op.at, o.Time, o.Type == history.OK)
	k.leftover(p, op, o)
	switch o.Type {
	case history.OK:
		j.grant(p, op, o)
	case history.Fail:
		j.exp.AcquiresFailed++
		if o.Error == history.ErrHeld || (abandoned(o) && k.held > 0) {
			j.exp.AcquiresRefused++
			k.contended = true
		}
		if o.Error == history.ErrHeld {
			k.confirmHeld(op.at, o.Time)
		}
	}
}

// abandoned reports whether a client gave its acquire up by itself, leaving nothing
// behind. It proves nothing about others.
func abandoned(o *history.Op) bool {
	return o.Error == history.ErrNoQuorum || o.Error == history.ErrAhead
}

// grant takes an acquire that was ok.
func (j *Judge) grant(p *proc, op *operation, o *history.Op) {
	k := op.key
	id := o.Grant.V
	if !o.Grant.Set {
		id = j.unseen
		j.unseen++
	}
	g := j.grants[id]
	if g == nil || g.granted {
		g = &grant{id: id}
		j.grants[id] = g
	}
	g.key, g.proc, g.granted, g.token = k, p.id, true, o.Token
	g.invoke, g.ok, g.invokeIdx, g.okIdx = op.at, o.Time, op.idx, o.Index
	switch {
	case o.Valid.Set:
		g.promise = timed
		from := min(o.From.Or(op.at), o.Time)
		g.first[0] = term{from: from, ok: o.Time, end: from + o.Valid.V, valid: o.Valid.V, certain: true}
		g.terms = g.first[:]
	case o.Session:
		g.promise, g.proof = session, o.Time
	default:
		g.promise = forever
	}
	k.waiting = append(k.waiting, g)
	k.held++
	p.held = append(p.held, g)
	p.last[k] = g
	j.latest = g
	if !slices.Contains(p.pending, k) {
		p.pending = append(p.pending, k)
	}
	j.grantedAfterLoss(g, op)
	j.token(g, op)
	k.follow(g, j.header.Reentrant)
}

// follow remembers for each grant of the key the first one that was asked for
// after its ok: from then on it cannot be held any more.
func (k *keyState) follow(g *grant, reentrant bool) {
	next := &follower{g.id, g.proc, g.ok, g.okIdx}
	if !reentrant { // then those that it comes after are the first ones: they stand in the order of their oks
		for len(k.awaiting) > 0 && k.awaiting[0].ok < g.invoke {
			k.awaiting[0].next = next
			k.awaiting = k.awaiting[1:]
		}
		k.awaiting = append(k.awaiting, g)
		return
	}
	k.awaiting = slices.DeleteFunc(k.awaiting, func(a *grant) bool {
		if a.ok >= g.invoke || a.proc == g.proc {
			return false
		}
		a.next = next
		return true
	})
	k.awaiting = append(k.awaiting, g)
}

// token judges the token of a new grant.
func (j *Judge) token(g *grant, op *operation) {
	if !g.token.Set {
		return
	}
	k, t := g.key, g.token.V
	j.earned.tokens = true
	old, used := k.tokens[t]
	switch {
	case used && j.header.Reentrant && old.grant.proc == g.proc:
	case used:
		msg := fmt.Sprintf("grants %d (process %d) and %d (process %d) of %s have the same token %d, so a store cannot tell them apart",
			old.grant.id, old.grant.proc, g.id, g.proc, quoted(k.name), t)
		j.report(Fencing, Anomaly{Kind: kindTokenReused, Key: k.name, Ops: []int{old.grant.okIdx, g.okIdx}, Message: msg}, old.grant.ok, g.ok)
	default:
		k.tokens[t] = tokenUse{true, t, g}
		j.earned.twoTokens = j.earned.twoTokens || len(k.tokens) > 1
	}
	if used {
		j.earned.twoTokens = true
	}
	j.results[Fencing].Checked++
	if f := op.floor; f.set && t < f.token {
		msg := fmt.Sprintf("grant %d of %s (process %d) has token %d, although grant %d had been given token %d before it was asked for",
			g.id, quoted(k.name), g.proc, t, f.grant.id, f.token)
		j.report(Fencing, Anomaly{Kind: kindTokenNotIncreasing, Key: k.name, Ops: []int{f.grant.okIdx, g.invokeIdx, g.okIdx}, Message: msg}, f.grant.ok, g.ok)
	}
	if g.ok > k.topAt {
		k.low, k.topAt = k.top, g.ok
	}
	if !k.top.set || t > k.top.token {
		k.top = tokenUse{true, t, g}
	}
}
