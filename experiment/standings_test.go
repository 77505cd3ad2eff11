package experiment

import (
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
)

// In an ordinary run the node of a contender that died is named, and whose it is:
// nothing but the end of the run asks the servers.
func TestStuckNamesTheNode(t *testing.T) {
	t.Parallel()
	need(t, cluster.ZooKeeper)
	o := options(t)
	o.Backend, o.Client, o.Workers, o.TTL = cluster.ZooKeeper, "faulty/zk-persistent", 2, 600*time.Millisecond
	o.Hold = 300 * time.Millisecond // somebody always holds it
	for o.Duration = 4 * time.Second; ; o.Duration += 2 * time.Second {
		o := o
		o.Plan = []nemesis.Step{{At: 500 * time.Millisecond, Fault: "kill", Target: nemesis.Holder}}
		res := runSettled(t, o)
		for _, an := range res.Properties[checker.Progress].Anomalies {
			if an.Kind != "stuck" || !strings.Contains(an.Message, "on the servers /lockcheck/"+an.Key+"/") {
				t.Fatalf("%+v", an)
			}
			if !strings.Contains(an.Message, "(no session) stands in everybody's way: it is that of grant ") || !strings.Contains(an.Message, ", until ") {
				t.Errorf("it is not said whose the node is: %s", an.Message)
			}
			return
		}
		if o.Duration > longestForeign {
			t.Fatalf("nothing got stuck: %v", res.Exposure)
		}
	}
}

// Where a lock is that is held for long is known of every lock of the catalog, and
// whose it is of those that have the node's or key's number for a token.
func TestStandings(t *testing.T) {
	t.Parallel()
	for client, c := range map[string]struct {
		name    string // what the node or key that has the lock begins with
		numbers bool   // the token is the node's or key's
	}{
		"redis/set-nx":        {"lockcheck/lock/orders on n1", false},
		"redlock/redlock":     {"lockcheck/lock/orders on n", false},
		"zookeeper/ephemeral": {"/lockcheck/orders/", true},
		"etcd/lease":          {"lockcheck/orders", true},
		"etcd/queue":          {"lockcheck-queue/orders/", true},
		"redsync":             {"lockcheck/lock/orders on n", false},
		"redislock":           {"lockcheck/lock/orders on n1", false},
		"zk-lock":             {"/lockcheck/orders/", false},
		"etcd-mutex":          {"lockcheck-queue/orders/", true},
		"redis-py":            {"orders on n1", false},
		"kazoo":               {"/kazoo/orders/", true},
		"etcd3-py":            {"/locks/orders", false},
		"curator-mutex":       {"/curator/orders/", true},
		"curator-semaphore":   {"/curator/orders/leases/", true},
		"article/redis":       {"orders on n1", false},
		"article/redlock":     {"orders on n", false},
		"article/zookeeper":   {"/article/orders/", false},
		"article/etcd":        {"lockcheck/orders", true},
	} {
		t.Run(client, func(t *testing.T) {
			if !*long && client != "etcd-mutex" && client != "etcd3-py" {
				t.Skip("two of those that are not lockcheck's own; all with -long")
			}
			t.Parallel()
			e, err := catalog.Find(client)
			if err != nil {
				t.Fatal(err)
			}
			need(t, e.Backends[0])
			if _, foreign := catalog.Foreigner(client); foreign {
				needForeign(t, client)
			}
			o := options(t)
			o.Backend, o.Client, o.Workers, o.TTL, o.Hold = e.Backends[0], client, 2, 20*time.Second, 5*time.Second
			for o.Duration = 5 * time.Second; o.Duration < longestForeign; o.Duration += time.Second { // at first in the middle of a section
				if stands(t, o, c.name, c.numbers) {
					return
				}
			}
			t.Error("nothing was said of what stands for the lock")
		})
	}
}

// stands carries out a run and reports whether what stands for its lock was asked.
func stands(t *testing.T, o Options, name string, numbers bool) bool {
	t.Helper()
	res := runSettled(t, o)
	token := map[string]uint64{}
	for _, op := range readHistory(t, res.Dir) {
		if op.F == history.Acquire && op.Type == history.OK {
			token[op.Key] = op.Token.V
		}
		for key, ss := range history.StandingsOf(&op) {
			if !strings.HasPrefix(ss[0].Name, name) {
				t.Errorf("%s of %s has the lock, want %s...", ss[0].Name, ss[0].Owner, name)
			}
			if numbers && ss[0].Token != token[key] {
				t.Errorf("%s has the number %d, the grant the token %d", ss[0].Name, ss[0].Token, token[key])
			}
			return true
		}
	}
	return false
}
