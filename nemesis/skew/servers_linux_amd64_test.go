package skew

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// until repeats try until it succeeds.
func until(t testing.TB, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v (%v)", what, ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// holds repeats check for a while, which is what it takes to show that something
// does not happen: the servers look for what has expired twice a second or more
// often.
func holds(t testing.TB, what string, check func() error) {
	t.Helper()
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err := check(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// serve starts a server, its log shown if the test fails.
func serve(t testing.TB, cmd *exec.Cmd, start func(*exec.Cmd) error) {
	t.Helper()
	logFile := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(logFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if b, err := os.ReadFile(logFile); err == nil && t.Failed() {
			t.Logf("log of %s:\n%s", cmd.Path, b[max(0, len(b)-4096):])
		}
	})
}

func byControl(c *Control) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error { return Launch(cmd, c, Options{}) }
}

func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// startRedis starts a server on a socket of its own.
func startRedis(t testing.TB, start func(*exec.Cmd) error) (*redis.Client, *exec.Cmd) {
	t.Helper()
	path := need(t, "redis-server")
	// Not t.TempDir, whose names are longer than the address of a socket may be.
	dir, err := os.MkdirTemp("", "r")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no")
	serve(t, cmd, start)
	r := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, MaxRetries: -1})
	t.Cleanup(func() { r.Close() })
	until(t, "connect to redis", func(ctx context.Context) error { return r.Ping(ctx).Err() })
	return r, cmd
}

// near fails unless d is what was wanted, give or take what a loaded machine may
// take between two looks.
func near(t testing.TB, what string, d, want time.Duration) {
	t.Helper()
	if (d - want).Abs() > 3*time.Second {
		t.Errorf("%s: %v, want %v", what, d, want)
	}
}

func TestRedis(t *testing.T) {
	ctx := context.Background()
	c := control(t)
	r, cmd := startRedis(t, byControl(c))
	ahead := func() time.Duration {
		now, err := r.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(now)
	}
	lock := func(key string) {
		if err := r.Set(ctx, key, "v", 10*time.Second).Err(); err != nil {
			t.Fatal(err)
		}
	}
	left := func(key string) time.Duration {
		d, err := r.PTTL(ctx, key).Result()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	near(t, "TIME", ahead(), 0)
	lock("early")
	mustSet(t, c, Realtime, 20*time.Second)
	near(t, "TIME", ahead(), 20*time.Second)
	if err := r.Get(ctx, "early").Err(); err != redis.Nil {
		t.Errorf("a key of 10 s, 20 s later: %v, want %v", err, redis.Nil)
	}
	lock("late")
	near(t, "a new key", left("late"), 10*time.Second)
	mustSet(t, c, Realtime, 0)
	near(t, "TIME", ahead(), 0)
	near(t, "the same key, 20 s earlier", left("late"), 30*time.Second)
	mustSet(t, c, Realtime, -20*time.Second)
	near(t, "the same key, 40 s earlier", left("late"), 50*time.Second)
	if rb, err := c.ReadBack(cmd.Process.Pid); err != nil || rb.Realtime != -20*time.Second {
		t.Errorf("read back %+v, %v", rb, err)
	}
	if err := c.Reset(); err != nil {
		t.Fatal(err)
	}
	near(t, "TIME", ahead(), 0)
	near(t, "the same key, now", left("late"), 30*time.Second)
}

func TestEtcd(t *testing.T) {
	path, err := filepath.Abs("../../bin/etcd")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("bin/etcd was not built (make bin/etcd), so this is not tested")
	}
	ctx := context.Background()
	c := control(t)
	ports := freePorts(t, 2)
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	serve(t, exec.Command(path, "--data-dir", t.TempDir(), "--name", "n1",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "n1="+peer), byControl(c))
	until(t, "connect to etcd", func(context.Context) error {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0]))
		if err == nil {
			conn.Close()
		}
		return err
	})
	e, err := clientv3.New(clientv3.Config{Endpoints: []string{client}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	lease, err := e.Grant(ctx, 30)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Put(ctx, "k", "v", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	alive := func() (bool, error) {
		g, err := e.Get(ctx, "k")
		return err == nil && len(g.Kvs) == 1, err
	}
	for _, d := range []time.Duration{time.Minute, -time.Minute} {
		mustSet(t, c, Realtime, d)
		near(t, "Date", dateAhead(t, client+"/version"), d)
		holds(t, fmt.Sprintf("lease under %v", d), func() error {
			ok, err := alive()
			if err == nil && !ok {
				err = fmt.Errorf("the key is gone")
			}
			return err
		})
	}
	// What does end it, so that the above is not for want of an effect.
	mustSet(t, c, Monotonic, time.Minute)
	begun := time.Now()
	until(t, "lease under monotonic +1m", func(context.Context) error {
		ok, err := alive()
		if ok {
			err = fmt.Errorf("the key is there")
		}
		return err
	})
	if d := time.Since(begun); d > 20*time.Second {
		t.Errorf("it ended after %v, by itself", d)
	}
}

// dateAhead is how far ahead a web server is by its own word.
func dateAhead(t *testing.T, url string) time.Duration {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	d, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		t.Fatal(err)
	}
	return time.Until(d)
}

const (
	zookeeperJar    = "/usr/share/java/zookeeper.jar"
	zookeeperLogger = "/usr/share/java/slf4j-simple.jar"
	// zookeeperSession is shorter than the jumps, and so long that its owner is
	// not heard of for 10 s: whatever a client sends keeps its session alive.
	zookeeperSession = 30 * time.Second
)

// startZooKeeper starts one server on its own.
func startZooKeeper(t *testing.T, c *Control) (addr string, cmd *exec.Cmd) {
	t.Helper()
	java := need(t, "java")
	if _, err := os.Stat(zookeeperJar); err != nil {
		t.Skip("ZooKeeper is not installed, so this is not tested")
	}
	dir := t.TempDir()
	port := freePorts(t, 1)[0]
	conf := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "tickTime=500\nmaxSessionTimeout=60000\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n", dir, port), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(java, "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true",
		"-cp", zookeeperJar+":"+zookeeperLogger, "org.apache.zookeeper.server.quorum.QuorumPeerMain", conf)
	serve(t, cmd, byControl(c))
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	until(t, "connect to ZooKeeper", func(context.Context) error {
		n, err := net.Dial("tcp", addr)
		if err == nil {
			n.Close()
		}
		return err
	})
	return addr, cmd
}

// session connects to ZooKeeper and makes a node that ends with the session.
func session(t *testing.T, addr, node string) *zk.Conn {
	t.Helper()
	z, _, err := zk.Connect([]string{addr}, zookeeperSession, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(z.Close)
	until(t, "create "+node, func(context.Context) error {
		_, err := z.Create(node, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		if errors.Is(err, zk.ErrNodeExists) {
			return nil // by a try that was not answered
		}
		return err
	})
	return z
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// TestZooKeeper has one session that keeps silent, and looks with another.
func TestZooKeeper(t *testing.T) {
	c := control(t)
	addr, cmd := startZooKeeper(t, c)
	owner, z := session(t, addr, "/lock"), session(t, addr, "/observer")
	id := owner.SessionID()
	for i, d := range []time.Duration{time.Minute, -time.Minute, 0} {
		mustSet(t, c, Realtime, d)
		node := fmt.Sprintf("/made%d", i)
		if _, err := z.Create(node, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		_, stat, err := z.Exists(node)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "the time of a new node", time.Until(time.UnixMilli(stat.Ctime)), d)
		holds(t, fmt.Sprintf("session under %v", d), func() error {
			ok, stat, err := z.Exists("/lock")
			if err == nil && (!ok || stat.EphemeralOwner != id) {
				err = fmt.Errorf("its node is there: %v", ok)
			}
			return err
		})
		if r, err := c.ReadBack(cmd.Process.Pid); err != nil || r.Realtime != d {
			t.Errorf("read back %+v, %v", r, err)
		}
	}
	// What does end it, so that the above is not for want of an effect. A sign of
	// life from the owner may come between the jump and the server's next look at
	// its sessions, and save it; not every time.
	c.Force()
	jumped, next := time.Duration(0), time.Now()
	until(t, "session under monotonic +1m", func(context.Context) error {
		if time.Now().After(next) {
			jumped += time.Minute
			mustSet(t, c, Monotonic, jumped)
			next = time.Now().Add(3 * time.Second)
		}
		if ok, _, err := z.Exists("/lock"); err != nil || ok {
			return fmt.Errorf("the node is there (%v)", err)
		}
		return nil
	})
	t.Logf("gone after %v", jumped)
}
