package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/history"
)

const ms = time.Millisecond

// What the reports find.
var (
	sections    = Finds(checker.Exclusion, "overlap")
	leases      = Finds(checker.Lease, "overlap")
	otherFreed  = Finds(checker.Release, "released-other")
	neverAgain  = Finds(checker.Progress, "stuck")
	staleWrite  = Finds(checker.Data, "stale-write")
	lostUpdate  = Finds(checker.Data, "lost-update")
	staleToken  = Finds(checker.Fencing, "stale-token-applied")
	tokenTwice  = Finds(checker.Fencing, "token-reused")
	afterLoss   = Finds(checker.Lease, "granted-after-loss")
	lateRenewal = Finds(checker.Release, "renewed-after-loss")
	noOrder     = Finds(checker.Linearizable, "not-linearizable")
	overrunHarm = []Finding{sections, staleWrite, lostUpdate}
)

// late are the rows of a lock with tokens whose holder comes late, on one backend:
// without a fence, and with one.
func late(about, scenario, backend, client string, ttl time.Duration) []Row {
	return []Row{
		{Failing: true, About: about + ", the store looks at no token", Scenario: scenario, Backend: backend, Client: client, TTL: ttl, Store: fencedstore.None, Expected: Expected{
			Finds: append([]Finding{staleToken}, overrunHarm...), Look: tokenWentBack}},
		{About: about + ", the store refuses an overtaken token", Scenario: scenario, Backend: backend, Client: client, TTL: ttl, Store: fencedstore.Monotonic, Expected: Expected{
			Finds: []Finding{sections}, Seen: map[string]Amount{"writes_refused": one, "stale_writes_applied": none}, Look: firstHolderToldNo}},
	}
}

// reports are those that need no library but the clients of lockcheck.
var reports = []Report{
	{
		Number: "D1", Name: "paused-payout", Year: "2026", Source: "field report: a payout batch that paid twice after a GC pause",
		About: "a stop-the-world pause outlives the TTL, the next worker takes the lock, and the first one goes on",
		Rows: slices.Concat([]Row{
			{Failing: true, About: "one key with a TTL", Scenario: "payout", Backend: cluster.Redis, Client: "redis/set-nx", TTL: 300 * ms, Store: fencedstore.None, Expected: Expected{Finds: overrunHarm, Look: firstHolderToldNo}},
			{Failing: true, About: "five servers", Scenario: "payout", Backend: cluster.Redlock, Client: "redlock/redlock", TTL: 500 * ms, Store: fencedstore.None, Expected: Expected{Finds: overrunHarm, Look: firstHolderToldNo}},
		},
			late("a counter as the token", "payout", cluster.Redis, "redis/set-nx-incr", 300*ms),
			late("a session", "payout", cluster.ZooKeeper, "zookeeper/ephemeral", 600*ms),
			late("a lease", "payout", cluster.Etcd, "etcd/lease", 1000*ms)),
	}, {
		Number: "D2", Name: "delete-by-name", Year: "2025", Source: "lukas-krecan/ShedLock #2583 (fixed by #2584, #2593)",
		About: "unlock removes the key by its name: after an overrun the old holder frees the new holder's lock",
		Rows: slices.Concat(
			freed("A was stopped", "unsafe-unlock", cluster.Redis, "faulty/unsafe-unlock", "redis/set-nx", 600*ms),
			freed("A was stopped, on a master with replicas", "unsafe-unlock", cluster.Sentinel, "faulty/unsafe-unlock", "redis/set-nx", 600*ms),
			freed("A worked for too long", "overrun-unlock", cluster.Redis, "faulty/unsafe-unlock", "redis/set-nx", 600*ms),
			freed("A's request was late", "late-unlock", cluster.Redis, "faulty/unsafe-unlock", "redis/set-nx", 500*ms)),
	}, {
		Number: "D3", Name: "watch-without-multi", Year: "2018", Source: "redis/redis-py #1031 (the class was replaced in 3.0)",
		About: "release watches the key, compares and deletes, and never opens the transaction: the watch protects nothing",
		Rows: slices.Concat(
			freed("the key expires between GET and DEL", "slow-unlock-3", cluster.Redis, "report/watch-del", "report/watch-multi", 1400*ms),
			freed("the same on a master with replicas", "slow-unlock-3", cluster.Sentinel, "report/watch-del", "report/watch-multi", 1400*ms),
			freed("no watch at all: GET, then DEL", "slow-unlock", cluster.Redis, "faulty/get-then-del", "redis/set-nx", 1400*ms)),
	}, {
		Number: "D5", Name: "failover-forgets", Year: "2017-2023", Source: "redisson/redisson #775, #4822",
		About: "replication is asynchronous, so the promoted replica may never have seen the key; and a renewal that failed once was never tried again",
		Rows: []Row{
			{Failing: true, About: "the replica had not heard of the key", Scenario: "failover", Backend: cluster.Sentinel, Client: "redis/set-nx", Store: fencedstore.Monotonic, Expected: Expected{
				Finds: []Finding{leases, sections, staleWrite, lostUpdate, noOrder}, Look: blames("server-kill")}},
			{Failing: true, About: "nor of the counter of the tokens", Scenario: "failover", Backend: cluster.Sentinel, Client: "redis/set-nx-incr", Store: fencedstore.Monotonic, Expected: Expected{
				Finds: []Finding{leases, sections, tokenTwice, staleWrite, noOrder}, Look: blames("server-kill")}},
			{About: "WAIT 1 before the lock is believed", Scenario: "failover", Backend: cluster.Sentinel, Client: "redis/set-nx-wait", Store: fencedstore.Monotonic, Expected: Expected{
				Seen: map[string]Amount{"acquires_failed": atLeastOne}}},
			{Failing: true, About: "no renewal after one that failed", Scenario: "missed-renewal", Backend: cluster.Redis, Client: "report/renew-until-error", TTL: 1500 * ms, Expected: Expected{Finds: []Finding{sections}}},
			{About: "the next renewal is tried", Scenario: "missed-renewal", Backend: cluster.Redis, Client: "redis/set-nx", Renew: true, TTL: 1500 * ms},
		},
	}, {
		Number: "D8", Name: "setnx-then-pexpire", Year: "2018-2020", Source: "lukas-krecan/ShedLock #65, #105; nateware/redis-objects #254",
		About: "the key and its expiry are set by two commands: what comes in between leaves a key that never ends",
		Rows: slices.Concat(
			stays("the client is killed in between", "killed-acquiring", cluster.Redis),
			stays("the connection ends in between, and the client lives", "cut-acquiring", cluster.Redis),
			stays("the client is killed in between, on a master with replicas", "killed-acquiring", cluster.Sentinel)),
	}, {
		Number: "D9", Name: "ignored-token", Year: "2026", Source: "johanhaleby/occurrent #665",
		About: "the counter of take-overs is reduced to yes or no, so that a late write of the former holder is accepted",
		Rows: slices.Concat(
			late("A was stopped", "gc-pause", cluster.Redis, "redis/set-nx-incr", 500*ms),
			late("A's write was late on its way", "late-write", cluster.Redis, "redis/set-nx-incr", 500*ms),
			late("a session's take-over", "gc-pause", cluster.ZooKeeper, "zookeeper/ephemeral", 600*ms),
			late("a lease's take-over", "late-write", cluster.Etcd, "etcd/lease", 1000*ms),
			[]Row{
				{Failing: true, About: "only writes raise the fence, and B has only read", Scenario: "write-between", Backend: cluster.Redis, Client: "redis/set-nx-incr", TTL: 500 * ms, Store: fencedstore.Strict, Expected: Expected{
					Finds: append([]Finding{staleToken}, overrunHarm...), Look: tokenWentBack}},
				{About: "reads raise the fence too", Scenario: "write-between", Backend: cluster.Redis, Client: "redis/set-nx-incr", TTL: 500 * ms, Store: fencedstore.Monotonic, Expected: Expected{
					Finds: []Finding{sections}, Seen: map[string]Amount{"writes_refused": one, "stale_writes_applied": none}}},
			}),
	}, {
		Number: "D11", Name: "crashed-acquires", Year: "2017", Source: "anishathalye/porcupine #3",
		About: "a checker's search is exponential in what is open at a time: 5,000 events exhausted 128 GB",
		Rows: []Row{
			{Failing: true, About: "a second holder among crashed acquires", Ext: ".jsonl", File: crashedAcquires(true, asJSON), Expected: Expected{Finds: []Finding{sections, leases, noOrder}}},
			{About: "the same, with the first holder's release put back", Ext: ".jsonl", File: crashedAcquires(false, asJSON)},
			{Failing: true, About: "the same in Jepsen's form, as a mutex", Ext: ".edn", File: crashedAcquires(true, asEDN), Expected: Expected{Finds: []Finding{noOrder}}},
			{About: "and with the release put back", Ext: ".edn", File: crashedAcquires(false, asEDN)},
		},
	}, {
		Number: "D12", Name: "malformed-history", Year: "2018-2019", Source: "jepsen-io/knossos #31, #27",
		About: "a process used again after info, or a completion without invocation: exceptions or a flood of assertions, and no verdict",
		Rows:  malformed(),
	},
}

// freed are a lock that frees another's and its twin. The intruder shows that the
// lock was free: two leases overlap.
func freed(about, scenario, backend, broken, honest string, ttl time.Duration) []Row {
	row := Row{About: about, Scenario: scenario, Backend: backend, TTL: ttl}
	f, t := row, row
	f.Failing, f.Client, f.Finds = true, broken, []Finding{otherFreed, leases, sections, noOrder}
	t.Client, t.Look = honest, firstHolderToldNo
	if scenario == "unsafe-unlock" || scenario == "overrun-unlock" { // A begins to release after its lease: its user's mistake
		t.Finds = []Finding{sections}
	}
	return []Row{f, t}
}

// stays are a lock whose key stays for ever and its twin.
func stays(about, scenario, backend string) []Row {
	row := Row{About: about, Scenario: scenario, Backend: backend, TTL: 500 * ms}
	f, t := row, row
	f.Failing, f.Client, f.Finds = true, "faulty/setnx-then-expire", []Finding{neverAgain}
	t.Client = "redis/set-nx"
	return []Row{f, t}
}

// firstHolderToldNo wants the first holder's release, where it asks for one, to be
// told that it does not hold the lock.
func firstHolderToldNo(ops []history.Op, _ *checker.Results) string {
	for i := range ops {
		o := &ops[i]
		if o.F == history.Release && o.Type == history.OK && overtaken(ops[:i], o.Grant.V) {
			return fmt.Sprintf("event %d: the release of grant %d was ok although another had been granted the lock", i, o.Grant.V)
		}
	}
	return ""
}

// overtaken reports whether somebody was granted the lock after that grant.
func overtaken(ops []history.Op, grant uint64) bool {
	seen := false
	for i := range ops {
		if o := &ops[i]; o.F == history.Acquire && o.Type == history.OK {
			if seen {
				return true
			}
			seen = o.Grant.V == grant
		}
	}
	return false
}

// tokenWentBack wants the store to have applied a token lower than one before it.
func tokenWentBack(ops []history.Op, _ *checker.Results) string {
	var top uint64
	for i := range ops {
		o := &ops[i]
		if o.Process != history.Store || o.Type != history.OK || !o.Token.Set {
			continue
		}
		if o.Token.V < top {
			return ""
		}
		top = o.Token.V
	}
	return "the store applied no token lower than one before it"
}

// blames wants an overlap of leases that names a fault of that kind.
func blames(fault string) func([]history.Op, *checker.Results) string {
	return func(ops []history.Op, res *checker.Results) string {
		for _, an := range res.Properties[checker.Lease].Anomalies {
			for _, i := range an.Faults {
				if i < len(ops) && ops[i].F == fault {
					return ""
				}
			}
		}
		return fmt.Sprintf("no overlap of leases names the fault %s", fault)
	}
}
