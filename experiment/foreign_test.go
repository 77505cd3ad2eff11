package experiment

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/history"
)

// A lock in another language that is not there does not pass.
func needForeign(t *testing.T, client string) {
	t.Helper()
	p, ok := catalog.Foreigner(client)
	if !ok {
		t.Fatalf("%s is no program", client)
	}
	if err := p.Missing(); err != nil {
		t.Fatalf("%s cannot be tested: %v", client, err)
	}
}

var long = flag.Bool("long", false, "every lock in place of one of each kind, as make soak has it")

// longestForeign is how long a lock may take to do enough for a verdict.
const longestForeign = 48 * time.Second

// Without faults every lock in another language is clean, but for those of the
// article that are wrong by themselves.
func TestForeignLocks(t *testing.T) {
	t.Parallel()
	wrong := map[string]string{
		"article/zookeeper":       "token-reused",
		"article/etcd-as-printed": "stuck",
	}
	for _, e := range catalog.Foreign {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			needForeign(t, e.Name)
			need(t, e.Backends[0])
			o := options(t)
			o.Backend, o.Client, o.Workers, o.Duration = e.Backends[0], e.Name, 2, 3*time.Second
			if o.Backend == cluster.ZooKeeper {
				o.TTL = 4 * time.Second // a virtual machine that just started needs it on a busy machine
			}
			if wrong[e.Name] == "stuck" {
				o.Duration = 6 * time.Second // for four TTLs without a grant
			}
			res := runSettled(t, o)
			// A busy machine may get too little done for a verdict; that is no pass.
			for o.Duration < longestForeign && res.Verdict == checker.Unknown && wrong[e.Name] == "" {
				o.Duration *= 2
				res = runSettled(t, o)
			}
			if kind := wrong[e.Name]; kind != "" {
				if !found(&res.Results, kind) {
					t.Errorf("%v without %s\n%v", res.Verdict, kind, res.Exposure)
				}
				return
			}
			if res.Verdict != checker.Valid {
				t.Errorf("%v, because of %v\n%v\n%s", res.Verdict, res.Reasons, res.Exposure, nodeLogs(t, res.Dir))
			}
		})
	}
}

func found(res *checker.Results, kind string) bool {
	for _, p := range res.Properties {
		if slices.ContainsFunc(p.Anomalies, func(a checker.Anomaly) bool { return a.Kind == kind }) {
			return true
		}
	}
	return false
}

// The pause stops the interpreter or the virtual machine with its threads, and
// theory holds for its lock as for any other.
func TestForeignPause(t *testing.T) {
	t.Parallel()
	for client, c := range map[string]struct {
		backend string
		store   fencedstore.Policy
	}{
		"redis-py":          {cluster.Redis, fencedstore.None},
		"kazoo":             {cluster.ZooKeeper, fencedstore.Monotonic},
		"curator-mutex":     {cluster.ZooKeeper, fencedstore.Monotonic},
		"curator-semaphore": {cluster.ZooKeeper, fencedstore.None},
		"article/etcd":      {cluster.Etcd, fencedstore.None},
	} {
		t.Run(client, func(t *testing.T) {
			if !*long && client != "redis-py" && client != "curator-mutex" {
				t.Skip("one lock of each language is paused; all with -long")
			}
			t.Parallel()
			needForeign(t, client)
			need(t, c.backend)
			o := options(t)
			o.Scenario, o.Backend, o.Client, o.Store = "gc-pause", c.backend, client, c.store
			res := played(t, o)
			if res.Theory != AsExpected {
				t.Errorf("%s\n%v\n%s", res.Theory, res.Exposure, nodeLogs(t, res.Dir))
			}
			text, err := os.ReadFile(filepath.Join(res.Dir, "history.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), `"state":"T"`) {
				t.Error("the history has no evidence of a stopped process")
			}
		})
	}
}

// The answer to a release is lost. Some libraries send it again and take "there is
// none" for success; the history says that nobody knows, and what the listener heard.
func TestForeignRelease(t *testing.T) {
	t.Parallel()
	for client, backend := range map[string]string{
		"redis-py": cluster.Redis, "kazoo": cluster.ZooKeeper, "etcd3-py": cluster.Etcd, "curator-mutex": cluster.ZooKeeper,
	} {
		t.Run(client, func(t *testing.T) {
			if !*long && client != "redis-py" && client != "kazoo" {
				t.Skip("two locks; all with -long")
			}
			t.Parallel()
			needForeign(t, client)
			need(t, backend)
			o := options(t)
			o.Scenario, o.Backend, o.Client, o.TTL = "cut-releasing", backend, client, 4*time.Second
			res := played(t, o)
			if res.Verdict == checker.Invalid {
				t.Errorf("%v", res.Properties)
			}
			last, told := history.Op{}, false
			for _, op := range readHistory(t, res.Dir) {
				if op.F == history.Release && op.Process == 0 {
					last = op
				}
				told = told || op.F == history.Suspended && op.Process == 0
			}
			if last.Type != history.Info {
				t.Errorf("the release ended as %v: %s", last.Type, last.Error)
			}
			if backend == cluster.ZooKeeper && !told {
				t.Error("the history does not say that the connection was in doubt")
			}
		})
	}
}
