package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/lockcheck/lockcheck/checker"
)

// A DemoRow is one line of the demo's table: a lock on a backend, with or
// without a fence, and what a long pause of a holder did to it.
type DemoRow struct {
	Backend, Client, Store          string
	Exclusion, Lease, Fencing, Data checker.Verdict // zero where it was not judged
	StaleApplied, StaleRefused      int             // writes of a holder that had been overtaken
	Deviation                       string          // what theory says, where the row did not come out so
	Skipped                         string          // why there was nothing to judge
}

var demoHead = []string{"backend", "client", "store", "exclusion", "lease", "fencing", "data", "stale writes", "as expected"}

// DemoTable prints the rows as a table with pipes, so that it may be pasted
// into a page. Below a row that did not come out as theory says stands what was
// expected.
func DemoTable(w io.Writer, rows []DemoRow, color bool) error {
	cells := [][]string{demoHead}
	for i := range rows {
		cells = append(cells, rows[i].cells())
	}
	widths := make([]int, len(demoHead))
	for _, row := range cells {
		for c, s := range row {
			widths[c] = max(widths[c], utf8.RuneCountInString(s))
		}
	}
	b := bufio.NewWriter(w)
	writeRow(b, cells[0], nil, widths, color)
	for _, n := range widths {
		b.WriteString("|" + strings.Repeat("-", n+2))
	}
	b.WriteString("|\n")
	for i := range rows {
		writeRow(b, cells[i+1], rows[i].paints(), widths, color)
		rows[i].below(b, color)
	}
	return b.Flush()
}

func writeRow(b *bufio.Writer, cells []string, paints []paint, widths []int, color bool) {
	for c, s := range cells {
		p := plain
		if c < len(paints) {
			p = paints[c]
		}
		b.WriteString("| " + p.on(pad(s, widths[c]), color) + " ")
	}
	b.WriteString("|\n")
}

func (r *DemoRow) cells() []string {
	expected := "yes"
	switch {
	case r.Skipped != "":
		expected = "skipped"
	case r.Deviation != "":
		expected = "NO"
	}
	name := func(s string) string { return strings.ReplaceAll(clip(s, 40), "|", "¦") } // a pipe would begin a column
	return []string{
		name(r.Backend), name(r.Client), name(r.Store),
		short(r.Exclusion), short(r.Lease), short(r.Fencing), short(r.Data), r.stale(), expected,
	}
}

func (r *DemoRow) paints() []paint {
	last := green
	switch {
	case r.Skipped != "":
		last = yellow
	case r.Deviation != "":
		last = red
	}
	stale := plain
	if r.StaleApplied > 0 {
		stale = red
	}
	return []paint{plain, plain, plain, verdictPaint(r.Exclusion), verdictPaint(r.Lease), verdictPaint(r.Fencing), verdictPaint(r.Data), stale, last}
}

func short(v checker.Verdict) string {
	switch v {
	case 0:
		return "-"
	case checker.NotApplicable:
		return "n/a"
	}
	return v.String()
}

func (r *DemoRow) stale() string {
	var c counts
	if r.StaleApplied > 0 {
		c = append(c, fmt.Sprintf("%d applied", r.StaleApplied))
	}
	if r.StaleRefused > 0 {
		c = append(c, fmt.Sprintf("%d refused", r.StaleRefused))
	}
	switch {
	case len(c) > 0:
		return c.String()
	case r.Skipped != "":
		return "-"
	}
	return "none"
}

// below explains a row that is not as theory says.
func (r *DemoRow) below(b *bufio.Writer, color bool) {
	said, p := "", yellow
	switch {
	case r.Skipped != "":
		said = "skipped: " + r.Skipped
	case r.Deviation != "":
		said, p = "expected: "+r.Deviation, red
	}
	if said != "" {
		b.WriteString("  " + p.on(clip(said, maxText), color) + "\n")
	}
}
