package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/cluster"
)

func TestLab(t *testing.T) {
	for _, backend := range cluster.Backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			need(t, backend)
			dir := t.TempDir()
			c := newLab(t, cluster.Spec{Backend: backend, Workers: 2, Dir: dir, Proxy: true})
			t.Logf("first operation after %v; %v", c.Timing().Ready, c.Versions())
			operation(t, c, backend, 0)
			operation(t, c, backend, 1)
			cannotBypass(t, c, backend)
			killAndRestart(t, c, backend)
			cutAndHeal(t, c, backend)
			closeLeavesNothing(t, c, dir)
		})
	}
}

// need skips a backend whose servers are not installed.
func need(t testing.TB, backend string) {
	t.Helper()
	if _, err := Find(backend); err != nil {
		t.Skip(err)
	}
}

func newLab(t *testing.T, spec cluster.Spec) *Cluster {
	t.Helper()
	c, err := Lab(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, c)
	return c
}

func closeAtEnd(t *testing.T, c *Cluster) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// tryOperation has a helper process do one operation in a worker's place.
func tryOperation(c *Cluster, backend string, worker int) error {
	cmd := exec.Command("/proc/self/exe", append([]string{helperArg, "op", backend}, c.Endpoints(worker)...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := c.StartWorker(worker, cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

func operation(t *testing.T, c *Cluster, backend string, worker int) {
	t.Helper()
	err := eventually("operate as a worker", func() error { return tryOperation(c, backend, worker) })
	if err != nil {
		t.Fatal(err)
	}
}

// cannotBypass takes worker 0's proxies down: it must then reach nothing, though
// its client knows nothing of proxies, while worker 1 goes on.
func cannotBypass(t *testing.T, c *Cluster, backend string) {
	t.Helper()
	ps, err := c.Proxies().Proxies()
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 * (len(c.Nodes()) + 1); len(ps) != want {
		t.Errorf("%d proxies, want %d", len(ps), want)
	}
	for _, n := range c.Nodes() {
		if err := ps[c.ProxyName(0, n)].Disable(); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/proc/self/exe", helperArg, "refused")
	cmd.Args = append(cmd.Args, c.Endpoints(0)...)
	cmd.Stderr = os.Stderr
	if err := c.StartWorker(0, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("worker 0 got past its proxies: %v", err)
	}
	operation(t, c, backend, 1)
	for _, n := range c.Nodes() {
		if err := ps[c.ProxyName(0, n)].Enable(); err != nil {
			t.Fatal(err)
		}
	}
	operation(t, c, backend, 0)
}

// killAndRestart kills the leader (or the only kind of node there is), waits for
// another one, and brings the node back with and without its data.
func killAndRestart(t *testing.T, c *Cluster, backend string) {
	t.Helper()
	node := leaderOr(t, c, backend, c.Nodes()[0])
	before, err := c.Pid(node)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(node); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pid(node); !errors.Is(err, errNotRunning) {
		t.Errorf("pid of a killed node: %v", err)
	}
	if replicated(backend) {
		newLeader(t, c, node)
	}
	for _, keep := range []bool{true, false} {
		if err := c.Restart(t.Context(), keep, node); err != nil {
			t.Fatal(err)
		}
		after, err := c.Pid(node)
		if err != nil || after == before {
			t.Errorf("pid before %d, after the restart %d (%v)", before, after, err)
		}
		operation(t, c, backend, 0)
	}
}

// replicated tells the backends where another server takes over.
func replicated(backend string) bool { return backend != cluster.Redis && backend != cluster.Redlock }

func leaderOr(t *testing.T, c *Cluster, backend, fallback string) string {
	t.Helper()
	if backend == cluster.Redlock {
		if _, err := c.Leader(t.Context()); !errors.Is(err, ErrNoLeader) {
			t.Errorf("leader of redlock: %v", err)
		}
		return fallback
	}
	var node string
	err := eventually("find a leader", func() (err error) {
		node, err = c.Leader(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// newLeader waits until somebody else leads.
func newLeader(t *testing.T, c *Cluster, old string) {
	t.Helper()
	began := time.Now()
	err := eventually("find a new leader", func() error {
		node, err := c.Leader(t.Context())
		if err == nil && node == old {
			err = fmt.Errorf("%s still leads", old)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("another leader %v after %s was lost", time.Since(began).Round(time.Millisecond), old)
}

// cutAndHeal cuts a node off from the others, both ways.
func cutAndHeal(t *testing.T, c *Cluster, backend string) {
	t.Helper()
	node := leaderOr(t, c, backend, c.Nodes()[0])
	others := slices.DeleteFunc(c.Nodes(), func(n string) bool { return n == node })
	if len(others) == 0 || backend == cluster.Redlock {
		return // nothing is said between nodes
	}
	if err := c.Cut(node, others...); err != nil {
		t.Fatal(err)
	}
	for _, o := range others {
		if err := c.Cut(o, node); err != nil {
			t.Fatal(err)
		}
	}
	newLeader(t, c, node)
	err := eventually("see packets dropped", func() error {
		ds, err := c.Counters(node)
		if err != nil {
			return err
		}
		if len(ds) != len(others) {
			return fmt.Errorf("%d counters at %s: %v", len(ds), node, ds)
		}
		for _, d := range ds {
			if d.Packets > 0 && d.Bytes > 0 && d.Node == node && slices.Contains(others, d.From) {
				return nil
			}
		}
		return fmt.Errorf("nothing dropped: %v", ds)
	})
	if err != nil {
		t.Error(err)
	}
	for range 2 { // healing is idempotent
		if err := c.HealCuts(); err != nil {
			t.Fatal(err)
		}
	}
	if ds, err := c.Counters(node); err != nil || len(ds) != 0 {
		t.Errorf("counters after the heal: %v, %v", ds, err)
	}
	m, err := c.member(node)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.driver.rejoined(t.Context(), m, c.members); err != nil {
		t.Error(err)
	}
	operation(t, c, backend, 0)
}

// closeLeavesNothing starts something in a worker's place that nobody ends, and
// looks for it and the servers after Close.
func closeLeavesNothing(t *testing.T, c *Cluster, dir string) {
	t.Helper()
	var pids []int
	for _, n := range c.Nodes() {
		if pid, err := c.Pid(n); err == nil {
			pids = append(pids, pid)
		}
	}
	left := exec.Command("sh", "-c", "sleep 1000 & wait")
	if err := c.StartWorker(0, left); err != nil {
		t.Fatal(err)
	}
	pids = append(pids, left.Process.Pid)
	for range 2 { // idempotent too
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_ = left.Wait()
	if n := slices.IndexFunc(pids, alive); n >= 0 {
		t.Errorf("process %d is still there", pids[n])
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("data directory: %v", err)
	}
	for _, n := range c.Nodes() {
		if st, err := os.Stat(filepath.Join(dir, "nodes", n+".log")); err != nil || st.Size() == 0 {
			t.Errorf("log of %s: %v", n, err)
		}
	}
	if _, err := net.Dial("tcp", c.upstreams()[0].addr); err == nil {
		t.Error("a server still answers")
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// The store is reached through a proxy of its own, as the nodes are.
func TestStore(t *testing.T) {
	t.Parallel()
	for _, proxied := range []bool{true, false} {
		c := newLab(t, cluster.Spec{Backend: cluster.Redis, Workers: 1, Dir: t.TempDir(), Proxy: proxied})
		ln, err := c.ListenStore()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ListenStore(); err == nil {
			t.Error("the store's listener was given out twice")
		}
		from := make(chan string, 1)
		go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { from <- r.RemoteAddr }))
		cmd := exec.Command("/proc/self/exe", helperArg, "get", c.StoreURL(0))
		cmd.Stderr = os.Stderr
		if err := c.StartWorker(0, cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		host, _, err := net.SplitHostPort(<-from)
		if err != nil {
			t.Fatal(err)
		}
		if direct := strings.HasSuffix(host, fmt.Sprintf(".%d", firstWorker)); direct == proxied {
			t.Errorf("proxied %v: the store was called from %s", proxied, host)
		}
		if (c.Proxies() != nil) != proxied {
			t.Errorf("proxied %v: client %v", proxied, c.Proxies())
		}
	}
}

// What a restart keeps is the difference between losing a lock and not.
func TestRestartData(t *testing.T) {
	t.Parallel()
	c := newLab(t, cluster.Spec{Backend: cluster.Redis, Persistence: "aof", Dir: t.TempDir()})
	ctx, addr := t.Context(), c.members[0].addr(0)
	if _, err := askRedis(ctx, addr, "SET", "kept", "yes"); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(ctx, true, "n1"); err != nil {
		t.Fatal(err)
	}
	if v, err := askRedis(ctx, addr, "GET", "kept"); err != nil || v != "yes" {
		t.Errorf("with its data, the node answers %v, %v", v, err)
	}
	if err := c.Restart(ctx, false, "n1"); err != nil {
		t.Fatal(err)
	}
	if v, err := askRedis(ctx, addr, "GET", "kept"); !errors.Is(err, errNil) {
		t.Errorf("without its data, the node answers %v, %v", v, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	ctx, dir := t.Context(), t.TempDir()
	for _, spec := range []cluster.Spec{
		{Backend: "memcached", Dir: dir},
		{Backend: cluster.Redis, Persistence: "rdb", Dir: dir},
		{Backend: cluster.Redis, Workers: labWorkers + 1, Dir: dir},
	} {
		if c, err := Lab(ctx, spec); err == nil {
			t.Errorf("%+v was accepted", spec)
			c.Close(ctx)
		}
	}
	c := newLab(t, cluster.Spec{Backend: cluster.Redis, Workers: 1, Dir: dir})
	for _, w := range []int{-1, 1} {
		if err := c.StartWorker(w, exec.Command("true")); err == nil || c.Endpoints(w) != nil || c.StoreURL(w) != "" {
			t.Errorf("worker %d has a place", w)
		}
	}
	for name, err := range map[string]error{
		"kill":    c.Kill("n2"),
		"restart": c.Restart(ctx, true, "n2"),
		"cut":     c.Cut("n1", "n2"),
	} {
		if err == nil {
			t.Errorf("%s of a node that is not there succeeded", name)
		}
	}
	if _, err := Lab(ctx, cluster.Spec{Backend: cluster.Redis, Dir: dir}); err == nil {
		t.Error("two clusters have the same run directory")
	}
	if _, err := Enter(); err == nil {
		t.Error("entered the lab from inside")
	}
}
