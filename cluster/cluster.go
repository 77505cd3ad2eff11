// Package cluster holds the words that every provider of servers shares: what
// to start, and what a run may ask of it once it stands. It starts nothing
// itself; see cluster/local.
package cluster

import (
	"context"
	"net"
	"os/exec"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
)

// Backend names, as the command line spells them.
const (
	Redis     = "redis"          // one redis-server
	Sentinel  = "redis-sentinel" // one master, two replicas, three sentinels
	Redlock   = "redlock"        // five independent redis-servers
	ZooKeeper = "zookeeper"      // an ensemble of three
	Etcd      = "etcd"           // a cluster of three
)

// Backends lists them in the order in which they are shown.
var Backends = []string{Redis, Sentinel, Redlock, ZooKeeper, Etcd}

// MasterName is the name under which the sentinels watch their master.
const MasterName = "lockcheck"

// Spec says what to start.
type Spec struct {
	Backend     string
	Persistence string        // redis: "none" or "aof"
	Workers     int           // how many workers will be started at the most
	Dir         string        // the run directory; logs go into Dir/nodes
	Proxy       bool          // whether worker links lead through toxiproxy
	Clocks      bool          // whether servers and workers are started with clocks that can be moved
	SessionMax  time.Duration // the longest ZooKeeper session that will be asked for
}

// Timing says how long a cluster took to stand, for the figure that is printed.
type Timing struct {
	Ready time.Duration // from the start of the command to the first operation answered
}

// A Cluster is a set of running servers, with one place for each worker. Workers
// are numbered from 0 to Spec.Workers-1. Its methods may be called from several goroutines.
type Cluster interface {
	// Nodes names the server nodes in a fixed order, e.g. "n1" to "n5". A node
	// is one server process; sentinels are nodes of their own, "s1" to "s3".
	Nodes() []string
	// Endpoints are the addresses that worker i gives to its client: the nodes'
	// own where redirection is transparent, else those of its proxies. For
	// redis-sentinel they are the sentinels'.
	Endpoints(worker int) []string
	// ListenStore opens the listener on which the fenced store is to be served;
	// StoreURL is how worker i reaches it.
	ListenStore() (net.Listener, error)
	StoreURL(worker int) string
	// StartWorker starts cmd (as cmd.Start does) in worker i's place. It may be
	// called again when the process before has ended. The caller waits for cmd.
	StartWorker(worker int, cmd *exec.Cmd) error
	// Proxies is the client of the toxiproxy on the worker links; nil when the
	// links are direct. ProxyName names the proxy between a worker and a node,
	// e.g. "w0-n1" ("store" is the fenced store).
	Proxies() *toxiproxy.Client
	ProxyName(worker int, node string) string
	// Versions of the servers and of the lab, for test.json.
	Versions() map[string]string
	Timing() Timing
	// Close ends every process and removes the data. It is idempotent.
	Close(ctx context.Context) error
}
