package matrix

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/report"
)

// Times are the figures of availability beside its share, as results.json defines
// them. Where several runs come together each figure is that of the worst run: the
// longest time, the lowest fairness.
type Times struct {
	Longest  float64                     `json:"longest_ms"` // window without a grant
	Acquire  checker.Quantiles           `json:"acquire_ms"`
	Recovery map[string]checker.Recovery `json:"recovery_ms,omitempty"` // by fault: from its heal to the next grant
	HandOver *checker.HandOver           `json:"hand_over_ms,omitempty"`
	Fairness *float64                    `json:"fairness,omitempty"`
}

// measure reads what a run says of availability; nothing where it was not measured.
func (run *Run) measure(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if err != nil {
		return err
	}
	var r struct {
		Availability *checker.Availability `json:"availability"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, "results.json"), err)
	}
	if a := r.Availability; a != nil && a.Available != nil {
		run.Availability = a.Available
		run.Times = &Times{Longest: a.Longest, Acquire: a.Acquire, Recovery: a.Recovery, HandOver: a.HandOver, Fairness: a.Fairness}
	}
	return nil
}

// worse takes over whatever is worse in another run.
func (t *Times) worse(o *Times) *Times {
	switch {
	case o == nil:
		return t
	case t == nil:
		t = &Times{}
	}
	t.Longest = max(t.Longest, o.Longest)
	t.Acquire = worse(t.Acquire, o.Acquire)
	for name, r := range o.Recovery {
		if t.Recovery == nil {
			t.Recovery = map[string]checker.Recovery{}
		}
		was := t.Recovery[name]
		t.Recovery[name] = checker.Recovery{Quantiles: worse(was.Quantiles, r.Quantiles), Never: was.Never + r.Never}
	}
	if h := o.HandOver; h != nil {
		if t.HandOver == nil {
			t.HandOver = &checker.HandOver{TTL: h.TTL}
		}
		was := t.HandOver
		t.HandOver = &checker.HandOver{Quantiles: worse(was.Quantiles, h.Quantiles), TTL: h.TTL, OfTTL: max(was.OfTTL, h.OfTTL), Never: was.Never + h.Never}
	}
	if f := o.Fairness; f != nil && (t.Fairness == nil || *f < *t.Fairness) {
		t.Fairness = f
	}
	return t
}

func worse(a, b checker.Quantiles) checker.Quantiles {
	return checker.Quantiles{Count: a.Count + b.Count, P50: max(a.P50, b.P50), P99: max(a.P99, b.P99), Max: max(a.Max, b.Max)}
}

var timesHead = []string{"backend", "client", "fault", "store", "available", "longest without a grant", "recovery after a heal", "hand-over after a death", "acquire p50", "p99", "max", "fairness"}

// timesCells are the figures of a row, nil where nothing was measured.
func (row *Row) timesCells() []string {
	t := row.Times
	if t == nil {
		return nil
	}
	out := []string{row.Backend, row.Client, row.Fault, row.Store, row.availability(), report.Took(t.Longest), t.recovery(), "-", "-", "-", "-", "-"}
	if h := t.HandOver; h != nil {
		out[7] = waited(h.Quantiles, h.Never)
		if h.Count > 0 {
			out[7] += fmt.Sprintf(", %.2f x TTL", h.OfTTL)
		}
	}
	if t.Acquire.Count > 0 {
		out[8], out[9], out[10] = report.Took(t.Acquire.P50), report.Took(t.Acquire.P99), report.Took(t.Acquire.Max)
	}
	if t.Fairness != nil {
		out[11] = fmt.Sprintf("%.2f", *t.Fairness)
	}
	return out
}

// recovery names the fault only where there are several.
func (t *Times) recovery() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(t.Recovery)) {
		s := waited(t.Recovery[name].Quantiles, t.Recovery[name].Never)
		if len(t.Recovery) > 1 {
			s = name + " " + s
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, "; ")
}

// waited says the median and the longest of some waits, and how many had no end.
func waited(q checker.Quantiles, never int) string {
	var out []string
	if q.Count > 0 {
		out = append(out, report.Took(q.P50)+", at most "+report.Took(q.Max))
	}
	if never > 0 {
		out = append(out, fmt.Sprintf("%d x never", never))
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, "; ")
}

// times are the rows of the table of availability.
func (r *Result) times() [][]string {
	var out [][]string
	for i := range r.Rows {
		if cells := r.Rows[i].timesCells(); cells != nil {
			out = append(out, cells)
		}
	}
	return out
}

// timesTable prints the figures of availability for people.
func (r *Result) timesTable(w io.Writer, color bool) {
	rows := r.times()
	if len(rows) == 0 {
		return
	}
	fmt.Fprintln(w)
	writeAligned(w, append([][]string{timesHead}, rows...), func(row, _ int) string {
		if row == 0 && color {
			return "2"
		}
		return ""
	})
}

// timesMarkdown writes them as a table in Markdown.
func (r *Result) timesMarkdown(w io.Writer) {
	rows := r.times()
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| %s |\n|%s\n", strings.Join(timesHead, " | "), strings.Repeat("---|", len(timesHead)))
	for _, cells := range rows {
		for i := range cells {
			cells[i] = report.Markdown(cells[i])
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	fmt.Fprintf(w, "\n`available` is the share of the time in which somebody tried and the lock could be had; recovery and hand-over are median and maximum%s; fairness is Jain's index of the workers' grants, 1 is equal.\n", r.ofSeveral())
}

// ofSeveral says how the runs of a row come together.
func (r *Result) ofSeveral() string {
	if r.Spec.Repeat > 1 {
		return ", of the worst run"
	}
	return ""
}
