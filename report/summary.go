package report

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
)

// A RunSummary is what a summary says of a run beside its judgement.
type RunSummary struct {
	Title     string // the lock, and what was done to it
	Seed      uint64
	Available string   // a share, "" where it was not measured
	Dir       string   // the run directory
	Again     []string // the arguments that run it again
}

// Summary writes what a run came to in Markdown, short enough for the comment of
// a pull request.
func Summary(w io.Writer, r *checker.Results, s RunSummary) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "### %s %s: **%v**\n\n", verdictMark(r.Verdict), Markdown(s.Title), r.Verdict)
	if name, a := r.First(); a != nil {
		fmt.Fprintf(b, "> %s (%s): %s\n\n", a.Kind, name, Markdown(clip(a.Message, maxText)))
	}
	for _, why := range r.Reasons {
		fmt.Fprintf(b, "Unknown: %s\n\n", Markdown(clip(why, maxText)))
	}
	b.WriteString("| property | verdict | checked | anomalies |\n|---|---|--:|--:|\n")
	for _, name := range checker.Properties {
		p := r.Properties[name]
		if p == nil {
			continue
		}
		asked := ""
		if !slices.Contains(r.Required, name) {
			asked = " (not required)"
		}
		said := fmt.Sprintf("%s %v%s", verdictMark(p.Verdict), p.Verdict, asked)
		if p.Verdict == checker.Unknown && p.Reason != "" {
			said += ": " + Markdown(clip(p.Reason, maxText))
		}
		fmt.Fprintf(b, "| %s | %s | %d | %d |\n", name, said, p.Checked, p.AnomalyCount)
	}
	fmt.Fprintf(b, "\n%s, %s; seed %d", plural(r.Exposure.AcquiresOK, "grant", "grants"), faultsSaid(r.Exposure.Faults), s.Seed)
	if s.Available != "" {
		fmt.Fprintf(b, "; availability %s", s.Available)
	}
	b.WriteString("\n")
	if len(s.Again) > 0 {
		fmt.Fprintf(b, "\nAgain: %s\n", codeSpan(command(s.Again)))
	}
	if s.Dir != "" {
		fmt.Fprintf(b, "\nHistory and results: %s\n", codeSpan(clean(s.Dir)))
	}
	return b.Flush()
}

func faultsSaid(faults map[string]int) string {
	if len(faults) == 0 {
		return "no faults"
	}
	var out []string
	for name, n := range faults {
		out = append(out, fmt.Sprintf("%s %d", Markdown(clean(name)), n))
	}
	slices.Sort(out)
	return "faults in force: " + strings.Join(out, ", ")
}

func verdictMark(v checker.Verdict) string {
	switch v {
	case checker.Valid:
		return "✅"
	case checker.Invalid:
		return "❌"
	case checker.NotApplicable:
		return "➖"
	}
	return "❔"
}

// Markdown makes text harmless in a line or a table of Markdown: nothing in it is
// markup, a link or a mention.
func Markdown(s string) string {
	var b strings.Builder
	for _, r := range clean(s) {
		switch {
		case strings.ContainsRune("\\`*_[]()#~!|", r):
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '&':
			b.WriteString("&amp;")
		case r == '@':
			b.WriteString("@\u200b") // else it notifies somebody
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// codeSpan shows text as it is, whatever backticks it has.
func codeSpan(s string) string {
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		s = " " + s + " "
	}
	return fence + s + fence
}

// AppendFile has fill add to a file, which is made if it is not there: the file
// for a job's summary may hold those of earlier steps.
func AppendFile(path string, fill func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	if err := fill(f); err != nil {
		f.Close()
		return fmt.Errorf("summary %s: %w", path, err)
	}
	return f.Close()
}
