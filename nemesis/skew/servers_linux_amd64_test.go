package skew

import (
	"bytes"
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
	for end := time.Now().Add(1100 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err := check(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// serve starts a server, its log shown if the test fails.
func serve(t testing.TB, cmd *exec.Cmd, start func(*exec.Cmd) error) (logFile string) {
	t.Helper()
	logFile = filepath.Join(t.TempDir(), "log")
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
	return logFile
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
	path := needServer(t, "redis-server")
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

// ahead fails unless a server is d ahead: it is asked for its time between two
// looks at the real one, and what it says may be cut off by coarse.
func ahead(t testing.TB, what string, d, coarse time.Duration, ask func() time.Time) {
	t.Helper()
	before := now(Realtime)
	said := ask().UnixNano()
	after := now(Realtime)
	if least, most := time.Duration(said-after), time.Duration(said-before)+coarse; d < least || d > most {
		t.Errorf("%s: ahead by %v to %v, want %v", what, least, most, d)
	}
}

func TestRedis(t *testing.T) {
	ctx := context.Background()
	c := control(t)
	r, cmd := startRedis(t, byControl(c))
	const ttl, jump = 10 * time.Minute, 20 * time.Minute
	moved := time.Duration(0)
	move := func(d time.Duration) {
		mustSet(t, c, Realtime, d)
		moved = d
		ahead(t, "TIME", d, time.Microsecond, func() time.Time {
			said, err := r.Time(ctx).Result()
			if err != nil {
				t.Fatal(err)
			}
			return said
		})
	}
	lock := func(key string) (s span) {
		s.from = time.Duration(now(Realtime)) + moved
		if err := r.Set(ctx, key, "v", ttl).Err(); err != nil {
			t.Fatal(err)
		}
		s.to = time.Duration(now(Realtime)) + moved
		return s
	}
	left := func(key string, set span) {
		t.Helper()
		before := time.Duration(now(Realtime)) + moved
		d, err := r.PTTL(ctx, key).Result()
		after := time.Duration(now(Realtime)) + moved
		const whole = 2 * time.Millisecond // both times are cut off to those
		if err != nil || d < set.from+ttl-after-whole || d > set.to+ttl-before+whole {
			t.Errorf("%s has %v left (%v) at %v", key, d, err, moved)
		}
	}
	move(0)
	lock("early")
	move(jump)
	if err := r.Get(ctx, "early").Err(); err != redis.Nil {
		t.Errorf("a key of %v, %v later: %v, want %v", ttl, jump, err, redis.Nil)
	}
	set := lock("late")
	for _, d := range []time.Duration{jump, 0, -jump} {
		move(d)
		left("late", set)
	}
	if rb, err := c.ReadBack(cmd.Process.Pid); err != nil || rb.Realtime != -jump {
		t.Errorf("read back %+v, %v", rb, err)
	}
	if err := c.Reset(); err != nil {
		t.Fatal(err)
	}
	move(0)
	left("late", set)
}

func TestEtcd(t *testing.T) {
	path, err := filepath.Abs("../../bin/etcd")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal("bin/etcd was not built (make bin/etcd), so this cannot be tested")
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
	lease, err := e.Grant(ctx, int64(etcdLease.Seconds()))
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
	for _, d := range []time.Duration{2 * etcdLease, -2 * etcdLease} {
		mustSet(t, c, Realtime, d)
		ahead(t, "Date", d, time.Second, func() time.Time { return date(t, client+"/version") })
		holds(t, fmt.Sprintf("lease under %v", d), func() error {
			ok, err := alive()
			if err == nil && !ok {
				err = fmt.Errorf("the key is gone")
			}
			return err
		})
	}
	// What does end it, so that the above is not for want of an effect.
	mustSet(t, c, Monotonic, 2*etcdLease)
	until(t, "lease under a jump of the monotonic clock", func(context.Context) error {
		ok, err := alive()
		if ok {
			err = fmt.Errorf("the key is there")
		}
		return err
	})
}

// etcdLease does not end by itself while the test runs.
const etcdLease = 10 * patience

// date is what time it is by a web server's own word.
func date(t *testing.T, url string) time.Time {
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
	return d
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
	java := needServer(t, "java")
	if _, err := os.Stat(zookeeperJar); err != nil {
		t.Fatal("ZooKeeper is not installed (scripts/deps.sh), so this cannot be tested")
	}
	dir := t.TempDir()
	port := freePorts(t, 1)[0]
	conf := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "tickTime=500\nmaxSessionTimeout=60000\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n", dir, port), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(java, "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true",
		"-cp", zookeeperJar+":"+zookeeperLogger, "org.apache.zookeeper.server.quorum.QuorumPeerMain", conf)
	logFile := serve(t, cmd, byControl(c))
	// It listens before it has read its data, and never recovers from somebody who
	// comes in between.
	until(t, "start of ZooKeeper", func(context.Context) error {
		b, err := os.ReadFile(logFile)
		if err == nil && !bytes.Contains(b, []byte("PrepRequestProcessor")) {
			err = errors.New("it does not process requests yet")
		}
		return err
	})
	return fmt.Sprintf("127.0.0.1:%d", port), cmd
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

// TestZooKeeper has one session that keeps silent, and looks with another. That
// the jumps have an effect shows in the times of new nodes.
func TestZooKeeper(t *testing.T) {
	c := control(t)
	addr, cmd := startZooKeeper(t, c)
	owner, z := session(t, addr, "/lock"), session(t, addr, "/observer")
	id := owner.SessionID()
	for i, d := range []time.Duration{time.Minute, -time.Minute, 0} {
		mustSet(t, c, Realtime, d)
		node := fmt.Sprintf("/made%d", i)
		ahead(t, "the time of a new node", d, time.Millisecond, func() time.Time {
			if _, err := z.Create(node, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
			_, stat, err := z.Exists(node)
			if err != nil {
				t.Fatal(err)
			}
			return time.UnixMilli(stat.Ctime)
		})
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
	if err := c.Set(Monotonic, time.Minute); !errors.Is(err, ErrDeadlines) {
		t.Errorf("its monotonic clock: %v, want ErrDeadlines", err)
	}
}
