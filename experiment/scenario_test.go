package experiment

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/scenario"
)

// Every story comes out as theory says, on every backend that it can be told on,
// and so does its twin.
func TestScenarios(t *testing.T) {
	t.Parallel()
	none, fence := fencedstore.None, fencedstore.Monotonic
	for _, c := range []struct {
		scenario, backend, client string
		store                     fencedstore.Policy
		persistence               string
		cause                     string // of the first overlap of leases
	}{
		{"failover", cluster.Sentinel, "redis/set-nx", fence, "none", "server-kill"},
		{"failover", cluster.Sentinel, "redis/set-nx-incr", fence, "none", "server-kill"},
		{"failover", cluster.Sentinel, "redis/set-nx-wait", none, "none", ""},
		{"restart-empty", cluster.Redis, "redis/set-nx", fence, "none", "server-kill"},
		{"restart-empty", cluster.Redis, "redis/set-nx-incr", fence, "none", "server-kill"},
		{"restart-empty", cluster.Redis, "redis/set-nx-incr", none, "aof", ""},
		{"restart-empty", cluster.Redlock, "redlock/redlock", fence, "none", "server-kill"},
		{"restart-empty", cluster.Redlock, "redlock/redlock", fence, "aof", ""},
		{"late-write", cluster.Redis, "redis/set-nx", none, "none", ""},
		{"late-write", cluster.Redis, "redis/set-nx-incr", fence, "none", ""},
		{"late-write", cluster.Redlock, "redlock/redlock", fence, "none", ""},
		{"late-write", cluster.Etcd, "etcd/lease", fence, "none", ""},
		{"late-write", cluster.ZooKeeper, "zookeeper/ephemeral", none, "none", ""},
		{"minority-leader", cluster.Etcd, "etcd/lease", fence, "none", ""},
		{"minority-leader", cluster.ZooKeeper, "zookeeper/ephemeral", none, "none", ""},
		{"slow-redlock", cluster.Redlock, "redlock/redlock", none, "none", ""},
		{"clock-jump", cluster.Redis, "redis/set-nx", fence, "none", "clock-jump"},
		{"clock-jump", cluster.Redis, "redis/set-nx-incr", fence, "none", "clock-jump"},
		{"clock-jump", cluster.Redis, "redis/set-nx-incr", none, "none", "clock-jump"},
		{"clock-jump", cluster.Sentinel, "redis/set-nx", fence, "none", "clock-jump"},
		{"clock-jump", cluster.Redlock, "redlock/redlock", fence, "none", "clock-jump"},
		{"clock-jump", cluster.Etcd, "etcd/lease", fence, "none", ""},
		{"clock-jump", cluster.ZooKeeper, "zookeeper/ephemeral", fence, "none", ""},
		{"clock-back", cluster.Redis, "redis/set-nx", fence, "none", ""},
		{"clock-back", cluster.Sentinel, "redis/set-nx-incr", fence, "none", ""},
		{"clock-back", cluster.Redlock, "redlock/redlock", fence, "none", ""},
		{"clock-back", cluster.Etcd, "etcd/lease", fence, "none", ""},
		{"clock-back", cluster.ZooKeeper, "zookeeper/ephemeral", fence, "none", ""},
		{"suspended", cluster.ZooKeeper, "zookeeper/ephemeral", fence, "none", ""},
	} {
		t.Run(c.scenario+"/"+c.backend+"/"+c.client+"/"+string(c.store)+"/"+c.persistence, func(t *testing.T) {
			t.Parallel()
			need(t, c.backend)
			o := options(t)
			o.Scenario, o.Backend, o.Client, o.Store, o.Persistence = c.scenario, c.backend, c.client, c.store, c.persistence
			res := played(t, o)
			if res.Theory != AsExpected {
				t.Errorf("%s\n%v\n%s", res.Theory, res.Exposure, nodeLogs(t, res.Dir))
			}
			if c.cause != "" {
				cause(t, &res, c.cause)
			}
			if c.scenario == "suspended" {
				onlyTheOneThatWentOn(t, &res)
			}
			t.Logf("%v after %v", res.Verdict, res.Lasted)
		})
	}
}

// played tells a story, and tells it again if a starved machine kept it from its
// end: then nothing can be said of the lock, which is no pass.
func played(t *testing.T, o Options) Result {
	t.Helper()
	for try := 1; ; try++ {
		res := runSettled(t, o)
		if try == 3 || !strings.Contains(res.Theory, "could not be played to its end") {
			return res
		}
		t.Logf("try %d: %s", try, res.Theory)
	}
}

// nodeLogs is what the servers said last.
func nodeLogs(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "nodes", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s:\n%s\n", filepath.Base(f), text[max(0, len(text)-3000):])
	}
	return b.String()
}

func runSettled(t *testing.T, o Options) Result {
	t.Helper()
	if err := o.Settle(); err != nil {
		t.Fatal(err)
	}
	res, err := Run(t.Context(), o, testMachine())
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// cause wants the first overlap of leases to name a fault.
func cause(t *testing.T, res *Result, fault string) {
	t.Helper()
	ops := readHistory(t, res.Dir)
	for _, a := range res.Properties[checker.Lease].Anomalies {
		for _, i := range a.Faults {
			if ops[i].F == fault {
				return
			}
		}
	}
	t.Errorf("%s is not named as the cause: %v", fault, res.Properties[checker.Lease].Anomalies)
}

// onlyTheOneThatWentOn wants stale writes of process 0, which went on while it
// was suspended, and none of process 1, which paused.
func onlyTheOneThatWentOn(t *testing.T, res *Result) {
	t.Helper()
	ops := readHistory(t, res.Dir)
	newest := map[string]uint64{} // token of each key that has been granted
	stale := map[history.Process]int{}
	for i := range ops {
		o := &ops[i]
		switch {
		case o.F == history.Acquire && o.Type == history.OK:
			newest[o.Key] = max(newest[o.Key], o.Token.V)
		case o.F == history.Write && o.Type == history.Invoke && o.Token.V < newest[o.Key]:
			stale[o.Process]++
		}
	}
	if stale[0] < 3 || stale[1] > 0 {
		t.Errorf("stale writes by process: %v", stale)
	}
}

// A story that cannot be told is refused before anything starts.
func TestScenarioRefused(t *testing.T) {
	for _, s := range scenario.All {
		o := options(t)
		o.Scenario, o.Backend = s.Name, cluster.Redis
		err := o.Settle()
		if want := s.Backends == nil || slices.Contains(s.Backends, cluster.Redis); (err == nil) != want {
			t.Errorf("%s on redis: %v", s.Name, err)
		}
	}
	o := options(t)
	o.Scenario, o.Backend = "failover", cluster.Sentinel
	if err := o.Settle(); err != nil {
		t.Error(err)
	}
	if err := o.Possible(false); err == nil {
		t.Error("failover cuts nodes off without namespaces")
	}
}
