package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/joshdk/go-junit"

	"github.com/lockcheck/lockcheck/checker"
)

// judged is a judgement with one of each verdict, and a hostile sentence.
func judged(message string) *checker.Results {
	r := &checker.Results{Properties: map[string]*checker.Result{
		checker.Exclusion:    {Verdict: checker.Invalid, AnomalyCount: 7, Anomalies: []checker.Anomaly{{Kind: "overlap", Class: "overrun", Message: "two believed it"}}},
		checker.Lease:        {Verdict: checker.Valid, Checked: 12},
		checker.Fencing:      {Verdict: checker.NotApplicable, Reason: "no tokens"},
		checker.Release:      {Verdict: checker.Unknown, Reason: "nothing checked"},
		checker.Data:         {Verdict: checker.Invalid, AnomalyCount: 30, Anomalies: []checker.Anomaly{{Kind: "stale-write", Ops: []int{3, 16}, Message: message, Time: 1252000000}}},
		checker.Progress:     {Verdict: checker.Valid},
		checker.Linearizable: {Verdict: checker.Valid},
	}, Reasons: []string{"the run was interrupted"}}
	r.Require(checker.DefaultRequired)
	return r
}

// Another program's reader takes from the file what was put in: a case for each
// property, the anomaly's sentence as the message, and nothing that breaks XML.
func TestJUnit(t *testing.T) {
	const message = "process 0 wrote \x00\x1b[31m\xff 1 under \"]]>\" & <b>grant</b> 1\u202e"
	var b bytes.Buffer
	if err := JUnit(&b, []Suite{{Name: "redis-set-nx-pause", Package: "redis", Seconds: 20.5, Props: [][2]string{{"seed", "7"}}, Cases: Cases(judged(message))}}); err != nil {
		t.Fatal(err)
	}
	suites, err := junit.Ingest(b.Bytes())
	if err != nil || len(suites) != 1 {
		t.Fatalf("%v\n%s", err, b.String())
	}
	s := suites[0]
	if tot := s.Totals; tot.Tests != 8 || tot.Failed != 1 || tot.Error != 2 || tot.Skipped != 2 || tot.Passed != 3 || s.Properties["seed"] != "7" {
		t.Errorf("%+v %v", tot, s.Properties)
	}
	want := map[string]struct {
		status  junit.Status
		message string
	}{
		checker.Exclusion: {junit.StatusSkipped, "not required: 7 anomalies, two believed it"}, checker.Lease: {junit.StatusPassed, ""},
		checker.Fencing: {junit.StatusSkipped, "not-applicable: no tokens"}, checker.Release: {junit.StatusError, "unknown: nothing checked"},
		checker.Data:         {junit.StatusFailed, clean(message)},
		"the run as a whole": {junit.StatusError, "unknown: the run was interrupted"},
	}
	for _, c := range s.Tests {
		w, ok := want[c.Name]
		if ok && (c.Status != w.status || w.message != "" && c.Message != w.message) {
			t.Errorf("%s: %v %q", c.Name, c.Status, c.Message)
		}
		if !ok && c.Status != junit.StatusPassed {
			t.Errorf("%s: %v", c.Name, c.Status)
		}
		if c.Name == checker.Data && !strings.Contains(c.Error.Error(), "and 10 more") {
			t.Errorf("detail: %v", c.Error)
		}
	}
}

// The summary says the verdict and the sentence, and no text in it is markup.
func TestSummary(t *testing.T) {
	var b bytes.Buffer
	err := Summary(&b, judged("<img src=x> | `a` [b](c) @all **d**\n# e"), RunSummary{Title: "redis/set-nx on redis", Seed: 7, Dir: "store/x`y", Again: []string{"lockcheck", "run"}, Available: "97.1 %"})
	if err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"❌ redis/set-nx on redis: **invalid**", `&lt;img src=x&gt; \| \` + "`a\\`" + ` \[b\]\(c\) `, "| data | ❌ invalid | 0 | 30 |", "availability 97.1 %", "`` store/x`y ``", "Again: `lockcheck run`"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "<img") || strings.Contains(text, "@all") || strings.Contains(text, "\n# e") {
		t.Errorf("text became markup:\n%s", text)
	}
}
