package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lockcheck/lockcheck/checker"
)

func results(t *testing.T, r *checker.Results, o TextOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Results(&b, r, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func invalid() *checker.Results {
	r := &checker.Results{
		Properties: map[string]*checker.Result{
			checker.Exclusion: {Verdict: checker.Invalid, Checked: 512, AnomalyCount: 3, Anomalies: []checker.Anomaly{
				{Kind: "overlap", Class: "overrun", Key: "orders/17", Ops: []int{1, 31}, Time: 5},
			}},
			checker.Lease:   {Verdict: checker.Valid, Checked: 512},
			checker.Fencing: {Verdict: checker.NotApplicable, Reason: "this lock gives no tokens: nothing can fence a holder that has lost it"},
			checker.Release: {Verdict: checker.Unknown, Reason: "nothing checked: there was no release"},
			checker.Data: {Verdict: checker.Invalid, Checked: 2040, AnomalyCount: 130, Anomalies: []checker.Anomaly{
				{Kind: "stale-write", Key: "orders/17", Ops: []int{13, 14, 40}, Faults: []int{16}, Time: 7,
					Message: "process 3 wrote 41 under grant 12, token 7, 2.1 s after its lease ended; process 1 under grant 19 had written 41 in between"},
				{Kind: "lost-update", Key: "orders/17", Ops: []int{40}, Time: 8},
			}},
			checker.Progress: {Verdict: checker.Valid, Checked: 101},
		},
		Exposure: checker.Exposure{
			AcquiresOK: 512, Holders: 5, AcquiresBeforeFaults: 400, AcquiresDuringFaults: 60, AcquiresAfterFaults: 52,
			HandOvers: 101, AcquiresWaited: 44, AcquiresRefused: 30, AcquiresFailed: 33, RenewalsOK: 12, LateGrants: 1,
			Faults: map[string]int{"pause": 3, "kill": 1}, FaultsOverHold: 3, PausesOverLease: 3, FaultsSkipped: 1,
			StaleAccessesSent: 3, StaleWritesApplied: 2, AccessesWithoutToken: 2040, Operations: 3021, Info: 4,
		},
	}
	r.Require(checker.DefaultRequired)
	return r
}

func TestResultsGolden(t *testing.T) {
	o := TextOptions{
		Paths: []string{"store/redis-redsync-pause/20261130T210000.000Z/report.html", "store/redis-redsync-pause/20261130T210000.000Z/history.jsonl"},
		Again: []string{"lockcheck", "run", "--from", "store/redis-redsync-pause/20261130T210000.000Z"},
	}
	got := results(t, invalid(), o)
	narrow(t, got, 100)
	compare(t, "text-invalid", got)
	o.Color = true
	compare(t, "text-invalid-color", results(t, invalid(), o))

	valid := &checker.Results{Properties: map[string]*checker.Result{}}
	for _, p := range checker.Properties {
		valid.Properties[p] = &checker.Result{Verdict: checker.Valid, Checked: 7}
	}
	valid.Properties[checker.Exclusion] = &checker.Result{Verdict: checker.Invalid, Checked: 7, AnomalyCount: 1, Anomalies: []checker.Anomaly{
		{Kind: "overlap", Class: "overrun", Key: "k", Ops: []int{1, 31}, Message: "both believed to hold it"},
	}}
	valid.Exposure = checker.Exposure{AcquiresOK: 2, Holders: 2, HandOvers: 1, WritesRefused: 1, Operations: 9}
	valid.Require(checker.DefaultRequired)
	compare(t, "text-valid", results(t, valid, TextOptions{Width: 70}))

	unknown := &checker.Results{Properties: map[string]*checker.Result{}, Reasons: []string{"the fault pause was asked for and was never in force"}}
	unknown.Require([]string{checker.Data})
	compare(t, "text-unknown", results(t, unknown, TextOptions{}))
}

func TestResultsLastLines(t *testing.T) {
	for v, want := range map[checker.Verdict]string{
		checker.Valid:   "verdict: valid\nEverything looks good! ヽ(‘ー`)ノ\n",
		checker.Unknown: "verdict: unknown\nErrors occurred during analysis, but no anomalies found. ಠ~ಠ\n",
		checker.Invalid: "verdict: invalid\nAnalysis invalid! (ﾉಥ益ಥ）ﾉ ┻━┻\n",
	} {
		if got := results(t, &checker.Results{Verdict: v}, TextOptions{}); !bytes.HasSuffix(got, []byte(want)) {
			t.Errorf("%v: %s", v, got)
		}
	}
}

func TestResultsHostile(t *testing.T) {
	r := invalid()
	for _, p := range r.Properties {
		p.Reason = hostile
		for i := range p.Anomalies {
			a := &p.Anomalies[i]
			a.Key, a.Kind, a.Class, a.Message = hostile, hostile, hostile, hostile+strings.Repeat("\x1b]0;x\x07", 1e6)
		}
	}
	r.Reasons = []string{hostile}
	r.Properties[hostile] = &checker.Result{Verdict: checker.Invalid}
	r.Exposure.Faults = map[string]int{hostile: 1}
	got := results(t, r, TextOptions{Paths: []string{hostile}, Again: []string{"lockcheck", hostile, "", "it's", "a;b"}})
	harmless(t, got)
	if len(got) > 20_000 {
		t.Errorf("%d bytes", len(got))
	}
	if n := strings.Count(string(got), "\nverdict: "); n != 1 {
		t.Errorf("%d lines of the verdict:\n%s", n, got)
	}
	again := `lockcheck $'k\x1b[31mred\x1b[0m\x0d\x0a\x09verdict: valid\xe2\x80\xae\xc2\x85\x00\x7f\xff\'"\xe2\x80\x9c' '' 'it'\''s' 'a;b'`
	if !bytes.Contains(got, []byte(again)) {
		t.Errorf("want %s in\n%s", again, got)
	}
}

func TestWrap(t *testing.T) {
	for _, s := range []string{"", "one", strings.Repeat("ab ", 50), strings.Repeat("x", 95) + " y", "ü " + strings.Repeat("é", 31)} {
		lines := wrap(s, 10)
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > 10 || n == 0 {
				t.Errorf("%q", lines)
			}
		}
		if got, want := strings.ReplaceAll(strings.Join(lines, ""), " ", ""), strings.ReplaceAll(s, " ", ""); got != want {
			t.Errorf("%q became %q", want, got)
		}
	}
}

func TestDemoTable(t *testing.T) {
	rows := []DemoRow{
		{Backend: "redis", Client: "redsync", Store: "none", Exclusion: checker.Invalid, Lease: checker.Valid, Fencing: checker.NotApplicable, Data: checker.Invalid, StaleApplied: 1},
		{Backend: "etcd", Client: "concurrency", Store: "monotonic", Exclusion: checker.Invalid, Lease: checker.Valid, Fencing: checker.Valid, Data: checker.Valid, StaleRefused: 1},
		{Backend: "zookeeper", Client: "go-zk", Store: "monotonic", Exclusion: checker.Invalid, Lease: checker.Unknown, Fencing: checker.Invalid, Data: checker.Invalid, StaleApplied: 1, StaleRefused: 2,
			Deviation: "fencing valid and data valid, because this lock's tokens grow and the store refuses the stale write"},
		{Backend: "consul", Client: "api", Store: "none", Skipped: "no consul on this machine\n\x1b[2J"},
		{Backend: "a|b", Client: "client", Store: "none"},
	}
	var b bytes.Buffer
	if err := DemoTable(&b, rows, false); err != nil {
		t.Fatal(err)
	}
	harmless(t, b.Bytes())
	compare(t, "demo", b.Bytes())
	b.Reset()
	if err := DemoTable(&b, rows, true); err != nil {
		t.Fatal(err)
	}
	compare(t, "demo-color", b.Bytes())
}

func TestAvailabilityInWords(t *testing.T) {
	available, fair := 0.99996, 0.5
	a := &checker.Availability{
		Available: &available, Fairness: &fair, Workers: 2, Windows: 1, Longest: 1012, AtLeast: 100,
		Acquire:  checker.Quantiles{Count: 9, P50: 1.25, P99: 8, Max: 1430},
		Recovery: map[string]checker.Recovery{"server-kill\x1b": {Quantiles: checker.Quantiles{Count: 2, Max: 210}, Never: 1}},
		HandOver: &checker.HandOver{Quantiles: checker.Quantiles{Count: 1, Max: 1010}, TTL: 1000, OfTTL: 1.01},
	}
	got := strings.Join(Availability(a), "\n")
	want := `99.99 % of the time in which somebody tried; 1 window without a grant, the longest 1.01 s
acquires took 1.25 ms (p50), 8 ms (p99), 1.43 s at most; fairness among 2 workers 0.50 (1 is equal)
from a heal to the next grant: server-kill\x1b 210 ms at most (2 x), 1 time never
from a holder's death to the next grant: 1.01 s at most (1 x), 1.01 x the TTL of 1 s`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if Availability(&checker.Availability{}) != nil {
		t.Error("figures of a lock that nobody tried for")
	}
}
