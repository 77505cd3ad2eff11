package matrix

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/report"
)

// Files for people beside matrix.json.
const (
	PageFile  = "matrix.html"
	ChartFile = "matrix.svg"
	JUnitFile = "junit.xml"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("matrix").Parse(pageText))

// A pageCell is one property of one row on the page.
type pageCell struct {
	Text, Class, Link, Title string
}

type pageRow struct {
	*Row
	Cells   []pageCell
	Runs    []pageCell
	Theory  string
	Off     bool
	Why     string
	Odd     bool
	PerK    string
	Availed string
}

// Page writes the matrix as one page of HTML without a need of the network. dir is
// its folder: links lead to what the runs have left there.
func (r *Result) Page(w io.Writer, dir string) error {
	var chart bytes.Buffer
	if err := r.Chart(&chart); err != nil {
		return err
	}
	var rows []pageRow
	for i := range r.Rows {
		if row := &r.Rows[i]; row.mine() {
			rows = append(rows, r.pageRow(row, dir))
		}
	}
	return pageTemplate.Execute(w, map[string]any{
		"Result": r, "Headline": r.headline(), "Properties": shown, "Rows": rows, "Surprises": r.Surprises(),
		"TimesHead": timesHead, "Times": r.times(), "OfSeveral": r.ofSeveral(),
		"Notes": r.pageNotes(), "Chart": template.HTML(chart.String()), // drawn here, with everything escaped
	})
}

type pageNote struct{ Rows, Said string }

func (r *Result) pageNotes() []pageNote {
	var out []pageNote
	for _, n := range r.notes((*Row).why) {
		out = append(out, pageNote{strings.Join(n.rows, ", "), n.said})
	}
	return out
}

func (r *Result) pageRow(row *Row, dir string) pageRow {
	pr := pageRow{Row: row, Theory: row.Says, Off: row.theorySaid() == "SURPRISE", Why: row.why(), PerK: fmt.Sprintf("%.3g", row.PerThousand), Availed: row.availability()}
	for _, p := range shown {
		c := pageCell{Text: row.said(p), Class: class(row, p)}
		if run := row.worst(p); run != nil {
			c.Link = link(dir, run.Dir)
			c.Title = run.Properties[p].First
			if c.Title == "" {
				c.Title = run.Properties[p].Reason
			}
		}
		pr.Cells = append(pr.Cells, c)
	}
	for _, run := range row.Runs {
		pr.Runs = append(pr.Runs, pageCell{Text: fmt.Sprint(run.Seed), Class: run.Verdict.String(), Link: link(dir, run.Dir), Title: run.First + run.Skipped + run.Failed})
	}
	return pr
}

func class(row *Row, p string) string {
	v, ok := row.Properties[p]
	switch {
	case !ok:
		return "none"
	case v == checker.Invalid && !slices.Contains(row.Required, p):
		return "hazard"
	}
	return v.String()
}

// worst is the run that a property is shown by: the first in which it came to what
// it came to in all.
func (row *Row) worst(p string) *Run {
	for i := range row.Runs {
		if q, ok := row.Runs[i].Properties[p]; ok && q.Verdict == row.Properties[p] {
			return &row.Runs[i]
		}
	}
	return nil
}

// link leads to what a run has left for people.
func link(dir, run string) string {
	if run == "" || !filepath.IsLocal(run) {
		return ""
	}
	u := url.URL{Path: filepath.ToSlash(run) + "/"}
	for _, name := range []string{"report.html", "results.json"} {
		if _, err := os.Stat(filepath.Join(dir, run, name)); err == nil {
			u.Path += name
			break
		}
	}
	return u.String() // with ./ where a name has a colon
}

// WriteFiles writes the page, the chart and the JUnit file into a folder. None of
// them costs the others.
func (r *Result) WriteFiles(dir string) []error {
	var errs []error
	for name, fill := range map[string]func(io.Writer) error{
		PageFile:  func(w io.Writer) error { return r.Page(w, dir) },
		ChartFile: r.Chart,
		JUnitFile: func(w io.Writer) error { return report.JUnit(w, r.Suites()) },
	} {
		if err := report.WriteFile(filepath.Join(dir, name), fill); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
