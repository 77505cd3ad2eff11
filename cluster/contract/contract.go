// Package contract is what every provider of servers has to pass: start, ready,
// leader, stop, restart with and without data, cut, heal, logs, cleanup. What a
// provider does not offer it has to refuse by an error that says so, and never to
// pretend.
package contract

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
)

// A Provider is one way to have servers.
type Provider struct {
	// Backends are those that Run tries; none means etcd.
	Backends []string
	Start    func(ctx context.Context, spec cluster.Spec) (cluster.Cluster, error)
	// NotOffered is the error for stopping and restarting servers, where they are
	// not the provider's own; nil where it can.
	NotOffered error
	// NoCuts is the error for packet loss between servers; nil where it can.
	NoCuts error
	// Left counts what is left after the end, besides the run directory.
	Left func(t *testing.T) int
}

// what a cluster offers beyond cluster.Cluster.
type cluster2 interface {
	Leader(ctx context.Context) (string, error)
	Kill(node string) error
	Restart(ctx context.Context, keepData bool, nodes ...string) error
	Cut(node string, from ...string) error
	HealCuts() error
	Whole(ctx context.Context) error
}

// owned is what those offer that start servers.
type owned interface {
	DataID(node string) (string, error)
	Pid(node string) (int, error)
}

const within = 3 * time.Minute

// shapes are what a backend's servers are like.
var shapes = map[string]struct {
	endpoints int
	talk      bool // to one another
}{
	cluster.Redis:     {endpoints: 1},
	cluster.Sentinel:  {endpoints: 3, talk: true}, // sentinels
	cluster.Redlock:   {endpoints: 5},
	cluster.ZooKeeper: {endpoints: 3, talk: true},
	cluster.Etcd:      {endpoints: 3, talk: true},
}

// Run tries a provider.
func Run(t *testing.T, p Provider) {
	backends := p.Backends
	if len(backends) == 0 {
		backends = []string{cluster.Etcd}
	}
	for _, b := range backends {
		t.Run(b, func(t *testing.T) { run(t, p, b) })
	}
}

func run(t *testing.T, p Provider, backend string) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	dir := t.TempDir()
	c, err := p.Start(ctx, cluster.Spec{Backend: backend, Persistence: "aof", Workers: 1, Dir: dir, Proxy: true})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			c.Close(context.Background())
		}
	}()
	shape := shapes[backend]
	if len(c.Nodes()) < shape.endpoints || len(c.Endpoints(0)) != shape.endpoints {
		t.Errorf("nodes %v, endpoints %v", c.Nodes(), c.Endpoints(0))
	}
	if c.Timing().Ready <= 0 {
		t.Error("no time until it was ready")
	}
	more := c.(cluster2)
	if p.NotOffered != nil {
		refuses(ctx, t, more, p.NotOffered)
	} else {
		t.Run("leader and restarts", func(t *testing.T) { restarts(ctx, t, c, more) })
		if shape.talk {
			t.Run("cuts", func(t *testing.T) { cuts(t, c, more, p.NoCuts) })
		}
		logs(t, dir, c.Nodes())
	}
	if err := more.Whole(ctx); err != nil {
		t.Errorf("not whole: %v", err)
	}
	closed = true
	if err := c.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := c.Close(ctx); err != nil {
		t.Errorf("close again: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data stays: %v", err)
	}
	if p.Left != nil {
		if n := p.Left(t); n > 0 {
			t.Errorf("%d things are left", n)
		}
	}
}

func refuses(ctx context.Context, t *testing.T, c cluster2, want error) {
	_, leader := c.Leader(ctx)
	for act, err := range map[string]error{
		"leader": leader, "kill": c.Kill("n1"), "restart": c.Restart(ctx, true, "n1"), "cut": c.Cut("n1", "n2"),
	} {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, not %v", act, err, want)
		}
	}
}

func restarts(ctx context.Context, t *testing.T, c cluster.Cluster, more cluster2) {
	own := c.(owned)
	leader, err := more.Leader(ctx)
	if errors.Is(err, local.ErrNoLeader) {
		leader, err = c.Nodes()[0], nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{true, false} {
		pid, err := own.Pid(leader)
		if err != nil {
			t.Fatal(err)
		}
		data, err := own.DataID(leader)
		if err != nil {
			t.Fatal(err)
		}
		if err := more.Kill(leader); err != nil {
			t.Fatal(err)
		}
		if _, err := own.Pid(leader); err == nil {
			t.Error("it runs after it was killed")
		}
		if err := more.Whole(ctx); err == nil {
			t.Error("a cluster without one of its servers is whole")
		}
		if err := more.Restart(ctx, keep, leader); err != nil {
			t.Fatal(err)
		}
		after, err := own.Pid(leader)
		if err != nil || after == pid {
			t.Errorf("process %d after %d: %v", after, pid, err)
		}
		now, err := own.DataID(leader)
		if err != nil || (now == data) != keep {
			t.Errorf("keep %v: data %s after %s: %v", keep, now, data, err)
		}
	}
}

func cuts(t *testing.T, c cluster.Cluster, more cluster2, want error) {
	err := more.Cut("n1", "n2", "n3")
	if want != nil {
		if !errors.Is(err, want) {
			t.Errorf("cut: %v, not %v", err, want)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := more.Whole(context.Background()); err == nil {
		t.Error("a cluster that is cut is whole")
	}
	for range 2 { // it is idempotent
		if err := more.HealCuts(); err != nil {
			t.Error(err)
		}
	}
}

func logs(t *testing.T, dir string, nodes []string) {
	for _, n := range nodes {
		st, err := os.Stat(filepath.Join(dir, "nodes", n+".log"))
		if err != nil || st.Size() == 0 {
			t.Errorf("log of %s: %v", n, err)
		}
	}
}
