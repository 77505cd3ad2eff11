// Package verify proves that lockcheck has teeth: it plays each lock that is
// broken on purpose, and its honest twin, in one and the same story under the
// same seed, and compares what was found with what is wrong. It believes nothing
// but the results of ordinary runs.
package verify

import (
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/scenario"
)

// A Finding is a kind of anomaly of a property.
type Finding = scenario.Finding

// A Pair is a broken lock and the honest one that it was made from.
type Pair struct {
	Client   string             `json:"client"`
	Twin     string             `json:"twin"`
	Backend  string             `json:"backend"`
	Scenario string             `json:"scenario"`
	TTL      time.Duration      `json:"ttl"`
	Store    fencedstore.Policy `json:"store"`
	Expect   []Finding          `json:"expect"` // all of them, in the broken lock's history
}

var (
	overlap      = scenario.Finds(checker.Lease, "overlap")
	released     = scenario.Finds(checker.Release, "released-other")
	renewed      = scenario.Finds(checker.Release, "renewed-after-loss")
	stuck        = scenario.Finds(checker.Progress, "stuck")
	tokenReused  = scenario.Finds(checker.Fencing, "token-reused")
	tokenSmaller = scenario.Finds(checker.Fencing, "token-not-increasing")
)

// Pairs lists them all. The slowest stories come first, so that several at a
// time end about together.
func Pairs() []Pair {
	const ms = time.Millisecond
	fenced, open := fencedstore.Monotonic, fencedstore.None
	redis, redlock, etcd, zk := cluster.Redis, cluster.Redlock, cluster.Etcd, cluster.ZooKeeper
	return []Pair{
		{"faulty/zk-persistent", "zookeeper/ephemeral", zk, "killed-holder", 1000 * ms, fenced, []Finding{stuck}},
		{"faulty/zk-orphan", "zookeeper/ephemeral", zk, "zk-orphan", 1200 * ms, fenced, []Finding{stuck}},
		{"faulty/redlock-no-cleanup", "redlock/redlock", redlock, "partial-rounds", 1000 * ms, fenced, []Finding{stuck}},
		// With a longer TTL, a disk that stands still for a second does not end the twin's lease.
		{"faulty/etcd-no-keepalive", "etcd/lease", etcd, "long-section", 3000 * ms, open, []Finding{scenario.Finds(checker.Exclusion, "overlap"), scenario.Finds(checker.Data, "stale-write")}},
		{"faulty/zk-ignore-expiry", "zookeeper/ephemeral", zk, "session-lost", 1000 * ms, fenced, []Finding{scenario.Finds(checker.Lease, "held-after-loss")}},
		{"faulty/zk-parent-token", "zookeeper/ephemeral", zk, "take-turns", 1000 * ms, fenced, []Finding{tokenReused}},
		{"faulty/etcd-no-recheck", "etcd/queue", etcd, "etcd-waiter", 1000 * ms, fenced, []Finding{scenario.Finds(checker.Lease, "granted-after-loss")}},
		{"faulty/etcd-lease-token", "etcd/lease", etcd, "take-turns", 1000 * ms, fenced, []Finding{tokenSmaller}},
		{"faulty/setnx-then-expire", "redis/set-nx", redis, "killed-acquiring", 500 * ms, fenced, []Finding{stuck}},
		{"faulty/get-then-del", "redis/set-nx", redis, "slow-unlock", 1400 * ms, fenced, []Finding{released}},
		{"faulty/redlock-max-token", "redlock/redlock", redlock, "uneven-counters", 1000 * ms, fenced, []Finding{tokenSmaller}},
		{"faulty/redlock-no-validity", "redlock/redlock", redlock, "slow-acquire", 1000 * ms, fenced, []Finding{overlap}},
		{"faulty/minority-redlock", "redlock/redlock", redlock, "split-links", 1000 * ms, fenced, []Finding{overlap}},
		{"faulty/unsafe-unlock", "redis/set-nx", redis, "unsafe-unlock", 1000 * ms, fenced, []Finding{released, overlap}},
		{"faulty/extend-recreates", "redis/set-nx", redis, "late-renewal", 1000 * ms, fenced, []Finding{renewed}},
		{"faulty/extend-other", "redis/set-nx", redis, "late-renewal", 1000 * ms, fenced, []Finding{renewed}},
		{"faulty/clock-token", "redis/set-nx-incr", redis, "take-turns", 1000 * ms, fenced, []Finding{tokenSmaller}},
	}
}
