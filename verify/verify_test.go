package verify

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/labtest"
	"github.com/lockcheck/lockcheck/scenario"
)

// TestMain runs the tests inside the lab, and this binary as the workers.
func TestMain(m *testing.M) {
	labtest.Main(m, "../bin", map[string]func(){"worker": serve})
}

func serve() {
	if err := wire.Serve(context.Background(), os.Stdin, os.Stdout, catalog.Constructor); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(255)
	}
}

// Every planted bug is caught, every twin is clean, and the saved histories say
// the same once more.
func TestVerify(t *testing.T) {
	o := experiment.Defaults()
	o.Out = t.TempDir()
	rows := Play(t.Context(), Config{
		Pairs: Pairs(), Options: o, Seed: 1, Seeds: 1, Parallel: 3,
		Machine: experiment.Machine{
			Worker: func(*experiment.Options) *exec.Cmd { return exec.Command("/proc/self/exe", "worker") },
			Log:    slog.New(slog.DiscardHandler),
		},
	})
	for _, r := range rows {
		t.Run(r.Client, func(t *testing.T) {
			if r.Outcome != Caught {
				t.Errorf("%s\nbroken: %+v\nhonest: %+v", r.Outcome, r.Broken[0], r.Honest[0])
			}
			for _, run := range []Run{r.Broken[0], r.Honest[0]} {
				if run.Skipped == "" {
					again(t, o.Out, run)
				}
			}
			t.Logf("%s after %v: %s", r.Outcome, r.First.Round(time.Millisecond), r.Broken[0].Message)
		})
	}
}

// again judges a saved history as `lockcheck check` does.
func again(t *testing.T, out string, run Run) {
	t.Helper()
	if rel, err := filepath.Rel(filepath.Join(out, run.Client), run.Dir); err != nil || !filepath.IsLocal(rel) {
		t.Errorf("the history of %s is in %s", run.Client, run.Dir)
	}
	f, err := os.Open(filepath.Join(run.Dir, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ops, rd, err := history.ReadAll(f, f.Name())
	if err != nil {
		t.Fatal(err)
	}
	res := checker.Check(t.Context(), ops, rd.Header)
	var second Run
	second.look(&res, nil)
	if res.Verdict.String() != run.Verdict || !reflect.DeepEqual(second.Kinds, run.Kinds) {
		t.Errorf("%s was %s with %v, and is %v with %v when it is judged again", run.Client, run.Verdict, run.Kinds, res.Verdict, second.Kinds)
	}
}

// Each broken lock has its pair, and each pair a twin that is not broken.
func TestPairs(t *testing.T) {
	var planted []string
	for _, e := range catalog.Faulty {
		planted = append(planted, e.Name)
	}
	for _, p := range Pairs() {
		i := slices.Index(planted, p.Client)
		if i < 0 {
			t.Errorf("%s is no broken lock, or has two pairs", p.Client)
			continue
		}
		planted = slices.Delete(planted, i, i+1)
		if !slices.ContainsFunc(catalog.All, func(e catalog.Entry) bool { return e.Name == p.Twin && e.On(p.Backend) }) {
			t.Errorf("%s has no honest twin %s on %s", p.Client, p.Twin, p.Backend)
		}
		s, err := scenario.Find(p.Scenario)
		if err != nil {
			t.Error(err)
		}
		for _, f := range p.Expect {
			if !slices.Contains(s.Require, f.Property) {
				t.Errorf("%s: scenario %s does not require %s", p.Client, s.Name, f.Property)
			}
		}
	}
	if len(planted) > 0 {
		t.Errorf("without a pair: %v", planted)
	}
}

// The conclusion of a row, and what counts against whom.
func TestConclude(t *testing.T) {
	found, missed := Run{First: time.Second}, Run{Missing: []Finding{stuck}}
	for _, c := range []struct {
		name           string
		broken, honest []Run
		outcome        string
		first          time.Duration
	}{
		{"caught", []Run{found}, []Run{{}}, Caught, time.Second},
		{"median", []Run{{First: 3}, {First: 1}, {First: 2}}, []Run{{}, {}, {}}, Caught, 2},
		{"median of two", []Run{{First: 2}, {First: 4}}, []Run{{}, {}}, Caught, 3},
		{"missed once", []Run{found, missed}, []Run{{}, {}}, Missed, time.Second},
		{"twin unclean", []Run{found}, []Run{{Message: "lease: overlap"}}, FalseAlarm, time.Second},
		{"both", []Run{missed}, []Run{{Message: "lease: overlap"}}, FalseAlarm, 0},
		{"skipped", []Run{{Skipped: "no java"}}, []Run{{Skipped: "no java"}}, Skipped, 0},
		{"missed beats skipped", []Run{missed}, []Run{{Skipped: "interrupted"}}, Missed, 0},
	} {
		r := Row{Broken: c.broken, Honest: c.honest}
		r.conclude()
		if r.Outcome != c.outcome || r.First != c.first {
			t.Errorf("%s: %s after %v", c.name, r.Outcome, r.First)
		}
	}
}

// A finding has to come in time, of the right kind, and to be required; a twin's
// overrun is no alarm unless the story requires exclusion.
func TestLook(t *testing.T) {
	results := func(property, kind string, at time.Duration, require ...string) *checker.Results {
		res := checker.Unjudged(context.Canceled)
		for _, p := range checker.Properties {
			res.Properties[p] = &checker.Result{Verdict: checker.Valid}
		}
		res.Properties[property] = &checker.Result{Verdict: checker.Invalid, Anomalies: []checker.Anomaly{{Kind: kind, Time: at.Nanoseconds()}}}
		res.Reasons = nil
		res.Require(require)
		return &res
	}
	for _, c := range []struct {
		name  string
		res   *checker.Results
		found bool
		clean bool
	}{
		{"found", results(checker.Lease, "overlap", time.Second, checker.Lease), true, false},
		{"too late", results(checker.Lease, "overlap", time.Minute, checker.Lease), false, false},
		{"another kind", results(checker.Lease, "held-after-loss", time.Second, checker.Lease), false, false},
		{"not required", results(checker.Lease, "overlap", time.Second, checker.Data), false, false},
		{"overrun", results(checker.Exclusion, "overlap", time.Second, checker.Lease), false, true},
		{"overrun, required", results(checker.Exclusion, "overlap", time.Second, checker.Exclusion), false, false},
	} {
		var run Run
		run.look(c.res, []Finding{overlap})
		if (len(run.Missing) == 0) != c.found || (unclean(c.res) == "") != c.clean {
			t.Errorf("%s: missing %v, unclean %q", c.name, run.Missing, unclean(c.res))
		}
	}
}
