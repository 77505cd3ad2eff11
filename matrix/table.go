package matrix

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/report"
)

// shown are the properties in the table: what a verdict is made of, and the
// hazard.
var shown = []string{checker.Lease, checker.Fencing, checker.Release, checker.Data, checker.Progress, checker.Linearizable, checker.Exclusion}

var head = append(append([]string{"backend", "client", "fault", "store"}, shown...), "grants", "per 1000", "available", "theory")

// properties is where the columns of the properties begin.
const properties = 4

// said is what one property of a row came to, in a few characters: ok, the number
// of anomalies and in how many of the runs, ? for unknown.
func (row *Row) said(property string) string {
	v, ok := row.Properties[property]
	if !ok {
		return "-"
	}
	switch v {
	case checker.Valid:
		return "ok"
	case checker.NotApplicable:
		return "n/a"
	case checker.Unknown:
		return "?"
	}
	count, bad := 0, 0
	classes := map[string]bool{}
	for _, run := range row.Runs {
		p := run.Properties[property]
		count += p.Count
		if p.Verdict == checker.Invalid {
			bad++
		}
		for k := range p.Kinds {
			if _, class, ok := strings.Cut(k, "/"); ok {
				classes[class] = true
			}
		}
	}
	s := fmt.Sprintf("BAD %d", count)
	if len(row.Runs) > 1 {
		s = fmt.Sprintf("BAD %d in %d/%d", count, bad, len(row.Runs))
	}
	if property == checker.Exclusion {
		s = strings.Replace(s, "BAD ", "", 1)
		if names := sorted(classes); len(names) > 0 {
			s += " " + strings.Join(names, "+")
		}
	}
	return s
}

// theorySaid is the last column: what theory lets break, and whether something
// else did.
func (row *Row) theorySaid() string {
	for _, run := range row.Runs {
		if len(run.Surprises) > 0 {
			return "SURPRISE"
		}
	}
	if len(row.Runs) > 0 && row.Runs[0].Theory != "" {
		return row.Runs[0].Theory
	}
	if b := row.Theory.Breaks(row.Required); len(b) > 0 {
		return "may break " + strings.Join(b, ", ")
	}
	return "holds"
}

// availability is the share of the time in which the lock could be had.
func (row *Row) availability() string {
	if row.Availability == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100**row.Availability)
}

// why says why a row has nothing to show, or "".
func (row *Row) why() string {
	if row.Impossible != "" {
		return "cannot be had: " + row.Impossible
	}
	var out []string
	for _, run := range row.Runs {
		for _, s := range []string{prefixed("skipped: ", run.Skipped), prefixed("lockcheck failed: ", run.Failed)} {
			if s != "" && !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	if n, first := row.undecided(); n > 0 {
		out = append(out, fmt.Sprintf("unknown as a whole, in %d of %d runs: %s", n, len(row.Runs), first))
	}
	if row.Missing > 0 {
		out = append(out, fmt.Sprintf("not carried out: %d of %d", row.Missing, row.Missing+len(row.Runs)))
	}
	return strings.Join(out, "; ")
}

// undecided counts the runs of which something was wrong beside the lock, so that
// they do not count as valid, whatever their properties say. It gives the first such
// reason in one line.
func (row *Row) undecided() (n int, first string) {
	for _, run := range row.Runs {
		if run.Verdict != checker.Unknown || len(run.Reasons) == 0 {
			continue
		}
		if n == 0 {
			first, _, _ = strings.Cut(run.Reasons[0], "\n")
			first = strings.TrimSuffix(first, "; its log ends:")
		}
		n++
	}
	return n, first
}

func prefixed(p, s string) string {
	if s == "" {
		return ""
	}
	return p + s
}

func (row *Row) cells() []string {
	out := []string{row.Backend, row.Client, row.Fault, row.Store}
	for _, p := range shown {
		out = append(out, row.said(p))
	}
	if row.Impossible != "" {
		return append(out, "-", "-", "-", "no such cell")
	}
	return append(out, fmt.Sprint(row.Grants), fmt.Sprintf("%.3g", row.PerThousand), row.availability(), row.theorySaid())
}

// mine reports whether a row belongs to the shard at all.
func (row *Row) mine() bool { return row.Impossible != "" || row.Verdict != 0 }

// Table prints the matrix for people, with what it could not have below it.
func (r *Result) Table(w io.Writer, color bool) error {
	rows := [][]string{head}
	paints := []func(int) string{func(int) string { return "2" }}
	for i := range r.Rows {
		row := &r.Rows[i]
		if !row.mine() {
			continue
		}
		rows = append(rows, row.cells())
		paints = append(paints, row.paint)
	}
	b := bufio.NewWriter(w)
	writeAligned(b, rows, func(row, column int) string {
		if !color {
			return ""
		}
		return paints[row](column)
	})
	r.timesTable(b, color)
	r.below(b, "  ")
	return b.Flush()
}

// writeAligned prints rows in columns as wide as their widest cell. paint gives the
// number of a cell's colour, or nothing.
func writeAligned(w io.Writer, rows [][]string, paint func(row, column int) string) {
	widths := make([]int, len(rows[0]))
	for _, cells := range rows {
		for c, s := range cells {
			widths[c] = max(widths[c], utf8.RuneCountInString(s))
		}
	}
	for i, cells := range rows {
		for c, s := range cells {
			last := c == len(cells)-1
			text, end := s+strings.Repeat(" ", widths[c]-utf8.RuneCountInString(s)), "  "
			if last {
				text, end = s, "\n"
			}
			if p := paint(i, c); p != "" {
				text = "\x1b[" + p + "m" + text + "\x1b[0m"
			}
			fmt.Fprint(w, text, end)
		}
	}
}

func (row *Row) paint(c int) string {
	if c < properties || c >= properties+len(shown) {
		if c == len(head)-1 && row.theorySaid() == "SURPRISE" {
			return "1;31"
		}
		return ""
	}
	p := shown[c-properties]
	switch row.Properties[p] {
	case checker.Valid:
		return "32"
	case checker.Invalid:
		if p == checker.Exclusion && !slices.Contains(row.Required, p) {
			return "33"
		}
		return "1;31"
	case checker.Unknown:
		return "33"
	}
	return "2"
}

// A note says one thing of one or more rows.
type note struct {
	said string
	rows []string
}

// notes gathers what is to be said of rows: what they have in common is said once.
func (r *Result) notes(say func(*Row) string) []note {
	var out []note
	for i := range r.Rows {
		row := &r.Rows[i]
		s := say(row)
		if s == "" || !row.mine() {
			continue
		}
		at := slices.IndexFunc(out, func(n note) bool { return n.said == s })
		if at < 0 {
			out = append(out, note{said: s})
			at = len(out) - 1
		}
		out[at].rows = append(out[at].rows, row.Cell.String())
	}
	return out
}

func (r *Result) below(b *bufio.Writer, indent string) {
	for _, n := range r.notes((*Row).why) {
		fmt.Fprintf(b, "%s%s: %s\n", indent, strings.Join(n.rows, ", "), report.Clean(n.said))
	}
	for _, s := range r.Surprises() {
		fmt.Fprintf(b, "%sSURPRISE %s\n", indent, report.Clean(s))
	}
}

// Markdown writes the matrix as a page: the table, each cell with theory beside
// it, what is a surprise, and why cells are missing. chart is the path of the
// picture, "" for none.
func (r *Result) Markdown(w io.Writer, chart string) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%s\n\n", r.headline())
	columns := append(append([]string{"backend", "client", "fault", "store"}, shown...), "grants", "violations per 1000", "available", "what theory says")
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for i := range r.Rows {
		row := &r.Rows[i]
		if !row.mine() || row.Impossible != "" {
			continue
		}
		cells := row.cells()
		for c, s := range cells {
			s = report.Markdown(s)
			if strings.HasPrefix(s, "BAD") || s == "SURPRISE" {
				s = "**" + s + "**"
			}
			cells[c] = s
		}
		last := report.Markdown(row.Says)
		if row.theorySaid() == "SURPRISE" {
			last = "**SURPRISE**: theory said: " + last
		}
		cells[len(cells)-1] = last
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
	b.WriteString("\n`ok`: checked, nothing found. `BAD n in r/R`: n anomalies in r of R runs. `?`: nothing was checked. `n/a`: the lock has no tokens. " +
		"`exclusion` counts holders that overlapped, which no lease lock prevents: `overrun` after the earlier one's lease, `in-lease` within it.\n")
	r.timesMarkdown(b)
	if s := r.Surprises(); len(s) > 0 {
		b.WriteString("\n**Surprises**: found, and not allowed by theory.\n\n")
		for _, x := range s {
			fmt.Fprintf(b, "- %s\n", report.Markdown(x))
		}
	}
	if ns := r.notes((*Row).why); len(ns) > 0 {
		b.WriteString("\nNot in the table, or not whole:\n\n")
		for _, n := range ns {
			fmt.Fprintf(b, "- %s: %s\n", report.Markdown(strings.Join(n.rows, ", ")), report.Markdown(n.said))
		}
	}
	if chart != "" {
		fmt.Fprintf(b, "\n![Violations per thousand grants against availability](%s)\n", chart)
	}
	return b.Flush()
}

// headline says in a line what was run and what came of it.
func (r *Result) headline() string {
	runs, grants, bad := 0, 0, 0
	for i := range r.Rows {
		row := &r.Rows[i]
		runs += len(row.Runs)
		grants += row.Grants
		if row.Verdict == checker.Invalid {
			bad++
		}
	}
	s := fmt.Sprintf("%d runs of %d cells, %d grants; %d cells with a violation, %s against theory; seed %d, %d of each cell, %v each.",
		runs, len(r.Rows), grants, bad, count(len(r.Surprises()), "finding"), r.Spec.Seed, r.Spec.Repeat, r.Spec.Options.Duration)
	if r.Shard != "" {
		s += " Shard " + r.Shard + "."
	}
	return s
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Suites gives a JUnit suite for each cell, and in it a case for each property.
func (r *Result) Suites() []report.Suite {
	var out []report.Suite
	for i := range r.Rows {
		if row := &r.Rows[i]; row.mine() {
			out = append(out, row.suite())
		}
	}
	return out
}

func (row *Row) suite() report.Suite {
	s := report.Suite{Name: row.Cell.String(), Package: row.Backend, Props: [][2]string{
		{"backend", row.Backend}, {"client", row.Client}, {"fault", row.Fault}, {"store", row.Store}, {"theory", row.Says},
	}}
	if row.Impossible != "" {
		s.Cases = []report.Case{{Name: "cell", Skipped: row.why()}}
		return s
	}
	if why := row.why(); why != "" {
		s.Cases = append(s.Cases, report.Case{Name: "runs", Error: "unknown: " + why})
	}
	for _, run := range row.Runs {
		s.Seconds += run.Took.Seconds()
	}
	for _, p := range checker.Properties {
		if v, ok := row.Properties[p]; ok {
			s.Cases = append(s.Cases, row.testCase(p, v))
		}
	}
	return s
}

func (row *Row) testCase(p string, v checker.Verdict) report.Case {
	c := report.Case{Name: p}
	required := slices.Contains(row.Required, p)
	var said, detail []string
	for _, run := range row.Runs {
		q := run.Properties[p]
		if q.Verdict != v {
			continue
		}
		text := q.Reason
		if v == checker.Invalid {
			text = q.First
		}
		said = append(said, text)
		detail = append(detail, fmt.Sprintf("seed %d, %s: %s", run.Seed, run.Dir, text))
	}
	message := ""
	if len(said) > 0 {
		message = said[0]
	}
	switch {
	case v == checker.Invalid && required:
		c.Kind, c.Failure, c.Detail = p, message, strings.Join(detail, "\n")
	case v == checker.Invalid:
		c.Skipped = "not required: " + message
	case v == checker.Unknown && required:
		c.Error, c.Detail = "unknown: "+message, strings.Join(detail, "\n")
	case v == checker.Unknown, v == checker.NotApplicable:
		c.Skipped = v.String() + ": " + message
	}
	return c
}
