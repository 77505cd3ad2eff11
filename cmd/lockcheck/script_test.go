package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/history"
)

// TestMain is lockcheck itself when a script calls it, also in the lab's stages.
func TestMain(m *testing.M) {
	if code, done := local.Stage(); done {
		os.Exit(code)
	}
	testscript.Main(m, map[string]func(){"lockcheck": main})
}

// The command line on real servers: each script in testdata/script is a
// session of a user.
func TestScripts(t *testing.T) {
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	golden, err := filepath.Abs("../../checker/testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", e.Getenv("PATH")+string(os.PathListSeparator)+bin)
			e.Setenv("GOLDEN", golden)
			e.Setenv("NO_COLOR", "1")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"gcpause": gcPauseStory,
			"files":   files,
			"guarded": guarded,
			"hidden":  hidden,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// exits N COMMAND... runs a command and wants exactly that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		code = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if code != args[0] {
		ts.Fatalf("exit %s, want %s", code, args[0])
	}
}

// files DIR NAME... wants each of the files to be in the one run directory
// below DIR, and not empty.
func files(ts *testscript.TestScript, neg bool, args []string) {
	dir := runDir(ts, args[0])
	for _, name := range args[1:] {
		info, err := os.Stat(filepath.Join(dir, name))
		ts.Check(err)
		if info.Size() == 0 {
			ts.Fatalf("%s is empty", name)
		}
	}
}

// runDir finds the run directory that is latest below an out folder.
func runDir(ts *testscript.TestScript, out string) string {
	dir, err := filepath.EvalSymlinks(filepath.Join(ts.MkAbs(out), "latest"))
	ts.Check(err)
	return dir
}

// gcPauseStory OUT FENCE reads the history of a gc-pause run as somebody would
// who knows only the event format: the late write was invoked while its process
// was proved to be stopped, for longer than the TTL, and reached the store
// after another grant's write. FENCE is applied or refused.
func gcPauseStory(ts *testscript.TestScript, neg bool, args []string) {
	b, err := os.ReadFile(filepath.Join(runDir(ts, args[0]), "history.jsonl"))
	ts.Check(err)
	ops, rd, err := history.ReadAll(bytes.NewReader(b), "history.jsonl")
	ts.Check(err)
	var done, heal int64
	var victim history.Process
	var late *history.Op
	writesOfOthers := 0
	for i := range ops {
		o := &ops[i]
		if o.Process == history.Nemesis {
			f, _ := history.FaultOf(o)
			switch f.Phase {
			case history.Done:
				done, victim = o.Time, f.Processes()[0]
				if f.Evidence["state"] != "T" {
					ts.Fatalf("evidence %v", f.Evidence)
				}
			case history.HealAsked:
				heal = o.Time
			}
		}
		if o.F == history.Write && o.Type == history.Invoke && o.Process == victim && done > 0 && heal == 0 && late == nil {
			late = o
		}
		if o.F != history.Write || o.Process != history.Store || late == nil {
			continue
		}
		if o.Grant != late.Grant {
			writesOfOthers++
			continue
		}
		if want := args[1] == "applied"; (o.Type == history.OK) != want {
			ts.Fatalf("the late write ended as %v in the store", o.Type)
		}
		if writesOfOthers != 2 || heal == 0 || heal-done <= rd.Header.TTL {
			ts.Fatalf("%d writes of the other, paused for %d ns with a TTL of %d ns", writesOfOthers, heal-done, rd.Header.TTL)
		}
		return
	}
	ts.Fatalf("no late write in the store")
}

// A run's own results and a later check of its history must agree, for every
// golden history that is well-formed: through the command line.
func TestCheckGolden(t *testing.T) {
	all, err := filepath.Glob("../../checker/testdata/*.jsonl")
	if err != nil || len(all) == 0 {
		t.Fatal(err)
	}
	for _, f := range all {
		var out, errw bytes.Buffer
		code := run(t.Context(), []string{"check", "--json", f}, strings.NewReader(""), &out, &errw)
		var r struct {
			Verdict string
			Error   string
		}
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v\n%s", f, err, out.Bytes())
		}
		want := map[string]int{"valid": 0, "invalid": 1, "unknown": 2, "": 254}[r.Verdict]
		if code != want || (r.Verdict == "") != (r.Error != "") {
			t.Errorf("%s: exit %d with verdict %q, error %q", f, code, r.Verdict, r.Error)
		}
		if malformed := strings.HasPrefix(filepath.Base(f), "malformed") && !strings.Contains(f, ".twin"); malformed != (code == 254) {
			t.Errorf("%s: exit %d: %s", f, code, r.Error)
		}
	}
}

func TestWorse(t *testing.T) {
	order := []int{exitValid, exitUnknown, exitUsage, exitFailed, exitInvalid}
	for i, a := range order {
		for j, b := range order {
			if got := worse(a, b); got != order[max(i, j)] {
				t.Errorf("worse(%d, %d) = %d", a, b, got)
			}
		}
	}
	if !slices.IsSortedFunc(order, func(a, b int) int {
		if worse(a, b) == b {
			return -1
		}
		return 1
	}) {
		t.Error(fmt.Sprint(order))
	}
}
