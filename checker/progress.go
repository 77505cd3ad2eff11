package checker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/history"
)

const kindStuck = "stuck"

// A lock is stuck when nobody is granted for stuckTTLs times the TTL, and at
// least stuckAtLeast, although somebody tries.
const (
	stuckTTLs    = 4
	stuckAtLeast = int64(2e9)
	// ttlUnknown is assumed where neither the acquires nor the header tell.
	ttlUnknown = int64(1e9)
)

// tries follows who is trying to get one key: stretches in which an acquire is
// open, or was begun within the last TTL.
type tries struct {
	ttl     int64 // the longest that was asked for
	open    int
	running bool
	current span
	past    []span // those long enough to matter
}

func (t *tries) begin(at, ttl int64) {
	t.ttl = max(t.ttl, ttl)
	if t.running && t.open == 0 && at-t.current.to > t.within() {
		t.keep()
		t.running = false
	}
	if !t.running {
		t.running, t.current = true, span{at, at}
	}
	t.open++
	t.current.to = at
}

func (t *tries) end(at int64) {
	t.open--
	t.current.to = at
}

func (t *tries) within() int64 {
	if t.ttl > 0 {
		return t.ttl
	}
	return ttlUnknown
}

// keep files the stretch if a stuck lock could be seen in it at all.
func (t *tries) keep() {
	if t.current.to-t.current.from >= stuckAtLeast {
		t.past = append(t.past, t.current)
	}
}

// finish gives the stretches, the last one up to the end of the history if an
// acquire is still open.
func (t *tries) finish(end int64) []span {
	if t.running {
		if t.open > 0 {
			t.current.to = end
		}
		t.keep()
	}
	return t.past
}

// A leftover is an acquire that was not granted, and of which nobody said why: it
// may have left something behind that stands in everybody's way.
type leftover struct {
	proc history.Process
	idx  int
	at   int64
	kind history.Type
	why  string
}

// maxLeftovers bounds how many are named.
const maxLeftovers = 3

// leftover files an acquire that came to no clear end, and forgets those after
// which somebody asked for the lock and was granted it.
func (k *keyState) leftover(p *proc, op *operation, o *history.Op) {
	switch {
	case o.Type == history.OK:
		k.leftovers = slices.DeleteFunc(k.leftovers, func(l leftover) bool { return l.at < op.at })
	case o.Type == history.Fail && (o.Error == history.ErrHeld || abandoned(o)):
	case len(k.leftovers) < maxLeftovers:
		k.leftovers = append(k.leftovers, leftover{p.id, o.Index, o.Time, o.Type, o.Error})
	}
}

// A block is a stretch in which a key was held, by several grants perhaps.
type block struct {
	span
	last *grant
}

// block notes that the key is held. Blocks come in the order of their
// beginnings; a gap that is too short to be stuck in is closed.
func (k *keyState) block(g *grant) {
	s := span{g.ok, max(g.end.at, g.promisedEnd())}
	if n := len(k.blocks); n > 0 && s.from-k.blocks[n-1].to < stuckAtLeast {
		b := &k.blocks[n-1]
		b.to, b.last = max(b.to, s.to), g
		return
	}
	k.blocks = append(k.blocks, block{s, g})
}

// stuck reports the first gap of each stretch of tries in which nobody held the
// key, no fault was about, and yet nobody was granted.
func (j *Judge) stuck(k *keyState) {
	need := max(stuckTTLs*k.tries.within(), stuckAtLeast)
	busy := j.faults.disturbed()
	for _, b := range k.blocks {
		busy = append(busy, b.span)
	}
	slices.SortFunc(busy, func(a, b span) int { return int(min(max(a.from-b.from, -1), 1)) })
	for _, s := range k.tries.finish(j.now) {
		for _, gap := range gaps(s, busy) {
			if gap.to-gap.from >= need {
				j.reportStuck(k, gap)
			}
		}
	}
}

// gaps gives what is left of s outside of the busy spans, which are sorted.
func gaps(s span, busy []span) []span {
	var out []span
	at := s.from
	for _, b := range busy {
		if b.from >= s.to {
			break
		}
		if b.from > at {
			out = append(out, span{at, b.from})
		}
		at = max(at, b.to)
	}
	if at < s.to {
		out = append(out, span{at, s.to})
	}
	return out
}

func (j *Judge) reportStuck(k *keyState, gap span) {
	what := "nobody ever held it"
	ops := []int{}
	g := k.lastBefore(gap.from)
	if g != nil {
		what = fmt.Sprintf("process %d had held it last (grant %d)", g.proc, g.id)
		if !g.release.Set && g.ended && g.end.idx >= 0 {
			what += ", until " + g.end.why
		}
		ops = append(ops, g.okIdx)
	}
	for _, l := range k.leftovers {
		if l.at < gap.to {
			what += fmt.Sprintf("; an acquire of process %d ended as %v before (%s) and may have left behind what blocks it", l.proc, l.kind, l.why)
			ops = append(ops, l.idx)
		}
	}
	if n := len(k.blocks); len(k.standing) > 0 && (n == 0 || k.blocks[n-1].from < gap.from) { // nobody was granted it after all
		what += "; " + k.blocker(g)
		ops = append(ops, k.standingIdx)
	}
	msg := fmt.Sprintf("%s is stuck: from %s on nobody was granted it for %s although there was always somebody trying; %s",
		quoted(k.name), ms(gap.from), ms(gap.to-gap.from), what)
	j.report(Progress, Anomaly{Kind: kindStuck, Key: k.name, Ops: ops, Message: msg}, gap.from, gap.to)
}

// blocker says what stands first on the servers, and whose it is as far as that can
// be told: a grant's by its token; else it may be that of the first acquire that came
// to no clear end, or that of last, which was granted the lock last and never let it go.
// Of several acquires it is the first only in a queue of sessions: a key on a lease that
// is over is taken by the next of them.
func (k *keyState) blocker(last *grant) string {
	s := k.standing[0]
	said := fmt.Sprintf("on the servers %s (%s) stands in everybody's way", s.Name, s.Owner)
	// Some tokens are no numbers of nodes or keys: one that was let go proves that.
	if u, ok := k.tokens[s.Token]; ok && s.Token > 0 && u.grant != nil && !u.grant.freed {
		said += fmt.Sprintf(": it is that of grant %d of process %d", u.grant.id, u.grant.proc)
		if u.grant.ended {
			said += ", until " + u.grant.end.why
		}
		return said
	}
	kept := last != nil && !last.freed
	switch {
	case (len(k.leftovers) == 1 || len(k.leftovers) > 1 && strings.Contains(s.Owner, "session")) && !kept:
		said += fmt.Sprintf(": it may be that of process %d's acquire", k.leftovers[0].proc)
		if len(k.leftovers) > 1 {
			said += ", the first of these"
		}
	case len(k.leftovers) == 0 && kept:
		said += fmt.Sprintf(": it may be that of grant %d of process %d", last.id, last.proc)
	}
	return said
}

// lastBefore gives the last grant before a gap that begins at t.
func (k *keyState) lastBefore(t int64) *grant {
	for i := len(k.blocks) - 1; i >= 0; i-- {
		if k.blocks[i].to <= t {
			return k.blocks[i].last
		}
	}
	return nil
}
