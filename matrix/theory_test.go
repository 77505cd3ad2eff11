package matrix

import (
	"slices"
	"testing"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/nemesis"
)

// Theory, sentence by sentence.
func TestTheory(t *testing.T) {
	quorum := []string{cluster.ZooKeeper, cluster.Etcd}
	all := cluster.Backends
	redises := []string{cluster.Redis, cluster.Sentinel, cluster.Redlock}
	for _, c := range []struct {
		name     string
		backends []string
		client   string
		fault    string
		stores   []string
		property string
		kind     string
		may      bool
	}{
		{"a pause gives overruns everywhere", all, "", "pause", nil, checker.Exclusion, "overlap/overrun", true},
		{"and never an overlap within the lease", all, "", "pause", nil, checker.Exclusion, "overlap/in-lease", false},
		{"a pause breaks no lease", all, "", "pause", nil, checker.Lease, "overlap", false},
		{"without a fence a late write harms the data", all, "", "pause", []string{"none"}, checker.Data, "stale-write", true},
		{"a fence saves the data of a lock with tokens", quorum, "", "pause", []string{"monotonic"}, checker.Data, "stale-write", false},
		{"no fence saves a lock without tokens", redises, "", "pause", []string{"monotonic"}, checker.Data, "stale-write", true},
		{"data lost breaks the lease on Redis", redises, "", "server-kill:lose", nil, checker.Lease, "overlap", true},
		{"and takes the counter back", []string{cluster.Redis, cluster.Sentinel}, "redis/set-nx-incr", "server-kill:lose", nil, checker.Fencing, "token-not-increasing", true},
		{"so that no fence helps", []string{cluster.Redis}, "redis/set-nx-incr", "server-kill", []string{"monotonic"}, checker.Data, "stale-write", true},
		{"one server without data harms no quorum", quorum, "", "server-kill:lose", nil, checker.Lease, "overlap", false},
		{"a majority without data does", quorum, "", "server-kill:lose@majority", nil, checker.Lease, "overlap", true},
		{"and its tokens go back", quorum, "", "server-kill:lose@all", nil, checker.Fencing, "token-not-increasing", true},
		{"a majority that keeps its data does not", quorum, "", "server-kill:keep@majority", nil, checker.Lease, "overlap", false},
		{"partitions harm no quorum", quorum, "", "partition", []string{"monotonic"}, checker.Fencing, "stale-token-applied", false},
		{"nor failovers", quorum, "", "failover", nil, checker.Lease, "overlap", false},
		{"a failover breaks asynchronous replication", []string{cluster.Sentinel}, "", "failover", nil, checker.Lease, "overlap", true},
		{"a failover leaves tokens behind", []string{cluster.Sentinel}, "redis/set-nx-incr", "failover", nil, checker.Fencing, "token-reused", true},
		{"nothing breaks where nothing is broken", all, "", NoFault, nil, checker.Exclusion, "overlap/overrun", false},
		{"a killed holder writes nothing", all, "", "kill", []string{"none"}, checker.Data, "stale-write", false},
		{"a link that holds bytes back delivers them late", quorum, "", "late", []string{"monotonic"}, checker.Data, "write-outside-hold", true},
		{"several faults do what each of them does", quorum, "", "pause+server-kill:lose@majority", nil, checker.Lease, "overlap", true},
	} {
		stores := c.stores
		if stores == nil {
			stores = []string{"none", "monotonic"}
		}
		s := spec(t, "pause")
		for _, b := range c.backends {
			client := c.client
			if client == "" {
				e, err := catalog.Default(b)
				if err != nil {
					t.Fatal(err)
				}
				client = e.Name
			}
			for _, store := range stores {
				th := s.TheoryOf(Cell{b, client, c.fault, store})
				if th.Allows(c.property, c.kind) != c.may {
					t.Errorf("%s: %s %s %s: %s %s: %+v", c.name, b, client, store, c.property, c.kind, th)
				}
			}
		}
	}
}

// A clock that jumps hurts what lives by the time of day, and nothing else.
func TestTheoryOfClocks(t *testing.T) {
	for _, b := range cluster.Backends {
		wall := b != cluster.ZooKeeper && b != cluster.Etcd
		for form, hurt := range map[string]bool{"": wall, "server": wall, "worker": false, "monotonic": b == cluster.Etcd} {
			var br broken
			br.add(Cell{Backend: b}, fault{name: "clock-jump", form: form, target: nemesis.Leader})
			if (br.lease != "") != hurt || (br.stuck != "") != hurt {
				t.Errorf("%s under clock-jump:%s: %+v", b, form, br)
			}
		}
	}
}

// Each cell is explained in a sentence.
func TestTheorySays(t *testing.T) {
	var faults []string
	for _, e := range nemesis.Faults() {
		faults = append(faults, e.Name)
	}
	s := spec(t, append(faults, NoFault, "scenario:failover")...)
	for _, row := range New(s, Shard{1, 1}).Rows {
		if (row.Says == "") != (row.Impossible != "") {
			t.Errorf("%v: %q, impossible: %q", row.Cell, row.Says, row.Impossible)
		}
		for _, p := range row.Theory.Breaks(row.Required) {
			if !slices.Contains(checker.Properties, p) || len(row.Theory.Why([]string{p})) == 0 {
				t.Errorf("%v: %s without a reason", row.Cell, p)
			}
		}
	}
}
