// Package checker judges a recorded history. It is pure: events in, results
// out; no clock, no logger, no randomness, and it knows faults only as events
// of the history. The rules are those of docs/verdicts.md.
//
// It never guesses in favour of an alarm: leases are under-stated, ties are
// concurrent, and what nobody can know counts as innocent.
package checker

import (
	"fmt"
	"io"
	"slices"

	"github.com/lockcheck/lockcheck/checker/linear"
)

// A Verdict is what a property came to. They form an order; the worst wins.
type Verdict uint8

const (
	NotApplicable Verdict = iota + 1 // there was nothing of the kind, e.g. no tokens; counts as valid
	Valid
	Unknown // nothing was checked, or the checker gave up
	Invalid
)

var verdictNames = [...]string{NotApplicable: "not-applicable", Valid: "valid", Unknown: "unknown", Invalid: "invalid"}

func (v Verdict) String() string {
	if int(v) < len(verdictNames) && v > 0 {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// MarshalText makes a Verdict a word in JSON.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads it back.
func (v *Verdict) UnmarshalText(b []byte) error {
	i := slices.Index(verdictNames[:], string(b))
	if i <= 0 {
		return fmt.Errorf("verdict %q is not known", b)
	}
	*v = Verdict(i)
	return nil
}

// Worst gives the worst of several verdicts; Valid if there are none.
func Worst(vs ...Verdict) Verdict {
	w := Valid
	for _, v := range vs {
		w = max(w, v)
	}
	return w
}

// The properties, in the order in which they are shown.
const (
	Exclusion    = "exclusion"    // no two sections of one key overlap
	Lease        = "lease"        // no two leases of one key overlap, and a loss is not ignored
	Fencing      = "fencing"      // tokens grow, and the store applied none that was overtaken
	Release      = "release"      // nobody releases or renews what another holds
	Data         = "data"         // no stale write, no lost update, no write outside of a hold
	Progress     = "progress"     // somebody who tries is granted
	Linearizable = "linearizable" // an order of the lock operations explains the history
)

// Properties lists them all.
var Properties = []string{Exclusion, Lease, Fencing, Release, Data, Progress, Linearizable}

// DefaultRequired are the properties that a verdict is made of: all but
// exclusion, which no lease lock can keep under a pause longer than its TTL.
var DefaultRequired = []string{Lease, Fencing, Release, Data, Progress, Linearizable}

// An Anomaly is one violation, with the events that prove it.
type Anomaly struct {
	Kind    string `json:"kind"`
	Class   string `json:"class,omitempty"` // of an overlap of sections: in-lease, ambiguous or overrun
	Key     string `json:"key,omitempty"`
	Ops     []int  `json:"ops"`              // indexes of the events that prove it
	Faults  []int  `json:"faults,omitempty"` // indexes of the events that began the faults in force
	Message string `json:"message"`
	Time    int64  `json:"time"` // of the last of its events, ns
}

// A Result is what one property came to.
type Result struct {
	Verdict      Verdict   `json:"verdict"`
	Checked      int       `json:"checked"`             // grants, tokens, releases, accesses, hand-overs or operations judged
	Reason       string    `json:"reason,omitempty"`    // why it is unknown or not applicable
	Anomalies    []Anomaly `json:"anomalies,omitempty"` // the first maxAnomalies of them
	AnomalyCount int       `json:"anomaly_count"`
}

// maxAnomalies bounds how many anomalies of one property are kept; the count
// goes on.
const maxAnomalies = 100

func (r *Result) add(a Anomaly) {
	r.AnomalyCount++
	if len(r.Anomalies) < maxAnomalies {
		r.Anomalies = append(r.Anomalies, a)
	}
}

// Results is the judgement of a history.
type Results struct {
	Verdict    Verdict            `json:"verdict"`
	Required   []string           `json:"required"`
	Reasons    []string           `json:"reasons,omitempty"` // why the whole is unknown, beside the properties
	Properties map[string]*Result `json:"properties"`
	Exposure   Exposure           `json:"exposure"`
	// Availability is nil where another model than the lease lock's judged.
	Availability *Availability `json:"availability,omitempty"`

	illegal *linear.Result
}

// WriteLinear writes porcupine's page of the smallest part of the history that
// has no order. It reports whether there is one.
func (r *Results) WriteLinear(w io.Writer) (bool, error) {
	if r.illegal == nil {
		return false, nil
	}
	return true, linear.Visualize(w, *r.illegal)
}

// Require sets the properties that the verdict is made of and computes it anew.
func (r *Results) Require(names []string) {
	r.Required = names
	r.Verdict = Valid
	for _, n := range names {
		if p := r.Properties[n]; p != nil {
			r.Verdict = Worst(r.Verdict, p.Verdict)
		} else {
			r.Verdict = Worst(r.Verdict, Unknown) // a name that nobody knows must not pass
		}
	}
	if len(r.Reasons) > 0 {
		r.Verdict = Worst(r.Verdict, Unknown)
	}
}

// First gives the earliest anomaly of the required properties, else of any. Of
// several at one time the one that tells of harm to the data comes first.
func (r *Results) First() (property string, a *Anomaly) {
	for _, names := range [][]string{r.Required, Properties} {
		for _, n := range names {
			p := r.Properties[n]
			if p == nil {
				continue
			}
			for i := range p.Anomalies {
				b := &p.Anomalies[i]
				if a == nil || b.Time < a.Time || (b.Time == a.Time && n == Data && property != Data) {
					property, a = n, b
				}
			}
		}
		if a != nil {
			return property, a
		}
	}
	return "", nil
}

// Unjudged is the result when a checker crashed or gave up: unknown, with the
// reason.
func Unjudged(why error) Results {
	r := Results{Properties: map[string]*Result{}}
	for _, p := range Properties {
		r.Properties[p] = &Result{Verdict: Unknown, Reason: why.Error()}
	}
	r.Require(DefaultRequired)
	return r
}
