package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
)

// A Suite is a group of cases in a JUnit file: one run, or one cell of a matrix.
type Suite struct {
	Name    string
	Package string      // where CI systems group suites
	Props   [][2]string // name and value
	Seconds float64
	Cases   []Case
}

// A Case is one property. At most one of Failure, Error and Skipped is set: what
// was found, why it could not be judged, why there was nothing to judge.
type Case struct {
	Name                    string
	Kind                    string // of the failure
	Failure, Error, Skipped string
	Detail                  string // more than a line of it
}

// Cases gives a case for each property of a judgement. A violation of a property
// that the verdict does not ask for is told and fails nothing.
func Cases(r *checker.Results) []Case {
	var out []Case
	for _, name := range checker.Properties {
		p := r.Properties[name]
		if p == nil {
			continue
		}
		c := Case{Name: name}
		required := slices.Contains(r.Required, name)
		switch {
		case p.Verdict == checker.Invalid && required && len(p.Anomalies) > 0:
			c.Kind, c.Failure, c.Detail = p.Anomalies[0].Kind, p.Anomalies[0].Message, anomalies(p)
		case p.Verdict == checker.Invalid && required:
			c.Kind, c.Failure = name, plural(p.AnomalyCount, "anomaly", "anomalies")
		case p.Verdict == checker.Invalid:
			c.Skipped = "not required: " + plural(p.AnomalyCount, "anomaly", "anomalies") + ", " + p.Anomalies[0].Message
		case p.Verdict == checker.Unknown && required:
			c.Error = "unknown: " + p.Reason
		case p.Verdict == checker.Unknown, p.Verdict == checker.NotApplicable:
			c.Skipped = strings.TrimSpace(p.Verdict.String() + ": " + p.Reason)
		}
		out = append(out, c)
	}
	if len(r.Reasons) > 0 {
		out = append(out, Case{Name: "the run as a whole", Error: "unknown: " + r.Reasons[0], Detail: strings.Join(r.Reasons, "\n")})
	}
	return out
}

// shownAnomalies bounds the text of one case.
const shownAnomalies = 20

func anomalies(p *checker.Result) string {
	var b strings.Builder
	for _, a := range p.Anomalies[:min(shownAnomalies, len(p.Anomalies))] {
		fmt.Fprintf(&b, "%s at %s (events %v): %s\n", a.Kind, seconds(a.Time), a.Ops, a.Message)
	}
	if more := p.AnomalyCount - shownAnomalies; more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	return b.String()
}

func seconds(ns int64) string { return fmt.Sprintf("%.3f s", float64(ns)/1e9) }

type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Package  string      `xml:"package,attr,omitempty"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Props    *junitProps `xml:"properties"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitProps struct {
		Props []junitProp `xml:"property"`
	}
	junitProp struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name    string     `xml:"name,attr"`
		Class   string     `xml:"classname,attr"`
		Time    string     `xml:"time,attr"`
		Failure *junitSaid `xml:"failure"`
		Error   *junitSaid `xml:"error"`
		Skipped *junitSaid `xml:"skipped"`
	}
	junitSaid struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes suites in the form that CI systems read: a violated property is a
// failure with the anomaly's sentence as its message, one that could not be judged
// is an error. Text that XML cannot carry is spelled out.
func JUnit(w io.Writer, suites []Suite) error {
	all := junitSuites{Name: "lockcheck"}
	total := 0.0
	for _, s := range suites {
		js := s.junit()
		all.Tests, all.Failures, all.Errors, all.Skipped = all.Tests+js.Tests, all.Failures+js.Failures, all.Errors+js.Errors, all.Skipped+js.Skipped
		total += s.Seconds
		all.Suites = append(all.Suites, js)
	}
	all.Time = fmt.Sprintf("%.3f", total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (s *Suite) junit() junitSuite {
	js := junitSuite{Name: inXML(s.Name), Package: inXML(s.Package), Tests: len(s.Cases), Time: fmt.Sprintf("%.3f", s.Seconds)}
	for i, p := range s.Props {
		if i == 0 {
			js.Props = &junitProps{}
		}
		js.Props.Props = append(js.Props.Props, junitProp{inXML(p[0]), inXML(p[1])})
	}
	for _, c := range s.Cases {
		jc := junitCase{Name: inXML(c.Name), Class: js.Name, Time: "0.000"}
		said := func(msg string) *junitSaid { return &junitSaid{inXML(msg), inXML(c.Kind), inXML(c.Detail)} }
		switch {
		case c.Failure != "":
			jc.Failure = said(c.Failure)
			js.Failures++
		case c.Error != "":
			jc.Error = said(c.Error)
			js.Errors++
		case c.Skipped != "":
			jc.Skipped = &junitSaid{Message: inXML(c.Skipped)}
			js.Skipped++
		}
		js.Cases = append(js.Cases, jc)
	}
	return js
}

// inXML spells out what clean does, and keeps line ends.
func inXML(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = clean(l)
	}
	return strings.Join(lines, "\n")
}
