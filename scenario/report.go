package scenario

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/history"
)

// A Report is a fault of a lock, or of a checker, that somebody made public: its
// rows are the failing form and the twin without the mistake, each in as many
// variations as the kind of fault has.
type Report struct {
	Number string `json:"report"` // D1 to D12
	Name   string `json:"name"`   // a telling one
	Source string `json:"source"` // who reported it, and where
	Year   string `json:"year"`
	About  string `json:"about"` // the mechanism, in one line
	Rows   []Row  `json:"-"`
}

// A Row is one run of a report, or one file to be judged, and what has to come of
// it. With the same seed a failing row and its twin meet the same story.
type Row struct {
	Failing bool   `json:"failing"` // the form that was reported; else a twin
	About   string `json:"about"`   // what is special about it

	Scenario    string             `json:"scenario,omitempty"`
	Backend     string             `json:"backend,omitempty"`
	Client      string             `json:"client,omitempty"`
	TTL         time.Duration      `json:"ttl,omitempty"`   // 0 for the default
	Store       fencedstore.Policy `json:"store,omitempty"` // "" for the default
	Persistence string             `json:"persistence,omitempty"`
	Renew       bool               `json:"renew,omitempty"` // in the background, although the client does not by itself

	// File writes a history to be judged, instead of a run; Ext is how its name ends.
	File func(w io.Writer, rng *rand.Rand) error `json:"-"`
	Ext  string                                  `json:"-"`

	Expected
}

// Expected is what has to come of a row. Whatever it does not name must not be
// found.
type Expected struct {
	Finds   []Finding         `json:"finds,omitempty"`   // each of them, and nothing about another property
	Refused string            `json:"refused,omitempty"` // a malformed file: what the refusal says
	Seen    map[string]Amount `json:"-"`                 // of the exposure, by its name in results.json
	// Look says in what a history is not as it should be, or "".
	Look func(ops []history.Op, res *checker.Results) string `json:"-"`
}

// A Finding is a kind of anomaly of a property.
type Finding struct {
	Property string `json:"property"`
	Kind     string `json:"kind"`
}

func (f Finding) String() string { return f.Property + ": " + f.Kind }

// Finds is the finding of that kind of anomaly of that property.
func Finds(property, kind string) Finding { return Finding{Property: property, Kind: kind} }

// Reports lists them by their numbers.
var Reports = inOrder(slices.Concat(reports, goReports))

func inOrder(rs []Report) []Report {
	slices.SortFunc(rs, func(a, b Report) int {
		if len(a.Number) != len(b.Number) { // D2 before D10
			return len(a.Number) - len(b.Number)
		}
		return strings.Compare(a.Number, b.Number)
	})
	return rs
}

// Deviation says in what a judgement is not as the row says, or "".
func (e Expected) Deviation(ops []history.Op, res *checker.Results) string {
	var off []string
	about := map[string]bool{}
	for _, f := range e.Finds {
		about[f.Property] = true
		r := res.Properties[f.Property]
		if r == nil || !slices.ContainsFunc(r.Anomalies, func(an checker.Anomaly) bool { return an.Kind == f.Kind }) {
			off = append(off, fmt.Sprintf("%v was not found", f))
		}
	}
	for _, p := range checker.Properties {
		r := res.Properties[p]
		switch {
		case r == nil || about[p]:
		case r.Verdict == checker.Invalid:
			off = append(off, fmt.Sprintf("%s: %s: %s", p, r.Anomalies[0].Kind, r.Anomalies[0].Message))
		case r.Verdict == checker.Unknown && slices.Contains(res.Required, p):
			off = append(off, fmt.Sprintf("%s is unknown: %s", p, r.Reason))
		}
	}
	if rest := (Expectation{Seen: e.Seen}).Deviation(res); rest != "" {
		off = append(off, rest)
	}
	if e.Look != nil {
		if said := e.Look(ops, res); said != "" {
			off = append(off, said)
		}
	}
	return strings.Join(off, "; ")
}

// Findings gives the kinds of anomalies of a judgement, by property.
func Findings(res *checker.Results) []Finding {
	var fs []Finding
	for _, p := range checker.Properties {
		r := res.Properties[p]
		if r == nil {
			continue
		}
		for _, an := range r.Anomalies {
			if f := (Finding{p, an.Kind}); !slices.Contains(fs, f) {
				fs = append(fs, f)
			}
		}
	}
	return fs
}
