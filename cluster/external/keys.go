package external

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockcheck/lockcheck/cluster"
)

// zookeeperRoot is above the locks of every run; escaped names are below it.
const zookeeperRoot = "/lockcheck"

// removeKeys removes what is under the prefix, and nothing else.
func (c *Cluster) removeKeys(ctx context.Context) error {
	var err error
	switch c.spec.Backend {
	case cluster.ZooKeeper:
		err = c.removeNodes(ctx)
	case cluster.Etcd:
		err = c.removeFromEtcd(ctx)
	default:
		err = c.removeFromRedis(ctx)
	}
	if err != nil {
		return fmt.Errorf("remove the keys under %q: %w", c.cfg.Prefix, err)
	}
	return nil
}

func (c *Cluster) removeFromRedis(ctx context.Context) error {
	var errs []error
	for _, n := range c.cfg.Nodes {
		if !n.Sentinel {
			errs = append(errs, c.removeFromOne(ctx, n.Endpoint))
		}
	}
	return errors.Join(errs...)
}

// removeFromOne removes from one server; a replica has what its master has.
func (c *Cluster) removeFromOne(ctx context.Context, addr string) error {
	secure, err := c.access.Config()
	if err != nil {
		return err
	}
	user, password := c.access.Login()
	db := redis.NewClient(&redis.Options{Addr: addr, Username: user, Password: password, TLSConfig: secure, Protocol: 2, DisableIdentity: true})
	defer db.Close()
	if role, err := db.Do(ctx, "ROLE").Slice(); err != nil || len(role) > 0 && role[0] == "slave" {
		return err
	}
	match := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(c.cfg.Prefix) + "*"
	keys := db.Scan(ctx, 0, match, 1000).Iterator()
	for keys.Next(ctx) {
		if err := db.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

func (c *Cluster) removeFromEtcd(ctx context.Context) error {
	secure, err := c.access.Config()
	if err != nil {
		return err
	}
	cfg := clientv3.Config{TLS: secure, Logger: zap.NewNop()}
	cfg.Username, cfg.Password = c.access.Login()
	scheme := "http://"
	if secure != nil {
		scheme = "https://"
	}
	for _, n := range c.cfg.Nodes {
		cfg.Endpoints = append(cfg.Endpoints, scheme+n.Endpoint)
	}
	db, err := clientv3.New(cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Delete(ctx, c.cfg.Prefix, clientv3.WithPrefix())
	return err
}

// removeNodes removes the locks' directories whose names begin with the prefix.
func (c *Cluster) removeNodes(ctx context.Context) error {
	var addrs []string
	for _, n := range c.cfg.Nodes {
		addrs = append(addrs, n.Endpoint)
	}
	conn, _, err := zk.Connect(addrs, 5*time.Second, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, conn.Close)() // the library takes no context
	if user, password := c.access.Login(); user != "" {
		if err := conn.AddAuth("digest", []byte(user+":"+password)); err != nil {
			return err
		}
	}
	names, _, err := conn.Children(zookeeperRoot)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, url.QueryEscape(c.cfg.Prefix)) {
			continue
		}
		dir := zookeeperRoot + "/" + name
		children, _, err := conn.Children(dir)
		if err != nil {
			return err
		}
		for _, child := range children {
			if err := conn.Delete(dir+"/"+child, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
		if err := conn.Delete(dir, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	// It stays if others have locks there.
	if err := conn.Delete(zookeeperRoot, -1); err != nil && !errors.Is(err, zk.ErrNotEmpty) && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	return nil
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
