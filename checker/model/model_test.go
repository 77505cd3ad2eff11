package model

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

func judge(t testing.TB, model, text string) Result {
	t.Helper()
	s, err := history.Open(strings.NewReader(text), "h")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	j := New(model, Options{})
	for {
		var o history.Op
		switch err := s.Read(&o); {
		case errors.Is(err, io.EOF):
			return j.Finish(context.Background())
		case err != nil:
			t.Fatal(err)
		}
		j.Add(&o)
	}
}

// corpus gives the folder of histories that others recorded, or skips the test.
func corpus(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		c := filepath.Join(dir, "shared", "corpus")
		if _, err := os.Stat(c); err == nil {
			return c
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		break
	}
	t.Skip("the corpus is not there")
	return ""
}

// The verdict on each file of the corpus is the known one.
func TestCorpus(t *testing.T) {
	root := corpus(t)
	tables, err := filepath.Glob(filepath.Join(root, "*", "expected.tsv"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	judged := 0
	for _, table := range tables {
		lines, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(lines)) {
			name, want, ok := strings.Cut(strings.TrimSpace(line), "\t")
			if !ok {
				continue
			}
			b, err := os.ReadFile(filepath.Join(filepath.Dir(table), name))
			if err != nil {
				t.Fatal(err)
			}
			r := judge(t, CASRegister, string(b))
			if r.Verdict.String() != want || r.Checked == 0 {
				t.Errorf("%s: %v (%s), want %s; %+v", name, r.Verdict, r.Reason, want, r.Keys)
			}
			if r.Verdict == checker.Invalid {
				illegalPage(t, r)
			}
			judged++
		}
	}
	if judged < 84 {
		t.Errorf("only %d files", judged)
	}
}

// The history that the design calls the lesson: no mutex, but leases explain it.
func TestLeasesExplainEtcd(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(corpus(t), "knossos-mutex", "etcd.edn"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{Mutex, OwnerMutex} {
		r := judge(t, m, string(b))
		if r.Verdict != checker.Invalid || r.Leases != checker.Valid {
			t.Errorf("%s: %v, leases %v: %+v", m, r.Verdict, r.Leases, r.Keys)
		}
		if want := "2 releases failed and say (events #1120, #1134)"; !strings.Contains(r.Explanation(), want) {
			t.Errorf("%s: %q", m, r.Explanation())
		}
		t.Log(r.Keys[0].Reason, r.Explanation())
	}
}
