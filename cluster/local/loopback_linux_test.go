package local

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/cluster"
)

func TestLoopback(t *testing.T) {
	for _, backend := range cluster.Backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			need(t, backend)
			dir := t.TempDir()
			c := newLoop(t, cluster.Spec{Backend: backend, Workers: 2, Proxy: true, Dir: dir})
			t.Logf("first operation after %v", c.Timing().Ready)
			operation(t, c, backend, 0)
			if slices.Equal(c.Endpoints(0), c.Endpoints(1)) {
				t.Errorf("two workers have the same endpoints: %v", c.Endpoints(0))
			}
			if backend != cluster.Sentinel { // whose master is given by its own address
				cannotBypass(t, c, backend)
			}
			killAndRestart(t, c, backend)
			if err := c.Cut(c.Nodes()[0]); !errors.Is(err, ErrNoNamespaces) {
				t.Errorf("cut on loopback: %v", err)
			}
			if _, err := c.Counters(c.Nodes()[0]); !errors.Is(err, ErrNoNamespaces) {
				t.Errorf("counters on loopback: %v", err)
			}
			if err := c.HealCuts(); err != nil {
				t.Error(err)
			}
			closeLeavesNothing(t, c, dir)
		})
	}
}

func newLoop(t *testing.T, spec cluster.Spec) *Cluster {
	t.Helper()
	c, err := Loopback(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, c)
	return c
}

func TestLoopbackDirect(t *testing.T) {
	c := newLoop(t, cluster.Spec{Backend: cluster.Redis, Workers: 1, Dir: t.TempDir()})
	if c.Proxies() != nil || c.Endpoints(0)[0] != c.members[0].addr(0) || c.StoreURL(0) != "http://"+c.store.Addr().String() {
		t.Errorf("links are not direct: %v, %v, %v", c.Proxies(), c.Endpoints(0), c.StoreURL(0))
	}
	operation(t, c, cluster.Redis, 0)
}

// fakeServer puts a script called redis-server in front of the real one.
func fakeServer(t *testing.T, script string) {
	t.Helper()
	real, err := exec.LookPath(redisServer)
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	script = "#!/bin/sh\nREAL=" + real + "\nSEEN=" + filepath.Join(dir, "seen") + "\n" + script
	if err := os.WriteFile(filepath.Join(dir, redisServer), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// A server that dies while starting is named, and its log quoted, at once and
// not when a deadline is over.
func TestDied(t *testing.T) {
	fakeServer(t, `echo "Bad directive in $1" >&2; exit 3`)
	for name, begin := range map[string]func(cluster.Spec) (*Cluster, error){
		"lab":      func(s cluster.Spec) (*Cluster, error) { return Lab(t.Context(), s) },
		"loopback": func(s cluster.Spec) (*Cluster, error) { return Loopback(t.Context(), s) },
	} {
		dir := t.TempDir()
		_, err := begin(cluster.Spec{Backend: cluster.Redis, Workers: 1, Proxy: true, Dir: dir})
		var died *Died
		if !errors.As(err, &died) || died.Node != "n1" || died.Server != redisServer || died.State != "exit status 3" {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(err.Error(), "Bad directive in "+dir) {
			t.Errorf("%s: the log is not quoted: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "data")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: data directory after a failed start: %v", name, err)
		}
	}
}

// A port that is taken between its choice and its use costs a try, not the run.
func TestPortTaken(t *testing.T) {
	fakeServer(t, `if [ ! -e "$SEEN" ]; then touch "$SEEN"; echo "bind: Address already in use" >&2; exit 1; fi
exec "$REAL" "$@"`)
	c := newLoop(t, cluster.Spec{Backend: cluster.Redis, Workers: 1, Proxy: true, Dir: t.TempDir()})
	operation(t, c, cluster.Redis, 0)
}

func TestPortAlwaysTaken(t *testing.T) {
	fakeServer(t, `echo "bind: Address already in use" >&2; exit 1`)
	_, err := Loopback(t.Context(), cluster.Spec{Backend: cluster.Redis, Dir: t.TempDir()})
	var died *Died
	if !errors.As(err, &died) || !strings.Contains(err.Error(), "Address already in use") {
		t.Errorf("every port taken: %v", err)
	}
}

// What is missing is named together with the command that brings it.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for backend, want := range map[string]string{
		cluster.Redis:     "apt-get install redis-server",
		cluster.Redlock:   "apt-get install redis-server",
		cluster.Sentinel:  "apt-get install redis-server",
		cluster.ZooKeeper: "apt-get install default-jre-headless",
		cluster.Etcd:      "make bin/etcd",
	} {
		var missing *Missing
		if _, err := Find(backend); !errors.As(err, &missing) || missing.Remedy != want || missing.Backend != backend {
			t.Errorf("%s: %v", backend, err)
		}
		if _, err := Lab(t.Context(), cluster.Spec{Backend: backend, Dir: t.TempDir()}); !errors.As(err, &missing) {
			t.Errorf("start %s: %v", backend, err)
		}
	}
	if _, err := Find("memcached"); err == nil {
		t.Error("found the servers of a backend that there is not")
	}
}

// The etcd that was built for lockcheck comes before an installed one.
func TestFindEtcd(t *testing.T) {
	work, installed := t.TempDir(), t.TempDir()
	t.Chdir(work)
	t.Setenv("PATH", installed)
	for _, p := range []string{filepath.Join(installed, "etcd"), filepath.Join(work, "bin", "etcd")} {
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if got, err := Find(cluster.Etcd); err != nil || got[etcdServer] != p {
			t.Errorf("found %v, %v; want %s", got, err, p)
		}
	}
}
