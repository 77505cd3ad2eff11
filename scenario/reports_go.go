package scenario

import (
	"time"

	"github.com/lockcheck/lockcheck/cluster"
)

// zkSession leaves a client time to connect again within its session.
const zkSession = 2 * time.Second

// goReports are those about libraries in Go, told with the libraries themselves.
var goReports = []Report{
	{
		Number: "D4", Name: "bare-quorum", Source: "go-redsync/redsync #186 (open)", Year: "2025",
		About: "A holder that has three servers of five has none to spare: when one of them forgets, a rival collects that one and the other two",
		Rows: []Row{
			{Failing: true, About: "redsync 4.18.1; the server comes back empty at once", Scenario: "quorum-forgets", Backend: cluster.Redlock, Client: "redsync",
				Expected: Expected{Finds: []Finding{sections, leases, noOrder}}},
			{Failing: true, About: "lockcheck's own Redlock; the same", Scenario: "quorum-forgets", Backend: cluster.Redlock, Client: "redlock/redlock",
				Expected: Expected{Finds: []Finding{sections, leases, noOrder}}},
			{About: "redsync; the server is kept away for one TTL", Scenario: "quorum-waits", Backend: cluster.Redlock, Client: "redsync", TTL: 2 * time.Second},
			{About: "redsync; the server comes back with its data", Scenario: "quorum-forgets", Backend: cluster.Redlock, Client: "redsync", Persistence: "aof"},
		},
	}, {
		Number: "D6", Name: "no-recheck", Source: "etcd-io/etcd #11456 (closed); Jepsen, etcd 3.4.3", Year: "2019",
		About: "A waiter only waits for those ahead of it to go; its own lease runs out meanwhile, and it is told that it holds the lock",
		Rows: []Row{
			{Failing: true, About: "a scripted mutex without the look at its own key; nobody renews its lease while it waits", Scenario: "etcd-waiter", Backend: cluster.Etcd, Client: "faulty/etcd-no-recheck",
				Expected: Expected{Finds: []Finding{afterLoss, sections}}},
			{Failing: true, About: "the same; the waiter is stopped meanwhile", Scenario: "waiter-stopped", Backend: cluster.Etcd, Client: "faulty/etcd-no-recheck",
				Expected: Expected{Finds: []Finding{afterLoss, sections}}},
			{About: "etcd client 3.7.3, Mutex; the waiter is stopped meanwhile, and gets an error", Scenario: "waiter-stopped", Backend: cluster.Etcd, Client: "etcd-mutex"},
			{About: "the scripted mutex with the look", Scenario: "etcd-waiter", Backend: cluster.Etcd, Client: "etcd/queue"},
		},
	}, {
		Number: "D7", Name: "left-in-queue", Source: "samuel/go-zookeeper #229 (open), PRs #230 and #237", Year: "2020",
		About: "Lock has created its node, a later call fails, and it returns without the node: whoever comes waits behind it while the session lives",
		Rows: []Row{
			{Failing: true, About: "go-zookeeper 1.0.4, Lock; cut at getChildren2", Scenario: "cut-children", Backend: cluster.ZooKeeper, Client: "zk-lock", TTL: zkSession,
				Expected: Expected{Finds: []Finding{neverAgain}}},
			{Failing: true, About: "the same; cut at getData, of the one to wait for", Scenario: "cut-waiting", Backend: cluster.ZooKeeper, Client: "zk-lock", TTL: zkSession,
				Expected: Expected{Finds: []Finding{neverAgain}}},
			{About: "a scripted lock that finds its node by its owner and deletes it; cut at getChildren2", Scenario: "cut-children", Backend: cluster.ZooKeeper, Client: "zookeeper/ephemeral", TTL: zkSession},
			{About: "the same; cut at getData", Scenario: "cut-waiting", Backend: cluster.ZooKeeper, Client: "zookeeper/ephemeral", TTL: zkSession},
		},
	}, {
		Number: "D10", Name: "extend-or-set", Source: "go-redsync/redsync PRs #147 and #149", Year: "2024",
		About: "An option sets a key again that an Extend did not find, so that a lock which ran out, and was another's meanwhile, is renewed",
		Rows: []Row{
			{Failing: true, About: "redsync 4.18.1 with WithSetNXOnExtend, five servers", Scenario: "late-renewal", Backend: cluster.Redlock, Client: "redsync/set-nx-on-extend",
				Expected: Expected{Finds: []Finding{lateRenewal, sections, noOrder}}},
			{Failing: true, About: "the same, one server", Scenario: "late-renewal", Backend: cluster.Redis, Client: "redsync/set-nx-on-extend",
				Expected: Expected{Finds: []Finding{lateRenewal, sections, noOrder}}},
			{About: "redsync without the option, five servers; A is told that it does not hold", Scenario: "late-renewal", Backend: cluster.Redlock, Client: "redsync",
				Expected: Expected{Finds: []Finding{sections}}}, // A outlives its lease: the hazard of every lease
			{About: "the same, one server", Scenario: "late-renewal", Backend: cluster.Redis, Client: "redsync",
				Expected: Expected{Finds: []Finding{sections}}},
		},
	},
}
