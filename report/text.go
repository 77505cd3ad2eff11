package report

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
)

// TextOptions say how the end of a run is printed.
type TextOptions struct {
	Color bool     // a terminal, and no NO_COLOR
	Width int      // of the terminal; 100 if it is not known
	Paths []string // where to look further: the report, the run directory, the history
	Again []string // the arguments that run it again, program first; quoted here for a shell
}

// The last lines of a run, as Jepsen prints them.
const (
	everythingGood = "Everything looks good! ヽ(‘ー`)ノ"
	errorsOccurred = "Errors occurred during analysis, but no anomalies found. ಠ~ಠ"
	analysisBad    = "Analysis invalid! (ﾉಥ益ಥ）ﾉ ┻━┻"
)

// Results prints the end of a run: what each property came to, what the run put
// the lock to, the first anomaly, how to run it again, and the verdict.
func Results(w io.Writer, r *checker.Results, o TextOptions) error {
	t := &text{w: bufio.NewWriter(w), width: width(o.Width), color: o.Color}
	t.properties(r)
	for _, why := range r.Reasons {
		t.item("unknown", yellow, why)
	}
	t.line("")
	t.exposure(&r.Exposure)
	t.availability(r.Availability)
	t.first(r)
	if len(o.Paths)+len(o.Again) > 0 {
		t.line("")
	}
	for i, p := range o.Paths {
		label := "see"
		if i > 0 {
			label = ""
		}
		t.whole(label, clean(p))
	}
	if len(o.Again) > 0 {
		t.whole("again", command(o.Again))
	}
	t.line("")
	t.verdict(r.Verdict)
	return t.w.Flush()
}

// text prints lines. Errors of writing stay in its buffer until the end.
type text struct {
	w     *bufio.Writer
	width int
	color bool
}

func (t *text) line(s string) {
	t.w.WriteString(strings.TrimRight(s, " "))
	t.w.WriteByte('\n')
}

// labels is the width of the labels that paragraphs hang from.
const labels = 10

// item prints a paragraph that hangs from a label.
func (t *text) item(label string, p paint, s string) {
	head := p.on(label, t.color) + strings.Repeat(" ", max(1, labels-len(label)))
	for i, l := range wrap(clip(s, maxText), t.width-labels) {
		if i > 0 {
			head = strings.Repeat(" ", labels)
		}
		t.line(head + l)
	}
}

// whole prints what is to be copied, and is therefore never broken.
func (t *text) whole(label, s string) { t.line(pad(label, labels) + s) }

// Columns of the table of properties, after the name.
const (
	nameWidth    = 14
	verdictWidth = 16
	countWidth   = 9
)

func (t *text) properties(r *checker.Results) {
	head := fmt.Sprintf("  %-*s%-*s%*s%*s", nameWidth, "property", verdictWidth, "verdict", countWidth, "checked", countWidth+2, "anomalies")
	t.line(dim.on(head, t.color))
	optional := false
	for _, name := range shown(r) {
		mark := "*"
		if !slices.Contains(r.Required, name) {
			mark, optional = " ", true
		}
		t.property(mark, name, r.Properties[name])
	}
	note := "* the verdict is made of these"
	if !optional {
		note = "* the verdict is made of all of these"
	}
	t.line(dim.on(note, t.color))
}

// shown lists the properties in their order, and then what else was asked for.
func shown(r *checker.Results) []string {
	var names []string
	for _, n := range checker.Properties {
		if r.Properties[n] != nil || slices.Contains(r.Required, n) {
			names = append(names, n)
		}
	}
	more := append(slices.Collect(maps.Keys(r.Properties)), r.Required...)
	slices.Sort(more)
	for _, n := range slices.Compact(more) {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

func (t *text) property(mark, name string, p *checker.Result) {
	head := mark + " " + pad(clip(name, nameWidth), nameWidth)
	if p == nil {
		t.line(head + yellow.on("not judged", t.color))
		return
	}
	checked := "-"
	if p.Checked > 0 {
		checked = strconv.Itoa(p.Checked)
	}
	row := head + verdictPaint(p.Verdict).on(pad(p.Verdict.String(), verdictWidth), t.color) + fmt.Sprintf("%*s", countWidth, checked)
	if p.AnomalyCount > 0 {
		used := 2 + nameWidth + verdictWidth + countWidth + countWidth + 2 + 2
		row += red.on(fmt.Sprintf("%*d", countWidth+2, p.AnomalyCount), t.color) + "  " + clip(kinds(p), max(t.width-used, 8))
	}
	t.line(row)
	if p.Reason != "" {
		for _, l := range wrap(clip(p.Reason, maxText), t.width-4) {
			t.line("    " + dim.on(l, t.color))
		}
	}
}

// kinds counts the anomalies that were kept by kind, in the order of the first.
func kinds(p *checker.Result) string {
	var order []string
	n := map[string]int{}
	for _, a := range p.Anomalies {
		k := kindOf(&a)
		if n[k]++; n[k] == 1 {
			order = append(order, k)
		}
	}
	if len(order) == 1 {
		return order[0]
	}
	for i, k := range order {
		order[i] = fmt.Sprintf("%d %s", n[k], k)
	}
	if kept := len(p.Anomalies); kept < p.AnomalyCount && kept > 0 {
		order = append(order, fmt.Sprintf("among the first %d", kept))
	}
	return strings.Join(order, ", ")
}

func kindOf(a *checker.Anomaly) string {
	k := clip(a.Kind, 40)
	if a.Class != "" {
		k += " (" + clip(a.Class, 40) + ")"
	}
	return k
}

// exposure says in a few lines what the run put the lock to. What is zero is
// left out.
func (t *text) exposure(e *checker.Exposure) {
	if e.AcquiresOK+e.AcquiresFailed+e.Operations == 0 && len(e.Faults) == 0 && e.FaultsSkipped == 0 {
		t.item("exposure", plain, "none: nobody asked for the lock")
		return
	}
	label := "exposure"
	for _, s := range []string{lockExposure(e), faultExposure(e), dataExposure(e)} {
		if s != "" {
			t.item(label, plain, s)
			label = ""
		}
	}
}

// availability says how well the lock could be had.
func (t *text) availability(a *checker.Availability) {
	if a == nil || a.Available == nil {
		return
	}
	label := "available"
	for _, s := range Availability(a) {
		t.item(label, plain, s)
		label = ""
	}
}

// Availability says the figures in a few sentences; none when nobody tried.
func Availability(a *checker.Availability) []string {
	if a == nil || a.Available == nil {
		return nil
	}
	lines := []string{share(*a.Available) + " of the time in which somebody tried; " + windows(a)}
	if a.Acquire.Count > 0 {
		lines = append(lines, fmt.Sprintf("acquires took %s (p50), %s (p99), %s at most; fairness among %s %.2f (1 is equal)",
			Took(a.Acquire.P50), Took(a.Acquire.P99), Took(a.Acquire.Max), plural(a.Workers, "worker", "workers"), *a.Fairness))
	}
	var c counts
	for _, name := range slices.Sorted(maps.Keys(a.Recovery)) {
		c = append(c, clip(name, 40)+" "+waits(a.Recovery[name].Quantiles, a.Recovery[name].Never))
	}
	if len(c) > 0 {
		lines = append(lines, "from a heal to the next grant: "+c.String())
	}
	if h := a.HandOver; h != nil {
		s := "from a holder's death to the next grant: " + waits(h.Quantiles, h.Never)
		if h.Count > 0 {
			s += fmt.Sprintf(", %.2f x the TTL of %s", h.OfTTL, Took(h.TTL))
		}
		lines = append(lines, s)
	}
	return lines
}

func windows(a *checker.Availability) string {
	if a.Windows == 0 {
		return fmt.Sprintf("no window of %s or more without a grant", Took(a.AtLeast))
	}
	return fmt.Sprintf("%s without a grant, the longest %s", plural(a.Windows, "window", "windows"), Took(a.Longest))
}

func waits(q checker.Quantiles, never int) string {
	var c counts
	if q.Count > 0 {
		c = append(c, fmt.Sprintf("%s at most (%d x)", Took(q.Max), q.Count))
	}
	c.add(never, "time never", "times never")
	return c.String()
}

// share says a part of 1; what is not all is never rounded up to it.
func share(f float64) string {
	if f < 1 {
		f = min(f, 0.9999)
	}
	return strconv.FormatFloat(f*100, 'g', 4, 64) + " %"
}

// Took says a time in milliseconds with three digits, above a second in seconds.
func Took(ms float64) string {
	unit := " ms"
	if ms >= 999.5 { // what would be rounded to a second
		ms, unit = ms/1000, " s"
	}
	if ms >= 999.5 {
		return strconv.FormatFloat(ms, 'f', 0, 64) + unit
	}
	return strconv.FormatFloat(ms, 'g', 3, 64) + unit
}

// counts joins what is not zero.
type counts []string

func (c *counts) add(n int, one, many string) {
	if n > 0 {
		*c = append(*c, plural(n, one, many))
	}
}

func (c counts) String() string { return strings.Join(c, ", ") }

func lockExposure(e *checker.Exposure) string {
	var c counts
	c.add(e.AcquiresOK, "acquire ok", "acquires ok")
	if len(c) > 0 && e.Holders > 0 {
		c[0] += " by " + plural(e.Holders, "process", "processes")
	}
	if len(c) > 0 && len(e.Faults) > 0 {
		c[0] += fmt.Sprintf(" (%d before, %d during, %d after faults)", e.AcquiresBeforeFaults, e.AcquiresDuringFaults, e.AcquiresAfterFaults)
	}
	c.add(e.AcquiresWaited, "of them asked for while another held", "of them asked for while another held")
	c.add(e.AcquiresRefused, "acquire refused", "acquires refused")
	c.add(e.AcquiresFailed-e.AcquiresRefused, "failed otherwise", "failed otherwise")
	c.add(e.HandOvers, "hand-over", "hand-overs")
	c.add(e.LateGrants, "grant over on arrival", "grants over on arrival")
	c.add(e.RenewalsOK, "renewal ok", "renewals ok")
	c.add(e.ReleasesOK, "release ok", "releases ok")
	return c.String()
}

func faultExposure(e *checker.Exposure) string {
	var kinds counts
	total := 0
	for _, k := range slices.Sorted(maps.Keys(e.Faults)) {
		total += e.Faults[k]
		kinds = append(kinds, fmt.Sprintf("%s %d", clip(k, 40), e.Faults[k]))
	}
	var c counts
	if total > 0 {
		c = append(c, "faults in force: "+kinds.String())
	}
	c.add(e.FaultsOverHold, "of them hit a holder", "of them hit a holder")
	c.add(e.FailoversWhileHeld, "failover while a lock was held", "failovers while a lock was held")
	c.add(e.PausesOverLease, "pause outlived its holder's lease", "pauses outlived their holders' leases")
	c.add(e.FaultsSkipped, "fault never came into force", "faults never came into force")
	return c.String()
}

func dataExposure(e *checker.Exposure) string {
	var c counts
	c.add(e.StaleAccessesSent, "access sent with an overtaken token", "accesses sent with overtaken tokens")
	c.add(e.StaleWritesApplied, "stale write applied", "stale writes applied")
	c.add(e.WritesRefused, "write refused by the fence", "writes refused by the fence")
	c.add(e.ReadsRefused, "read refused by the fence", "reads refused by the fence")
	c.add(e.AccessesWithoutToken, "access without a token", "accesses without a token")
	if e.Info > 0 && e.Operations > 0 {
		share := 100 * float64(e.Info) / float64(e.Operations)
		c = append(c, fmt.Sprintf("outcome unknown of %d in %s (%.2g %%)", e.Info, plural(e.Operations, "operation", "operations"), share))
	}
	return c.String()
}

// maxIndexes is how many event indexes one sentence names.
const maxIndexes = 12

// first prints the first anomaly, with the events that prove it.
func (t *text) first(r *checker.Results) {
	property, a := r.First()
	if a == nil {
		return
	}
	t.line("")
	head, c := fmt.Sprintf("%s, %s, on %s", clip(property, 40), kindOf(a), quote(a.Key, 80)), red
	if !slices.Contains(r.Required, property) {
		head, c = head+" (shown, but no part of the verdict)", yellow
	}
	t.item("first", c, head+":")
	said := a.Message
	if said == "" {
		said = "the checker gave no words for it"
	}
	t.item("", plain, said)
	if proof := eventList(a); proof != "" {
		t.item("", plain, proof)
	}
}

func eventList(a *checker.Anomaly) string {
	var c counts
	for _, l := range []struct {
		one, many string
		idx       []int
	}{{"event", "events", a.Ops}, {"fault in force: event", "faults in force: events", a.Faults}} {
		if len(l.idx) == 0 {
			continue
		}
		var nums []string
		for _, i := range l.idx[:min(len(l.idx), maxIndexes)] {
			nums = append(nums, "#"+strconv.Itoa(i))
		}
		if more := len(l.idx) - maxIndexes; more > 0 {
			nums = append(nums, fmt.Sprintf("and %d more", more))
		}
		word := l.many
		if len(l.idx) == 1 {
			word = l.one
		}
		c = append(c, word+" "+strings.Join(nums, " "))
	}
	return strings.Join(c, "; ")
}

func (t *text) verdict(v checker.Verdict) {
	last := errorsOccurred
	switch v {
	case checker.Valid, checker.NotApplicable:
		last = everythingGood
	case checker.Invalid:
		last = analysisBad
	}
	t.line("verdict: " + verdictPaint(v).on(v.String(), t.color))
	t.line(verdictPaint(v).on(last, t.color))
}
