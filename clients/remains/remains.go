// Package remains asks the servers themselves what stands for a lock: whose node,
// key or lease is in everybody's way. It knows where the clients of the catalog keep
// a lock (layouts.go), and nothing of where another program does. It changes nothing.
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

	"github.com/lockcheck/lockcheck/clients/internal/redisdb"
	"github.com/lockcheck/lockcheck/history"
)

// A Server is one that is asked.
type Server struct{ Name, Addr string }

// Of gives what stands for each of those locks on the servers of a backend, what
// comes first at first; a lock that nothing stands for is left out. ctx bounds it.
// Beside an error there may be what was found before it.
func Of(ctx context.Context, backend string, keys []string, servers []Server) (map[string][]history.Standing, error) {
	open := openRedis
	switch backend {
	case "zookeeper":
		open = openZooKeeper
	case "etcd":
		open = openEtcd
	}
	ask, done, err := open(ctx, servers)
	if err != nil {
		return nil, fmt.Errorf("ask %s what stands for a lock: %w", backend, err)
	}
	defer done()
	all := map[string][]history.Standing{}
	for _, key := range keys {
		ss, err := ask(ctx, key)
		if err != nil {
			return all, fmt.Errorf("ask %s what stands for %q: %w", backend, key, err)
		}
		if len(ss) > 0 {
			all[key] = ss
		}
	}
	return all, nil
}

// asking asks what stands for one lock.
type asking func(ctx context.Context, key string) ([]history.Standing, error)

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

// openZooKeeper asks for the contenders' nodes.
func openZooKeeper(ctx context.Context, servers []Server) (asking, func(), error) {
	c, _, err := zk.Connect(addrs(servers), session, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, c.Close) // the library takes no context
	ask := func(_ context.Context, key string) ([]history.Standing, error) {
		var all []history.Standing
		for _, dir := range directories(key) {
			ss, err := nodes(c, dir)
			if err != nil {
				return nil, err
			}
			all = append(all, ss...)
		}
		return all, nil
	}
	return ask, func() {
		if stop() {
			c.Close()
		}
	}, nil
}

// nodes are the contenders' nodes in one directory, in the order of their creation.
func nodes(c *zk.Conn, dir string) ([]history.Standing, error) {
	if _, err := c.Sync(dir); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	names, _, err := c.Children(dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	var ss []history.Standing
	for _, n := range names {
		if !isContender(n) {
			continue
		}
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

// openEtcd asks for the lock's or the contenders' keys, in the order of their
// creation.
func openEtcd(_ context.Context, servers []Server) (asking, func(), error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs(servers), Logger: zap.NewNop()})
	if err != nil {
		return nil, nil, err
	}
	ask := func(ctx context.Context, key string) ([]history.Standing, error) {
		var ss []history.Standing
		for _, p := range etcdPlaces(key) {
			resp, err := c.Get(ctx, p.name, p.options...)
			if err != nil {
				return nil, err
			}
			for _, kv := range resp.Kvs {
				s := history.Standing{Name: string(kv.Key), Token: uint64(kv.CreateRevision), Owner: "no lease"}
				if kv.Lease != 0 {
					s.Owner = fmt.Sprintf("lease %x", kv.Lease)
				}
				ss = append(ss, s)
			}
		}
		return inOrder(ss), nil
	}
	return ask, func() { c.Close() }, nil
}

func inOrder(ss []history.Standing) []history.Standing {
	slices.SortFunc(ss, func(a, b history.Standing) int { return cmp.Compare(a.Token, b.Token) })
	return ss
}

// openRedis asks for the lock's key on each server, with what is left of its life.
// A server that is down says nothing.
func openRedis(_ context.Context, servers []Server) (asking, func(), error) {
	dbs := make([]*redisdb.DB, len(servers))
	for i, srv := range servers {
		dbs[i] = redisdb.Single(srv.Addr, redisdb.Auth{})
	}
	ask := func(ctx context.Context, key string) ([]history.Standing, error) {
		var ss []history.Standing
		var errs []error
		for i, srv := range servers {
			for _, name := range redisKeys(key) {
				s, there, err := redisKey(ctx, dbs[i], name, srv.Name)
				errs = append(errs, err)
				if there {
					ss = append(ss, s)
				}
			}
		}
		if len(ss) > 0 {
			return ss, nil
		}
		return nil, errors.Join(errs...)
	}
	return ask, func() {
		for _, db := range dbs {
			db.Close()
		}
	}, nil
}

// redisKey asks one server for one key.
func redisKey(ctx context.Context, db *redisdb.DB, name, server string) (s history.Standing, there bool, err error) {
	v, err := db.Command(ctx, "PTTL", name)
	life, _ := v.(int64)
	s.Name = name + " on " + server
	switch {
	case err != nil || life == -2: // there is none
		return s, false, err
	case life == -1:
		s.Owner = "no expiry"
	default:
		s.Owner = fmt.Sprintf("%d ms to live", life)
	}
	return s, true, nil
}
