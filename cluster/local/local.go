package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"

	"github.com/lockcheck/lockcheck/cluster"
)

const (
	// startLimit bounds the start of a cluster and of a node. It is generous: a
	// loaded machine is slow, and a server that dies is noticed at once.
	startLimit = time.Minute
	// portTries is how often a start on loopback is repeated with other ports.
	portTries = 5
)

// ErrNoLeader is wrapped when no server leads, or when there is nothing to lead.
var ErrNoLeader = errors.New("local: no leader")

// A network makes the places for servers and workers.
type network interface {
	name() string
	// node returns the place of the i-th server, and its ports there.
	node(i int, name string, r role) (host, []int, error)
	// worker makes the place of worker i.
	worker(i int) (host, error)
	// storeAddr is where the fenced store is to listen; the port may be 0.
	storeAddr() string
	// link puts a proxy between a worker and each of the upstreams and returns
	// the addresses that the worker is to use.
	link(p *proxies, worker int, h host, ups []upstream) (addrs []string, err error)
	// dataDir turns the run's directory for data into the place where it is
	// kept.
	dataDir(dir string) (undo func() error, err error)
	versions() map[string]string
	close() error
}

// A Cluster is a running set of servers on this machine. Beyond
// cluster.Cluster it offers what faults are made of.
type Cluster struct {
	spec    cluster.Spec
	net     network
	driver  driver
	members []*member
	workers []*place
	proxies *proxies // nil when the links are direct
	store   net.Listener
	timing  cluster.Timing
	version map[string]string

	undoData func() error // nil until there is a data directory
	close    sync.Once
	closed   error

	mu         sync.Mutex
	storeTaken bool
}

// A place is where a worker's processes run, and how it reaches the rest.
type place struct {
	host      host
	endpoints []string
	links     []string // the addresses of all nodes, as the worker is to use them
	storeAddr string
	clock     *clock
}

var _ cluster.Cluster = (*Cluster)(nil)

// firstStart is taken by the first cluster of this process: its time counts from
// the start of the command, that of later ones from their own start.
var firstStart atomic.Bool

func startTime() time.Time {
	if firstStart.CompareAndSwap(false, true) {
		return time.Now().Add(-sinceStarted())
	}
	return time.Now()
}

// start brings a cluster up on a network. It owns the network from here on. The
// time counts from since on.
func start(ctx context.Context, n network, d driver, spec cluster.Spec, since time.Time) (_ *Cluster, err error) {
	c := &Cluster{spec: spec, net: n, driver: d}
	defer func() {
		if err != nil {
			cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
			defer cancel()
			err = errors.Join(err, c.Close(cctx))
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready after %v", startLimit))
	defer cancel()
	if err := c.prepare(); err != nil {
		return nil, err
	}
	if err := c.startServers(ctx); err != nil {
		return nil, err
	}
	// The servers are busy with their own start meanwhile.
	if err := c.makeWorkers(); err != nil {
		return nil, err
	}
	if err := supervise(ctx, c.members, func(ctx context.Context) error { return d.ready(ctx, c.members) }); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Backend, err)
	}
	c.timing.Ready = time.Since(since)
	c.version, err = c.askVersions(ctx)
	return c, err
}

// prepare makes directories, places and members.
func (c *Cluster) prepare() error {
	dir, err := filepath.Abs(c.spec.Dir)
	if err != nil {
		return fmt.Errorf("find run directory: %w", err)
	}
	logs, data := filepath.Join(dir, "nodes"), filepath.Join(dir, "data")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("create run directory: %w", err)
	}
	// It must be new: servers would take up another run's data.
	if err := os.Mkdir(data, 0o700); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	undo, err := c.net.dataDir(data)
	if err != nil {
		return errors.Join(err, os.Remove(data))
	}
	c.undoData = undo
	for i, r := range c.driver.roles() {
		h, ports, err := c.net.node(i, r.name, r.role)
		if err != nil {
			return fmt.Errorf("make a place for %s: %w", r.name, err)
		}
		var clock *clock
		if !c.Boxed() { // an engine starts its servers itself
			if clock, err = c.newClock(); err != nil {
				return fmt.Errorf("make a place for %s: %w", r.name, err)
			}
		}
		c.members = append(c.members, &member{
			name: r.name, role: r.role, host: h, ports: ports, clock: clock,
			dir: filepath.Join(data, r.name),
			log: filepath.Join(logs, r.name+".log"),
		})
	}
	if c.store, err = net.Listen("tcp", c.net.storeAddr()); err != nil {
		return fmt.Errorf("listen for the store: %w", err)
	}
	return nil
}

// startServers starts the members' processes, those of the second wave when the
// first is listening.
func (c *Cluster) startServers(ctx context.Context) error {
	var first, second []*member
	for i, r := range c.driver.roles() {
		if r.second {
			second = append(second, c.members[i])
		} else {
			first = append(first, c.members[i])
		}
	}
	if err := c.startAll(first); err != nil {
		return err
	}
	if len(second) == 0 {
		return nil
	}
	err := supervise(ctx, c.members, func(ctx context.Context) error {
		return each(first, func(m *member) error { return listening(ctx, m) })
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", c.spec.Backend, err)
	}
	return c.startAll(second)
}

func (c *Cluster) startAll(ms []*member) error {
	return each(ms, func(m *member) error {
		if err := os.MkdirAll(m.dir, 0o700); err != nil {
			return fmt.Errorf("create directory of %s: %w", m.name, err)
		}
		cmd, err := c.driver.command(m, c.members)
		if err != nil {
			return err
		}
		if err := m.mark(); err != nil {
			return err
		}
		return m.start(cmd)
	})
}

// supervise runs f with a context that ends when one of the servers does; the
// error is then its *Died. Members that were never started do not count.
func supervise(ctx context.Context, ms []*member, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, m := range ms {
		p := m.last()
		if p == nil {
			continue
		}
		go func() {
			select {
			case <-p.done:
				cancel(m.died(p))
			case <-ctx.Done():
			}
		}()
	}
	err := f(ctx)
	if err == nil {
		return nil
	}
	if d := (*Died)(nil); errors.As(context.Cause(ctx), &d) {
		return d
	}
	return fmt.Errorf("%w\n%s", err, logTails(ms))
}

// makeWorkers makes the workers' places and, if asked, their proxies: all before
// the first worker starts.
func (c *Cluster) makeWorkers() (err error) {
	if n, ok := c.net.(*outside); ok {
		c.proxies = n.proxies()
	} else if c.spec.Proxy {
		if c.proxies, err = startProxies(); err != nil {
			return err
		}
	}
	ups := c.upstreams()
	for i := range c.spec.Workers {
		h, err := c.net.worker(i)
		if err != nil {
			return fmt.Errorf("make a place for worker %d: %w", i, err)
		}
		addrs := make([]string, len(ups))
		for k, u := range ups {
			addrs[k] = u.addr
		}
		if c.proxies != nil {
			if addrs, err = c.net.link(c.proxies, i, h, ups); err != nil {
				return fmt.Errorf("proxy the links of worker %d: %w", i, err)
			}
		}
		place := c.newPlace(h, addrs)
		c.workers = append(c.workers, place)
		if place.clock, err = c.newClock(); err != nil {
			return fmt.Errorf("make a place for worker %d: %w", i, err)
		}
	}
	return nil
}

// upstreams are what a worker may connect to: every node, and the store.
func (c *Cluster) upstreams() []upstream {
	var ups []upstream
	for _, m := range c.members {
		ups = append(ups, upstream{name: m.name, addr: m.addr(0)})
	}
	return append(ups, upstream{name: storeName, addr: c.store.Addr().String()})
}

// newPlace picks a worker's endpoints out of the addresses of all upstreams.
func (c *Cluster) newPlace(h host, addrs []string) *place {
	p := &place{host: h, links: addrs[:len(c.members)], storeAddr: addrs[len(addrs)-1]}
	for k, m := range c.members {
		if c.spec.Backend != cluster.Sentinel || m.role.server == redisSentinel {
			p.endpoints = append(p.endpoints, addrs[k])
		}
	}
	return p
}

func (c *Cluster) askVersions(ctx context.Context) (map[string]string, error) {
	v, err := c.driver.versions(ctx, c.members)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", c.spec.Backend, err)
	}
	v["network"] = c.net.name()
	v["toxiproxy"] = toxiproxyVersion() // an engine's own says another
	for k, s := range c.net.versions() {
		v[k] = s
	}
	return v, nil
}

// Nodes implements cluster.Cluster.
func (c *Cluster) Nodes() []string {
	var out []string
	for _, m := range c.members {
		out = append(out, m.name)
	}
	return out
}

// Endpoints implements cluster.Cluster. It is nil for a worker without a place.
func (c *Cluster) Endpoints(worker int) []string {
	p, err := c.place(worker)
	if err != nil {
		return nil
	}
	return append([]string(nil), p.endpoints...)
}

// ListenStore implements cluster.Cluster. There is one listener; it was opened
// at the start, so that its address was known to the proxies.
func (c *Cluster) ListenStore() (net.Listener, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.storeTaken {
		return nil, errors.New("listen for the store: already taken")
	}
	c.storeTaken = true
	return c.store, nil
}

// StoreURL implements cluster.Cluster. It is empty for a worker without a place.
func (c *Cluster) StoreURL(worker int) string {
	p, err := c.place(worker)
	if err != nil {
		return ""
	}
	return "http://" + p.storeAddr
}

// StartWorker implements cluster.Cluster. The command must not have been started.
func (c *Cluster) StartWorker(worker int, cmd *exec.Cmd) error {
	p, err := c.place(worker)
	if err != nil {
		return fmt.Errorf("start worker %d: %w", worker, err)
	}
	if err := p.host.start(cmd, p.clock.starter()); err != nil {
		return fmt.Errorf("start worker %d: %w", worker, err)
	}
	return nil
}

func (c *Cluster) place(worker int) (*place, error) {
	if worker < 0 || worker >= len(c.workers) {
		return nil, fmt.Errorf("there are %d places for workers, from 0 on", len(c.workers))
	}
	return c.workers[worker], nil
}

// Proxies implements cluster.Cluster.
func (c *Cluster) Proxies() *toxiproxy.Client {
	if c.proxies == nil {
		return nil
	}
	return c.proxies.client
}

// ProxyName implements cluster.Cluster.
func (c *Cluster) ProxyName(worker int, node string) string { return proxyName(worker, node) }

// Versions implements cluster.Cluster.
func (c *Cluster) Versions() map[string]string {
	out := make(map[string]string, len(c.version))
	for k, v := range c.version {
		out[k] = v
	}
	return out
}

// Timing implements cluster.Cluster.
func (c *Cluster) Timing() cluster.Timing { return c.timing }
