package experiment

import (
	"fmt"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/fencedstore"
)

// GCPauseDeviation says in what the scenario gc-pause did not come out as
// theory says, or "". A lock cannot keep a stopped holder from going on, so its
// sections overlap; the lease itself must hold; and whether the late write does
// harm depends on the store's fence, which needs a token.
func GCPauseDeviation(r *Result, tokens bool) string {
	fence := tokens && r.Store != string(fencedstore.None)
	want := map[string]checker.Verdict{
		checker.Exclusion: checker.Invalid,
		checker.Lease:     checker.Valid,
		checker.Release:   checker.Valid,
		checker.Fencing:   checker.NotApplicable,
		checker.Data:      checker.Invalid,
	}
	switch {
	case fence:
		want[checker.Fencing], want[checker.Data] = checker.Valid, checker.Valid
	case tokens:
		want[checker.Fencing] = checker.Invalid
	}
	var off []string
	for _, p := range checker.Properties {
		v, ok := want[p]
		got := r.Properties[p]
		if ok && (got == nil || got.Verdict != v) {
			off = append(off, fmt.Sprintf("%s should be %v", p, v))
		}
	}
	e := r.Exposure
	switch {
	case e.PausesOverLease == 0:
		off = append(off, "the pause should outlive the lease")
	case fence && (e.WritesRefused != 1 || e.StaleWritesApplied != 0):
		off = append(off, "exactly the stale write should be refused")
	case !fence && e.StaleWritesApplied == 0:
		off = append(off, "the stale write should be applied")
	}
	if len(r.Reasons) > 0 {
		off = append(off, r.Reasons...)
	}
	return strings.Join(off, "; ")
}
