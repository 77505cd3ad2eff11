package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/scenario"
	"github.com/lockcheck/lockcheck/verify"
)

// The reports about checkers, under many seeds, judged as check judges.
func TestFileReports(t *testing.T) {
	a := &app{out: io.Discard, err: io.Discard}
	for _, name := range []string{"D11", "D12"} {
		r, ok := scenario.FindReport(name)
		if !ok {
			t.Fatalf("no report %s", name)
		}
		for seed := range uint64(5) {
			tell := verify.Telling{Report: r, Seed: seed, Parallel: 2, Judge: a.judgeAsCheck}
			tell.Options.Out = t.TempDir()
			for _, row := range verify.Tell(t.Context(), tell) {
				if row.Deviation != "" || row.Skipped != "" {
					t.Errorf("%s, seed %d, %s: %s", name, seed, row.Dir, row.Deviation)
				}
			}
		}
	}
}

// A report is found by its number, in any case, and by its name; what its rows
// decide cannot be asked for.
func TestFindReport(t *testing.T) {
	for _, r := range scenario.Reports {
		for _, name := range []string{r.Number, strings.ToLower(r.Number), r.Name} {
			if got, ok := scenario.FindReport(name); !ok || got.Number != r.Number {
				t.Errorf("%s: %v %v", name, got.Number, ok)
			}
		}
		if _, err := scenario.Find(r.Name); err == nil {
			t.Errorf("%s is a scenario and a report", r.Name)
		}
		for _, row := range r.Rows {
			if row.File != nil {
				continue
			}
			s, err := scenario.Find(row.Scenario)
			if err != nil {
				t.Error(r.Number, err)
			}
			for _, f := range row.Finds {
				if f.Property != checker.Exclusion && len(s.Require) == 0 {
					t.Errorf("%s: %s requires nothing", r.Number, s.Name)
				}
			}
		}
	}
	var errs bytes.Buffer
	if code := run(t.Context(), []string{"scenario", "D2", "--client", "redis/set-nx"}, nil, io.Discard, &errs); code != exitUsage || !strings.Contains(errs.String(), "--client") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}
