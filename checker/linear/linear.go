// Package linear decides whether the lock operations of a history can be
// explained by one lease lock: a lock that at most one grant holds at a time,
// whose tokens grow, and whose leases may end by themselves once their deadline
// has passed, but never before.
//
// A general search over orders is exponential in the operations whose outcome
// is unknown; fourteen crashed acquires are enough to exhaust one. A lock's
// history has more structure than that: each grant says when its hold may have
// begun and ended, and the holds of one lock follow one another. So the decision
// is made by passes over sorted windows, in O(n log n), and a search is only used
// for the few places that the passes cannot order.
//
// The package judges acquires, releases and renewals of one key at a time. It
// does not judge reads and writes, refuses no malformed history (package history
// does), and never guesses: what it cannot decide within its limits is Unknown,
// with the reason.
//
// # How doubtful histories are read
//
// Where the model leaves a choice, the reading that permits more is taken, so
// that a verdict of Illegal is never a false alarm:
//
//   - A completion without an invocation may have begun at any time.
//   - Time that runs backwards is raised to the latest stamp seen: the order is
//     the file's, and equal stamps are concurrent.
//   - A mark later than its own completion counts as the completion.
//   - An ok renewal without a validity promises nothing beyond its own invoke; an
//     indeterminate one may have cut the lease down to its own invoke.
//   - Of several ok renewals that overlap, any that can be the last may have set
//     the deadline, so the earliest of theirs counts.
//   - A background renewal of a grant that is not granted yet is left out: while
//     an acquire waits, it renews the lease, not the lock. One without a grant
//     number counts only while its process holds the key and has no acquire open.
//   - A killed process may have died as soon as the kill was asked for, and what
//     it acquires until the kill is done dies with it. The last thing heard from a
//     crashed worker is its last completion or single event, not an invoke, which
//     the runner stamps itself.
//   - An ok release or renewal of a grant that the history never grants leaves
//     the key Unknown: a piece of the history may be missing.
//   - Where locks are re-entrant, a re-entry counts as a renewal. If that does not
//     explain the history, re-entries and all releases of that grant count as
//     indeterminate; only what is illegal even then is Illegal, the rest Unknown.
package linear

import (
	"context"
	"fmt"
	"time"
)

// Verdict is what was found out about one key.
type Verdict uint8

const (
	Legal   Verdict = iota // an order of the operations explains the history
	Unknown                // nobody knows: outside the exact fragment, and the search gave up
	Illegal                // no order explains it
)

func (v Verdict) String() string {
	switch v {
	case Legal:
		return "legal"
	case Unknown:
		return "unknown"
	case Illegal:
		return "illegal"
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Options limit the work. The zero value is good for ordinary use.
type Options struct {
	// Timeout bounds all searches of one Finish together; 0 means ten seconds.
	// The exact decision needs none: it takes about a tenth of a microsecond an
	// operation.
	Timeout time.Duration
	// Memory bounds what one search may take, in bytes; 0 means 256 MB.
	Memory int64
	// Certificate asks for the order that explains a legal history.
	Certificate bool
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Memory <= 0 {
		o.Memory = 256 << 20
	}
	return o
}

// A Result is the verdict on one key.
type Result struct {
	Key     string
	Verdict Verdict
	Reason  string // one sentence for people, empty when legal
	Checked int    // operations

	// Ops are the history indexes of the events of the smallest part that is
	// still illegal, in order; Window are its operations, for Visualize.
	Ops    []int
	Window []Op

	// Searched tells that the exact decision was not enough.
	Searched bool
	// Certificate explains a legal history, if Options asked for it: Verify replays
	// it on Operations. It is empty for a history that only a search could decide.
	Certificate []Step
	Operations  []Op

	names []string // of the grants in Window
}

// Finish takes what is still open as indeterminate and decides each key, in the
// order in which the keys first appeared. The Builder cannot be used afterwards.
func (b *Builder) Finish(ctx context.Context, opts Options) []Result {
	opts = opts.withDefaults()
	b.closeOpen()
	lim := newLimits(ctx, opts)
	results := make([]Result, len(b.keys))
	for i, k := range b.keys {
		results[i] = k.decide(lim, opts)
		b.keys[i] = nil // so that only one key's working memory is held at a time
	}
	return results
}

func (k *keyOps) decide(lim *limits, opts Options) Result {
	r := Result{Key: k.name, Checked: k.ops.len()}
	switch {
	case lim.ctx.Err() != nil:
		r.Verdict, r.Reason = Unknown, "the check was stopped before this key was decided"
	case k.odd != "":
		r.Verdict, r.Reason = Unknown, k.odd
	case k.nested:
		k.decideNested(lim, opts, &r)
	default:
		k.fill(&r, decide(k.ops, int(k.grants), lim, opts.Certificate))
	}
	if r.Certificate != nil {
		r.Operations = k.ops.flat()
	}
	return r
}

// decideNested judges a key that a process acquired again while it held it.
func (k *keyOps) decideNested(lim *limits, opts Options, r *Result) {
	strict := decide(k.ops, int(k.grants), lim, opts.Certificate)
	if strict.verdict == Legal {
		k.fill(r, strict)
		return
	}
	ops, grants := loosenNested(k.ops, k.grants)
	loose := decide(ops, int(grants), lim, false)
	if loose.verdict == Illegal {
		k.fill(r, loose)
		return
	}
	r.Verdict = Unknown
	r.Reason = "a process acquired the lock again while it held it, and taking that as a renewal does not explain the history"
}
