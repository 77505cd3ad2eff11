package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockcheck/lockcheck/clients/remains"
	"github.com/lockcheck/lockcheck/cluster"
)

// ErrNoHandOver is wrapped where no leader can be asked to let another one lead.
var ErrNoHandOver = errors.New("local: the leader cannot be asked to hand over")

// HandOver asks the leader to let another server lead. Who leads then is for
// Leader to say.
func (c *Cluster) HandOver(ctx context.Context) error {
	d, ok := c.driver.(steppingDown)
	if !ok {
		return fmt.Errorf("hand over on %s: %w", c.spec.Backend, ErrNoHandOver)
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	if err := d.handOver(ctx, c.members); err != nil {
		return fmt.Errorf("hand over on %s: %w", c.spec.Backend, err)
	}
	return nil
}

// Servers gives the servers that hold locks, at the addresses at which this
// process reaches them.
func (c *Cluster) Servers() []remains.Server {
	_, data := NodeNames(c.spec.Backend)
	var all []remains.Server
	for _, m := range c.members {
		if slices.Contains(data, m.name) {
			all = append(all, remains.Server{Name: m.name, Addr: m.door()})
		}
	}
	return all
}

// DataID names the data that a node has: it changes when the data is lost. A
// Redis without persistence has its data in its process only.
func (c *Cluster) DataID(node string) (string, error) {
	m, err := c.member(node)
	if err != nil {
		return "", fmt.Errorf("identify data: %w", err)
	}
	b, err := os.ReadFile(filepath.Join(m.dataDir(), markFile))
	if err != nil {
		return "", fmt.Errorf("identify data of %s: %w", node, err)
	}
	id := string(b)
	if !Durable(c.spec) {
		pid, err := c.Pid(node)
		if err != nil {
			return "", fmt.Errorf("identify data of %s: %w", node, err)
		}
		id = fmt.Sprintf("%s in process %d", id, pid)
	}
	return id, nil
}

// Durable reports whether a server that is restarted still has its data.
func Durable(spec cluster.Spec) bool {
	switch spec.Backend {
	case cluster.ZooKeeper, cluster.Etcd:
		return true
	}
	return spec.Persistence == "aof"
}

// NodeNames are the names that the nodes of a backend will have, and those of
// the nodes that hold its data.
func NodeNames(backend string) (all, data []string) {
	d := map[string]driver{
		cluster.Redis:     &redisDriver{nodes: 1},
		cluster.Redlock:   &redisDriver{nodes: redlockNodes},
		cluster.Sentinel:  &sentinelDriver{redis: redisDriver{nodes: sentinelServers}},
		cluster.ZooKeeper: &zookeeperDriver{},
		cluster.Etcd:      &etcdDriver{},
	}[backend]
	if d == nil {
		return nil, nil
	}
	for _, r := range d.roles() {
		all = append(all, r.name)
		if r.role.server != redisSentinel {
			data = append(data, r.name)
		}
	}
	return all, data
}

// Whole says what is not as it was when the cluster was started: a server that
// does not run or is stopped, a proxy that is down or has toxics, packets that
// are dropped, a clock that is not the real one.
func (c *Cluster) Whole(ctx context.Context) error {
	var errs []error
	for _, m := range c.members {
		p, err := m.process()
		if err == nil {
			err = goesOn(ctx, p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			continue
		}
		if h, err := c.cutter(m.name); err == nil {
			ds, err := h.dropped()
			if err == nil && len(ds) > 0 {
				err = fmt.Errorf("packets from %s and %d others are dropped", ds[0].From, len(ds)-1)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			}
		}
	}
	errs = append(errs, c.clocksAtZero())
	if c.proxies != nil {
		errs = append(errs, c.proxies.whole(ctx))
	}
	return errors.Join(errs...)
}

// goesOn is an error if a process is stopped.
func goesOn(ctx context.Context, p *process) error {
	if p.box == nil {
		return notStopped(p.cmd.Process.Pid)
	}
	frozen, how, err := p.box.Frozen(ctx)
	if err == nil && frozen {
		err = fmt.Errorf("it is stopped (%s)", how)
	}
	return err
}

// whole looks for toxics and for proxies that are down.
func (p *proxies) whole(ctx context.Context) error {
	got := make(chan error, 1)
	go func() {
		list, err := p.client.Proxies()
		errs := []error{err}
		for name, x := range list {
			if !x.Enabled {
				errs = append(errs, fmt.Errorf("the link %s is down", name))
			}
			for _, t := range x.ActiveToxics {
				errs = append(errs, fmt.Errorf("the link %s has the toxic %s", name, t.Name))
			}
		}
		got <- errors.Join(errs...)
	}()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return fmt.Errorf("ask toxiproxy: %w", ctx.Err())
	}
}
