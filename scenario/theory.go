package scenario

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
)

// A Case is what theory is asked about.
type Case struct {
	Backend string
	Client  string
	Tokens  bool // the client hands out fencing tokens
	Fence   bool // and the store looks at them
	Durable bool // a server that is restarted has its data
}

// An Expectation is what theory says of one case.
type Expectation struct {
	Verdicts map[string]checker.Verdict
	Seen     map[string]Amount // of the exposure, by its name in results.json
}

// An Amount is how much of something there should be.
type Amount struct{ least, most int }

var (
	atLeastOne = Amount{1, -1}
	none       = Amount{0, 0}
	one        = Amount{1, 1}
)

// held says that a lock kept its promise throughout, whatever became of its
// holder.
func held(c Case) map[string]checker.Verdict {
	v := map[string]checker.Verdict{
		checker.Exclusion: checker.Valid, checker.Lease: checker.Valid, checker.Release: checker.Valid,
		checker.Data: checker.Valid, checker.Fencing: checker.NotApplicable,
	}
	if c.Tokens {
		v[checker.Fencing] = checker.Valid
	}
	return v
}

// lateWriteOf is what comes of a write that reaches the store after the next
// holder's: no lock can keep that from happening, and its own promise is kept;
// whether it does harm is for the store's fence, which needs a token.
func lateWriteOf(c Case) Expectation {
	e := Expectation{Verdicts: held(c), Seen: map[string]Amount{"stale_writes_applied": atLeastOne}}
	e.Verdicts[checker.Exclusion] = checker.Invalid
	switch {
	case c.Fence:
		e.Seen = map[string]Amount{"writes_refused": one, "stale_writes_applied": none}
	case c.Tokens:
		e.Verdicts[checker.Fencing], e.Verdicts[checker.Data] = checker.Invalid, checker.Invalid
	default:
		e.Verdicts[checker.Data] = checker.Invalid
	}
	return e
}

// forgotten is what comes of a lock that the servers have forgotten: it is given
// out a second time within its lease. Where the token's counter is forgotten too,
// no fence can tell the holders apart.
func forgotten(c Case) Expectation {
	e := Expectation{Verdicts: held(c), Seen: map[string]Amount{"stale_writes_applied": atLeastOne}}
	for _, p := range []string{checker.Exclusion, checker.Lease, checker.Data} {
		e.Verdicts[p] = checker.Invalid
	}
	if c.Tokens {
		e.Verdicts[checker.Fencing] = checker.Invalid
	}
	return e
}

// Deviation says in what a result is not as expected, or "".
func (e Expectation) Deviation(res *checker.Results) string {
	var off []string
	for _, p := range checker.Properties {
		want, ok := e.Verdicts[p]
		if got := res.Properties[p]; ok && (got == nil || got.Verdict != want) {
			off = append(off, fmt.Sprintf("%s should be %v", p, want))
		}
	}
	seen := counts(res.Exposure)
	var names []string
	for n := range e.Seen {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		if a, got := e.Seen[n], seen[n]; got < a.least || a.most >= 0 && got > a.most {
			off = append(off, fmt.Sprintf("%s is %d and should be %v", n, got, a))
		}
	}
	return strings.Join(append(off, res.Reasons...), "; ")
}

func (a Amount) String() string {
	switch {
	case a.most < 0:
		return fmt.Sprintf("%d or more", a.least)
	case a.least == a.most:
		return fmt.Sprint(a.least)
	}
	return fmt.Sprintf("%d to %d", a.least, a.most)
}

// counts gives the numbers of an exposure by their names.
func counts(e checker.Exposure) map[string]int {
	b, err := json.Marshal(e)
	var all map[string]any
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return nil // a struct of numbers can always be written and read
	}
	out := map[string]int{}
	for k, v := range all {
		if n, ok := v.(float64); ok {
			out[k] = int(n)
		}
	}
	return out
}
