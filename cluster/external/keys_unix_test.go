//go:build unix

package external

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
)

func TestMain(m *testing.M) {
	bin, err := filepath.Abs("../../bin")
	if err == nil {
		err = os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// keys are those of a backend, in order, for a test.
type keys interface {
	put(t *testing.T, name string)
	all(t *testing.T) []string
}

// TestOnlyItsOwnKeysAreRemoved has somebody else's keys on the servers, and some
// that an earlier run left: those of the prefix are gone when the cluster stands,
// and again when it is given back; the others stay.
func TestOnlyItsOwnKeysAreRemoved(t *testing.T) {
	for backend, open := range map[string]func(*testing.T, []string) (keys, string){
		cluster.Redis:     openRedis,
		cluster.Etcd:      openEtcd,
		cluster.ZooKeeper: openZooKeeper,
	} {
		t.Run(backend, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			there, err := local.Loopback(ctx, cluster.Spec{Backend: backend, Workers: 1, Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer there.Close(context.Background())
			db, own := open(t, there.Endpoints(0))
			db.put(t, "others")
			before := db.all(t)
			db.put(t, own)
			if len(db.all(t)) <= len(before) {
				t.Fatal("nothing to remove")
			}
			cfg := &Config{}
			for _, a := range there.Endpoints(0) {
				cfg.Nodes = append(cfg.Nodes, Node{Endpoint: a})
			}
			if err := cfg.Settle(backend); err != nil {
				t.Fatal(err)
			}
			c, err := Start(ctx, cfg, cluster.Spec{Backend: backend, Workers: 1, Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			if got := db.all(t); !slices.Equal(got, before) {
				t.Errorf("at the start %q are there, not %q", got, before)
			}
			db.put(t, own)
			if err := c.Close(ctx); err != nil {
				t.Error(err)
			}
			if got := db.all(t); !slices.Equal(got, before) {
				t.Errorf("at the end %q are there, not %q", got, before)
			}
		})
	}
}

type redisKeys struct{ db *redis.Client }

func openRedis(t *testing.T, addrs []string) (keys, string) {
	db := redis.NewClient(&redis.Options{Addr: addrs[0]})
	t.Cleanup(func() { db.Close() })
	return redisKeys{db}, DefaultPrefix + "orders"
}

func (k redisKeys) put(t *testing.T, name string) {
	if err := k.db.Set(t.Context(), name, 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func (k redisKeys) all(t *testing.T) []string {
	all, err := k.db.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

type etcdKeys struct{ db *clientv3.Client }

func openEtcd(t *testing.T, addrs []string) (keys, string) {
	db, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return etcdKeys{db}, DefaultPrefix + "orders"
}

func (k etcdKeys) put(t *testing.T, name string) {
	if _, err := k.db.Put(t.Context(), name, "1"); err != nil {
		t.Fatal(err)
	}
}

func (k etcdKeys) all(t *testing.T) []string {
	r, err := k.db.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, kv := range r.Kvs {
		all = append(all, string(kv.Key))
	}
	return all
}

type zookeeperKeys struct{ conn *zk.Conn }

func openZooKeeper(t *testing.T, addrs []string) (keys, string) {
	conn, _, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	// Lock directories are below a root of their own, their names escaped.
	return zookeeperKeys{conn}, "lockcheck/lockcheck%2Forders"
}

func (k zookeeperKeys) put(t *testing.T, name string) {
	for i := range len(name) + 1 {
		if i == len(name) || name[i] == '/' {
			if _, err := k.conn.Create("/"+name[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && err != zk.ErrNodeExists {
				t.Fatal(err)
			}
		}
	}
}

func (k zookeeperKeys) all(t *testing.T) []string {
	var all []string
	var walk func(string)
	walk = func(at string) {
		if _, err := k.conn.Sync(at); err != nil {
			t.Fatal(err)
		}
		children, _, err := k.conn.Children(at)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(children)
		for _, c := range children {
			c = path.Join(at, c)
			all = append(all, c)
			if c != "/zookeeper" { // the server's own
				walk(c)
			}
		}
	}
	walk("/")
	return all
}
