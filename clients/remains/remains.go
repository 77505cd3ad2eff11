// Package remains asks the servers themselves what stands for a lock: whose node,
// key or lease is in everybody's way. It knows where lockcheck's own clients keep
// a lock, and nothing of where a foreign program does. It changes nothing.
package remains

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockcheck/lockcheck/clients/etcd"
	"github.com/lockcheck/lockcheck/clients/internal/redisdb"
	"github.com/lockcheck/lockcheck/clients/zookeeper"
	"github.com/lockcheck/lockcheck/history"
)

// A Server is one that is asked.
type Server struct{ Name, Addr string }

// Of gives what stands for a lock on those servers of a backend, what comes first
// at first. ctx bounds it.
func Of(ctx context.Context, backend, key string, servers []Server) ([]history.Standing, error) {
	ask := onRedis
	switch backend {
	case "zookeeper":
		ask = onZooKeeper
	case "etcd":
		ask = onEtcd
	}
	s, err := ask(ctx, key, servers)
	if err != nil {
		return nil, fmt.Errorf("ask what stands for %s on %s: %w", key, backend, err)
	}
	return s, nil
}

func addrs(servers []Server) []string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr)
	}
	return all
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// session is long enough for one look.
const session = 2 * time.Second

// onZooKeeper are the contenders' nodes, in the order of their creation.
func onZooKeeper(ctx context.Context, key string, servers []Server) ([]history.Standing, error) {
	c, _, err := zk.Connect(addrs(servers), session, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, c.Close)() // the library takes no context
	dir := zookeeper.Dir(key)
	_, err = c.Sync(dir)
	var names []string
	if err == nil {
		names, _, err = c.Children(dir)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	var ss []history.Standing
	for _, n := range names {
		there, stat, xerr := c.Exists(path.Join(dir, n))
		if err = errors.Join(err, xerr); xerr != nil || !there {
			continue
		}
		s := history.Standing{Name: path.Join(dir, n), Token: uint64(stat.Czxid), Owner: "no session"}
		if stat.EphemeralOwner != 0 {
			s.Owner = fmt.Sprintf("session %#x", uint64(stat.EphemeralOwner))
		}
		ss = append(ss, s)
	}
	return inOrder(ss), err
}

// onEtcd are the lock's or the contenders' keys, in the order of their creation.
func onEtcd(ctx context.Context, key string, servers []Server) ([]history.Standing, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs(servers), Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	one, err := c.Get(ctx, etcd.LockKey(key))
	if err != nil {
		return nil, err
	}
	queue, err := c.Get(ctx, etcd.QueueDir(key), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	var ss []history.Standing
	for _, kv := range slices.Concat(one.Kvs, queue.Kvs) {
		s := history.Standing{Name: string(kv.Key), Token: uint64(kv.CreateRevision), Owner: "no lease"}
		if kv.Lease != 0 {
			s.Owner = fmt.Sprintf("lease %x", kv.Lease)
		}
		ss = append(ss, s)
	}
	return inOrder(ss), nil
}

func inOrder(ss []history.Standing) []history.Standing {
	slices.SortFunc(ss, func(a, b history.Standing) int { return cmp.Compare(a.Token, b.Token) })
	return ss
}

// onRedis are the lock's key on each server, with what is left of its life. A
// server that is down says nothing.
func onRedis(ctx context.Context, key string, servers []Server) ([]history.Standing, error) {
	var ss []history.Standing
	var errs []error
	for _, srv := range servers {
		db := redisdb.Single(srv.Addr, redisdb.Auth{})
		v, err := db.Command(ctx, "PTTL", redisdb.LockKey(key))
		errs = append(errs, err, db.Close())
		life, _ := v.(int64)
		switch {
		case err != nil || life == -2: // there is none
		case life == -1:
			ss = append(ss, history.Standing{Name: redisdb.LockKey(key) + " on " + srv.Name, Owner: "no expiry"})
		default:
			ss = append(ss, history.Standing{Name: redisdb.LockKey(key) + " on " + srv.Name, Owner: fmt.Sprintf("%d ms to live", life)})
		}
	}
	if len(ss) > 0 {
		return ss, nil
	}
	return nil, errors.Join(errs...)
}
