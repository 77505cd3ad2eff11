package external

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/cluster"
)

// ErrNotOffered is returned for what would change servers that are not ours.
var ErrNotOffered = errors.New("external: not offered: lockcheck leaves servers alone that it did not start")

// A Cluster is a set of servers that exist, with links of our own to them.
type Cluster struct {
	cfg     *Config
	access  *clients.Access
	spec    cluster.Spec
	id      string
	proxies *toxiproxy.Client
	made    []*toxiproxy.Proxy
	links   [][]string // by worker and node
	store   net.Listener
	ready   time.Duration
	version map[string]string

	close  sync.Once
	closed error
}

var _ cluster.Cluster = (*Cluster)(nil)

// Start connects to servers that exist. The configuration must be settled.
func Start(ctx context.Context, cfg *Config, spec cluster.Spec) (_ *Cluster, err error) {
	begun := time.Now()
	c := &Cluster{cfg: cfg, spec: spec, id: fmt.Sprintf("lockcheck-%d-%d", os.Getpid(), begun.UnixNano()%1e9), version: map[string]string{"network": Name}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close(context.WithoutCancel(ctx)))
		}
	}()
	if c.access, err = cfg.access(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(spec.Dir, "nodes"), 0o755); err != nil {
		return nil, fmt.Errorf("create run directory: %w", err)
	}
	if c.store, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("listen for the store: %w", err)
	}
	if err := c.reachable(ctx); err != nil {
		return nil, err
	}
	if err := c.serving(ctx); err != nil {
		return nil, err
	}
	if err := c.makeLinks(); err != nil {
		return nil, err
	}
	c.ready = time.Since(begun)
	return c, nil
}

// readyWithin bounds the wait for servers that may only just have been started.
const readyWithin = time.Minute

// serving waits until the servers do what a run will ask of them: a connection
// alone says nothing, since toxiproxy takes it for a server that is not there. What
// it asks for is the removal of what an earlier run may have left.
func (c *Cluster) serving(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		tctx, cancel := context.WithTimeout(ctx, readyWithin/10)
		err := c.removeKeys(tctx)
		cancel()
		if err == nil {
			return nil
		}
		if refused(err) {
			return fmt.Errorf("the servers do not let us in: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the servers are not ready: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// reachable connects to every node once.
func (c *Cluster) reachable(ctx context.Context) error {
	secure, err := c.access.Config()
	if err != nil {
		return err
	}
	for _, n := range c.cfg.Nodes {
		d := net.Dialer{Timeout: 5 * time.Second}
		conn, err := d.DialContext(ctx, "tcp", n.Endpoint)
		if err != nil {
			return fmt.Errorf("reach %s: %w", n.Name, err)
		}
		if secure != nil {
			err = handshake(ctx, conn, secure, n.Endpoint)
		}
		conn.Close()
		if refused(err) { // anything else may be a server that is not ready
			return fmt.Errorf("reach %s: %w", n.Name, err)
		}
	}
	return nil
}

func handshake(ctx context.Context, conn net.Conn, secure *tls.Config, addr string) error {
	own := secure.Clone()
	if own.ServerName == "" {
		own.ServerName, _, _ = net.SplitHostPort(addr)
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin/10)
	defer cancel()
	return tls.Client(conn, own).HandshakeContext(ctx)
}

// refused reports whether an error says that we are not let in, or do not trust the
// server, which no waiting mends.
func refused(err error) bool {
	var cert *tls.CertificateVerificationError
	if errors.As(err, &cert) {
		return true
	}
	for _, e := range []error{zk.ErrAuthFailed, zk.ErrNoAuth, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrPermissionDenied} {
		if errors.Is(err, e) {
			return true
		}
	}
	var r redis.Error
	return errors.As(err, &r) && slices.ContainsFunc([]string{"WRONGPASS", "NOAUTH", "NOPERM"}, func(s string) bool { return strings.HasPrefix(r.Error(), s) })
}

// makeLinks makes a proxy for each worker and node, where there is a toxiproxy.
func (c *Cluster) makeLinks() error {
	t := c.cfg.Toxiproxy
	if t == nil {
		return nil
	}
	c.proxies = toxiproxy.NewClient(t.API)
	v, err := c.proxies.Version()
	if err != nil {
		return fmt.Errorf("reach toxiproxy at %s: %w", t.API, err)
	}
	c.version["toxiproxy"] = string(v)
	first, last, err := t.ports()
	if err != nil {
		return err
	}
	if need := c.spec.Workers * len(c.cfg.Nodes); need > last-first+1 {
		return fmt.Errorf("toxiproxy has ports %s, and %d workers with %d nodes need %d", t.Ports, c.spec.Workers, len(c.cfg.Nodes), need)
	}
	port := first
	for w := range c.spec.Workers {
		var row []string
		for _, n := range c.cfg.Nodes {
			p, err := c.proxies.CreateProxy(c.ProxyName(w, n.Name), net.JoinHostPort("0.0.0.0", strconv.Itoa(port)), n.Upstream)
			if err != nil {
				return fmt.Errorf("create proxy %s: %w", c.ProxyName(w, n.Name), err)
			}
			c.made = append(c.made, p)
			row = append(row, net.JoinHostPort(t.Host, strconv.Itoa(port)))
			port++
		}
		c.links = append(c.links, row)
	}
	return nil
}

// Nodes implements cluster.Cluster.
func (c *Cluster) Nodes() []string {
	all, _ := c.cfg.Names()
	return all
}

// Endpoints implements cluster.Cluster.
func (c *Cluster) Endpoints(worker int) []string {
	var out []string
	for i, n := range c.cfg.Nodes {
		if c.spec.Backend == cluster.Sentinel && !n.Sentinel {
			continue
		}
		if c.links != nil {
			out = append(out, c.links[worker][i])
		} else {
			out = append(out, n.Endpoint)
		}
	}
	return out
}

// Routes lead a client that is told a server's address to its own link.
func (c *Cluster) Routes(worker int) map[string]string {
	if c.links == nil || c.spec.Backend != cluster.Sentinel {
		return nil
	}
	routes := map[string]string{}
	for i, n := range c.cfg.Nodes {
		routes[n.Endpoint] = c.links[worker][i]
	}
	return routes
}

// ListenStore implements cluster.Cluster.
func (c *Cluster) ListenStore() (net.Listener, error) { return c.store, nil }

// StoreURL implements cluster.Cluster: the store is on this machine, and no
// toxiproxy is between.
func (c *Cluster) StoreURL(int) string { return "http://" + c.store.Addr().String() }

// StartWorker implements cluster.Cluster.
func (c *Cluster) StartWorker(_ int, cmd *exec.Cmd) error {
	ownGroup(cmd)
	return cmd.Start()
}

// Proxies implements cluster.Cluster.
func (c *Cluster) Proxies() *toxiproxy.Client { return c.proxies }

// ProxyName implements cluster.Cluster. The names are this run's own: others may
// use the same toxiproxy.
func (c *Cluster) ProxyName(worker int, node string) string {
	return fmt.Sprintf("%s-w%d-%s", c.id, worker, node)
}

// Versions implements cluster.Cluster.
func (c *Cluster) Versions() map[string]string { return c.version }

// Timing implements cluster.Cluster.
func (c *Cluster) Timing() cluster.Timing { return cluster.Timing{Ready: c.ready} }

// Access is what workers need to be let in; nil for nothing.
func (c *Cluster) Access() *clients.Access { return c.access }

// Prefix comes before the names of locks on the servers.
func (c *Cluster) Prefix() string { return c.cfg.Prefix }

// Master is the name that the sentinels know.
func (c *Cluster) Master() string { return c.cfg.Master }

// Leader is not offered, as nothing of what follows: the contract's tests look for
// the refusal.
func (c *Cluster) Leader(context.Context) (string, error) { return "", ErrNotOffered }

// Kill is not offered.
func (c *Cluster) Kill(string) error { return ErrNotOffered }

// Restart is not offered.
func (c *Cluster) Restart(context.Context, bool, ...string) error { return ErrNotOffered }

// Cut is not offered.
func (c *Cluster) Cut(string, ...string) error { return ErrNotOffered }

// HealCuts is not offered.
func (c *Cluster) HealCuts() error { return ErrNotOffered }

// Whole says what is not as it was when the run began: one of our links is down or
// has toxics.
func (c *Cluster) Whole(context.Context) error {
	if c.proxies == nil {
		return nil
	}
	list, err := c.proxies.Proxies()
	errs := []error{err}
	for name, p := range list {
		if !slices.ContainsFunc(c.made, func(m *toxiproxy.Proxy) bool { return m.Name == name }) {
			continue
		}
		if !p.Enabled || len(p.ActiveToxics) > 0 {
			errs = append(errs, fmt.Errorf("the link %s is down or has toxics", name))
		}
	}
	return errors.Join(errs...)
}

// Close implements cluster.Cluster: it removes our links and our keys.
func (c *Cluster) Close(ctx context.Context) error {
	c.close.Do(func() {
		var errs []error
		for _, p := range c.made {
			errs = append(errs, p.Delete())
		}
		if c.store != nil {
			if err := c.store.Close(); !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
		if c.ready > 0 {
			errs = append(errs, c.removeKeys(ctx))
		}
		c.closed = errors.Join(errs...)
	})
	return c.closed
}
