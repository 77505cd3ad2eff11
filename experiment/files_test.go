package experiment

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/report"
)

var drawnFiles = []string{report.PageFile, report.TimelineFile, report.LatencyFile, report.RateFile, report.TextFile}

// whatIsThere fails for each file of a run that is missing or empty, but for one,
// and gives the verdict that is on the disk.
func whatIsThere(t *testing.T, dir, but string) checker.Verdict {
	t.Helper()
	for _, name := range append([]string{"test.json", "plan.json", "history.jsonl", "results.json", "lockcheck.log"}, drawnFiles...) {
		info, err := os.Stat(filepath.Join(dir, name))
		if name == but {
			continue
		}
		if err != nil || info.Size() == 0 && name != "lockcheck.log" {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	var res checker.Results
	b, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if err == nil {
		err = json.Unmarshal(b, &res)
	}
	if err != nil {
		t.Fatal(err)
	}
	if res.Availability == nil || res.Availability.Available == nil {
		t.Error("no availability in results.json")
	}
	return res.Verdict
}

// All files are there however a run ends, and a drawing that fails is named in
// the log and costs nothing else.
func TestFilesOfARun(t *testing.T) {
	t.Parallel()
	short := func(t *testing.T) Options {
		o := Defaults()
		o.Out, o.Duration, o.Seed = t.TempDir(), 3*time.Second, 1
		return o
	}
	run := func(t *testing.T, ctx context.Context, o Options, m Machine) Result {
		t.Helper()
		if err := o.Settle(); err != nil {
			t.Fatal(err)
		}
		res, err := Run(ctx, o, m)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	t.Run("green", func(t *testing.T) {
		t.Parallel()
		res := run(t, t.Context(), short(t), testMachine())
		if v := whatIsThere(t, res.Dir, ""); v != checker.Valid {
			t.Errorf("the verdict is %v", v)
		}
	})
	t.Run("red and not drawn", func(t *testing.T) {
		t.Parallel()
		o := short(t)
		o.Scenario, o.Store = "gc-pause", fencedstore.None
		m := testMachine()
		m.Begun = func(dir string) { // a folder stands where the drawing should go
			if err := os.MkdirAll(filepath.Join(dir, report.LatencyFile, "in the way"), 0o755); err != nil {
				t.Error(err)
			}
		}
		res := run(t, t.Context(), o, m)
		if v := whatIsThere(t, res.Dir, report.LatencyFile); v != checker.Invalid {
			t.Errorf("the verdict is %v", v)
		}
		log, err := os.ReadFile(filepath.Join(res.Dir, "lockcheck.log"))
		if err != nil || !strings.Contains(string(log), report.LatencyFile) {
			t.Errorf("the log does not name the file that could not be drawn: %v\n%s", err, log)
		}
		if err := os.RemoveAll(filepath.Join(res.Dir, report.LatencyFile)); err != nil {
			t.Fatal(err)
		}
		for _, err := range report.Draw(t.Context(), res.Dir) {
			t.Error(err)
		}
		whatIsThere(t, res.Dir, "")
	})
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		o := short(t)
		o.Duration = time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m := testMachine()
		m.Live = func(l Live) {
			if l.Status.Acquires > 20 {
				cancel()
			}
		}
		res := run(t, ctx, o, m)
		if v := whatIsThere(t, res.Dir, ""); v != checker.Unknown {
			t.Errorf("the verdict is %v", v)
		}
	})
}
