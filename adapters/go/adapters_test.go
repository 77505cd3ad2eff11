package main

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/labtest"
)

// TestMain runs the tests inside the lab, and this binary as the workers.
func TestMain(m *testing.M) {
	labtest.Main(m, "../../bin", map[string]func(){"worker": main})
}

// run carries an experiment out with a program that speaks the protocol: this one,
// unless another is named.
func run(t *testing.T, o experiment.Options, program ...string) experiment.Result {
	t.Helper()
	if _, err := local.Find(o.Backend); err != nil {
		t.Fatalf("%s cannot be tested here: %v", o.Backend, err)
	}
	if len(program) == 0 {
		program = []string{"/proc/self/exe", "worker"}
	}
	o.ClientCmd, o.Out, o.Seed = program, t.TempDir(), 1
	if err := o.Settle(); err != nil {
		t.Fatal(err)
	}
	res, err := experiment.Run(t.Context(), o, experiment.Machine{
		Worker: func(*experiment.Options) *exec.Cmd { return exec.Command("/proc/self/exe", "worker") },
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func on(backend, client string) experiment.Options {
	o := experiment.Defaults()
	o.Backend, o.Client, o.Workers, o.Duration = backend, client, 3, time.Second
	return o
}

// Each library is clean without faults, on every backend that it is listed for.
func TestClean(t *testing.T) {
	for _, e := range catalog.Libraries {
		backends := e.Backends
		if strings.Contains(e.Name, "/") { // a variant
			backends = backends[:1]
		}
		for _, b := range backends {
			t.Run(e.Name+" on "+b, func(t *testing.T) {
				res := run(t, on(b, e.Name))
				if res.Verdict != checker.Valid || res.Exposure.ReleasesOK == 0 {
					t.Errorf("%v %v", res.Verdict, res.Reasons)
				}
				for p, r := range res.Properties {
					for _, a := range r.Anomalies {
						t.Errorf("%s: %s: %s", p, a.Kind, a.Message)
					}
				}
				if tokens := res.Properties[checker.Fencing].Verdict != checker.NotApplicable; tokens != e.Tokens {
					t.Errorf("hands out tokens: %v; the catalog says %v", tokens, e.Tokens)
				}
			})
		}
	}
}

// The catalog and the adapters name the same locks.
func TestNames(t *testing.T) {
	if len(adapters) != len(catalog.Libraries) {
		t.Errorf("%d adapters, %d in the catalog", len(adapters), len(catalog.Libraries))
	}
	for _, e := range catalog.Libraries {
		if _, err := find(e.Name); err != nil || e.Program() == "" {
			t.Error(e.Name, err)
		}
	}
	if _, err := find("nothing"); err == nil {
		t.Error("an adapter for nothing")
	}
}

// A bug that is put into a local checkout of a library, which a replace line puts
// in its place, is caught; the checkout as it is comes out clean. This is what
// docs/validate-a-library.md describes.
func TestReplace(t *testing.T) {
	const (
		honest = `if val == ARGV[1] then
		return redis.call("DEL", KEYS[1])`
		broken = `if val then
		return redis.call("DEL", KEYS[1])`
	)
	dir := checkout(t, "github.com/go-redsync/redsync/v4")
	o := on("redis", "redsync")
	o.Scenario = "unsafe-unlock"
	if res := run(t, o, build(t, dir)); res.Verdict != checker.Valid {
		t.Errorf("the checkout as it is: %v %v", res.Verdict, res.Reasons)
	}
	script := filepath.Join(dir, "scripts.go")
	b, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	// The hash belongs to the script; without one that Redis knows the text is sent.
	changed := strings.NewReplacer(honest, broken, "e950836ed1e694540c503ef9972b8de518044d3b", strings.Repeat("0", 40)).Replace(string(b))
	if !strings.Contains(changed, broken) {
		t.Fatal("redsync's script is another one now")
	}
	if err := os.WriteFile(script, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	res := run(t, o, build(t, dir))
	found := false
	for _, a := range res.Properties[checker.Release].Anomalies {
		found = found || a.Kind == "released-other"
	}
	if !found || res.Verdict != checker.Invalid {
		t.Errorf("an unlock that compares nothing was not caught: %v %v", res.Verdict, res.Reasons)
	}
}

// checkout copies a module out of the module cache.
func checkout(t *testing.T, module string) string {
	t.Helper()
	from, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("find %s: %v", module, err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(strings.TrimSpace(string(from)))); err != nil {
		t.Fatal(err)
	}
	// The cache is read-only, and so is its copy.
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil {
			err = os.Chmod(path, 0o755)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// build builds the adapters with redsync replaced, from a go.mod of its own.
func build(t *testing.T, redsync string) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	mod, program := filepath.Join(dir, "go.mod"), filepath.Join(dir, "adapters")
	for _, f := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"mod", "edit", "-replace=github.com/go-redsync/redsync/v4=" + redsync, "-replace=github.com/lockcheck/lockcheck=" + root, mod},
		{"build", "-modfile=" + mod, "-o", program, "."},
	} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	return program
}

// What an error proves: nothing, once a command may have been sent twice.
func TestRefused(t *testing.T) {
	lost := errors.New("read: connection reset")
	held := errors.New("held, says the library")
	for _, c := range []struct {
		name string
		err  error
		once bool
		want error
	}{
		{"no error", nil, true, nil},
		{"refused", held, true, clients.ErrHeld},
		{"refused, perhaps the second time", held, false, nil},
		{"lost", lost, true, nil},
	} {
		got := refused(c.err, c.once, held, clients.ErrHeld)
		if (got == nil) != (c.err == nil) || clients.Definite(got) != (c.want != nil) || c.want != nil && !errors.Is(got, c.want) {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// The answer to a release is lost. go-redis sends the release again without a word,
// and is told that there is nothing: what the history says is that nobody knows.
func TestRetryIsSeen(t *testing.T) {
	for _, c := range []struct{ backend, client, want string }{
		{cluster.Redis, "redsync", "lock already taken"},
		{cluster.Redis, "redislock", "perhaps sent more than once"},
		{cluster.Etcd, "etcd-mutex", ""},
	} {
		t.Run(c.client, func(t *testing.T) {
			o := on(c.backend, c.client)
			o.Scenario, o.TTL = "cut-releasing", 2*time.Second
			res := run(t, o)
			if res.Verdict == checker.Invalid {
				t.Errorf("%v", res.Properties)
			}
			f, err := os.Open(filepath.Join(res.Dir, "history.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			ops, _, err := history.ReadAll(f, f.Name())
			if err != nil {
				t.Fatal(err)
			}
			last := history.Op{}
			for _, o := range ops {
				if o.F == history.Release && o.Process == 0 {
					last = o
				}
			}
			if last.Type != history.Info || !strings.Contains(last.Error, c.want) {
				t.Errorf("the release ended as %v: %s", last.Type, last.Error)
			}
		})
	}
}
