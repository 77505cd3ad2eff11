package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"

	"github.com/lockcheck/lockcheck/cluster"
)

// An Engine makes places for servers that are no processes of ours: containers.
// Workers, the store and the data directories stay on this machine.
type Engine interface {
	Name() string
	// Programs says how the servers of a backend are called there, by the names
	// that Find uses.
	Programs(backend string) map[string]string
	// Node makes the place of a server that listens on those ports.
	Node(name string, ports []int) (Box, error)
	// StoreAddr is where the fenced store is to listen; the port may be 0.
	StoreAddr() string
	// Proxies is the toxiproxy that the worker links lead through. Link puts a
	// proxy of that name before an address that the engine's places know, and
	// returns the address at which a process of this machine reaches it.
	Proxies() *toxiproxy.Client
	Link(name, upstream string) (addr string, err error)
	Versions() map[string]string
	// Close removes everything that was made.
	Close() error
}

// A Box is the place of one server in an Engine. It keeps its address and its
// network when the server in it ends.
type Box interface {
	Addr() string          // as the other servers reach it: an IPv4 address
	Door() (string, error) // host:port at which this process reaches its first port
	// Run starts a server. What it says goes into log, which Run owns from then on.
	// The directory dir is the same inside as outside.
	Run(cmd *exec.Cmd, dir string, log io.WriteCloser) (Server, error)
	// NetNS is the file of its network namespace, or an error where this process
	// may not enter it.
	NetNS() (string, error)
	// Detach takes the box off the network as a whole; Attach puts it back under
	// the address that it had. Attached reads that back.
	Detach(context.Context) error
	Attach(context.Context) error
	Attached(context.Context) (bool, error)
}

// A Server is a process in a Box.
type Server interface {
	Pid() int    // as this machine counts, where it can see it
	Wait() error // until it has ended
	Kill() error // with SIGKILL
	Freeze(context.Context) error
	Thaw(context.Context) error
	// Frozen reads back whether the server is stopped, and tells how it knows.
	Frozen(context.Context) (is bool, how string, err error)
	// Running reads back whether the server runs.
	Running(context.Context) (bool, error)
}

// On starts a cluster whose servers are in an engine's places, with workers on this
// machine. It owns the engine from here on.
func On(ctx context.Context, e Engine, spec cluster.Spec) (*Cluster, error) {
	since := startTime()
	spec.Proxy = true // the proxies are the workers' endpoints
	d, err := newDriverOf(spec, e.Programs(spec.Backend))
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return start(ctx, &outside{e: e, threads: newForker()}, d, spec, since)
}

// outside is a network whose nodes are an engine's places.
type outside struct {
	e       Engine
	threads *forker
}

func (n *outside) name() string { return n.e.Name() }

func (n *outside) node(_ int, name string, r role) (host, []int, error) {
	b, err := n.e.Node(name, r.ports)
	if err != nil {
		return nil, nil, err
	}
	h := &boxHost{name: name, box: b}
	if h.door, err = b.Door(); err != nil {
		return nil, nil, err
	}
	if file, err := b.NetNS(); err == nil {
		h.rules = newRules(name, file)
	}
	return h, r.ports, nil
}

func (n *outside) worker(int) (host, error) { return loopHost{n.threads}, nil }

func (n *outside) storeAddr() string { return n.e.StoreAddr() }

func (n *outside) proxies() *proxies { return &proxies{client: n.e.Proxies()} }

// link gives the worker the proxies' addresses. A client that is told a server's
// own address has to be told that of its proxy too: see Cluster.Routes.
func (n *outside) link(_ *proxies, worker int, _ host, ups []upstream) ([]string, error) {
	addrs := make([]string, len(ups))
	for i, u := range ups {
		var err error
		if addrs[i], err = n.e.Link(proxyName(worker, u.name), u.addr); err != nil {
			return nil, fmt.Errorf("create proxy %s: %w", proxyName(worker, u.name), err)
		}
	}
	return addrs, nil
}

// dataDir keeps the data on the disk: an engine may only see part of the file
// system, and what is mounted later is not in it.
func (n *outside) dataDir(dir string) (undo func() error, err error) {
	return func() error { return os.RemoveAll(dir) }, nil
}

func (n *outside) versions() map[string]string {
	v := n.e.Versions()
	v["kernel"] = kernelVersion()
	return v
}

func (n *outside) close() error {
	n.threads.close()
	return n.e.Close()
}

// A boxHost is a box as a place for a server.
type boxHost struct {
	name  string
	box   Box
	door  string
	rules cutter // nil where packets cannot be dropped
}

func (h *boxHost) addr() string { return h.box.Addr() }

func (h *boxHost) start(*exec.Cmd, starter) error {
	return fmt.Errorf("%s is a place for a server only", h.name)
}

// run starts a server in the box; the process that it gives can be waited for
// like any other.
func (h *boxHost) run(cmd *exec.Cmd, dir string, log io.WriteCloser, logFrom int64) (*process, error) {
	s, err := h.box.Run(cmd, dir, log)
	if err != nil {
		return nil, err
	}
	proc, err := os.FindProcess(s.Pid())
	if err != nil {
		return nil, errors.Join(err, s.Kill())
	}
	p := &process{cmd: &exec.Cmd{Process: proc}, box: s, logFrom: logFrom, done: make(chan struct{})}
	go func() {
		p.err = s.Wait()
		close(p.done)
	}()
	return p, nil
}

// server gives a node's process in a box, or an error where there is none.
func (c *Cluster) server(node string) (Server, error) {
	m, err := c.member(node)
	if err != nil {
		return nil, err
	}
	p, err := m.process()
	if err != nil {
		return nil, err
	}
	if p.box == nil {
		return nil, fmt.Errorf("%s is in no box", node)
	}
	return p.box, nil
}

// Boxed reports whether the servers are in an engine's places: Freeze, Thaw,
// Frozen, Running, Detach and Attach are for these only.
func (c *Cluster) Boxed() bool {
	_, ok := c.net.(*outside)
	return ok
}

// Freeze stops a node's server, and Thaw continues it.
func (c *Cluster) Freeze(ctx context.Context, node string) error {
	s, err := c.server(node)
	if err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	return s.Freeze(ctx)
}

// Thaw continues what Freeze stopped. It is idempotent, and nothing is to be
// continued of a server that has ended.
func (c *Cluster) Thaw(ctx context.Context, node string) error {
	s, err := c.server(node)
	if errors.Is(err, errNotRunning) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("thaw: %w", err)
	}
	return s.Thaw(ctx)
}

// Frozen reads back whether a node's server is stopped.
func (c *Cluster) Frozen(ctx context.Context, node string) (is bool, how string, err error) {
	s, err := c.server(node)
	if err != nil {
		return false, "", fmt.Errorf("look whether a server is frozen: %w", err)
	}
	return s.Frozen(ctx)
}

// Running reads back from the engine whether a node's last server runs.
func (c *Cluster) Running(ctx context.Context, node string) (bool, error) {
	m, err := c.member(node)
	if err != nil {
		return false, err
	}
	p := m.last()
	if p == nil || p.box == nil {
		return false, fmt.Errorf("%s is in no box", node)
	}
	return p.box.Running(ctx)
}

// Detach takes a node off the network as a whole, for its clients too, and Attach
// puts it back. Attached reads that back.
func (c *Cluster) Detach(ctx context.Context, node string) error {
	b, err := c.box(node)
	if err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	return b.Detach(ctx)
}

// Attach undoes Detach; it is idempotent.
func (c *Cluster) Attach(ctx context.Context, node string) error {
	b, err := c.box(node)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	return b.Attach(ctx)
}

// Attached reports whether a node is on the network.
func (c *Cluster) Attached(ctx context.Context, node string) (bool, error) {
	b, err := c.box(node)
	if err != nil {
		return false, err
	}
	return b.Attached(ctx)
}

func (c *Cluster) box(node string) (Box, error) {
	m, err := c.member(node)
	if err != nil {
		return nil, err
	}
	h, ok := m.host.(*boxHost)
	if !ok {
		return nil, fmt.Errorf("%s is in no box", node)
	}
	return h.box, nil
}

// Cuts reports whether packets between nodes can be lost here.
func (c *Cluster) Cuts() bool {
	_, err := c.cutter(c.members[0].name)
	return err == nil
}

// Routes says where worker i reaches the servers whose own addresses a client may
// be told by another server. It is nil where these lead to the right place by
// themselves, or are the ones that the client was given.
func (c *Cluster) Routes(worker int) map[string]string {
	p, err := c.place(worker)
	if err != nil || !c.Boxed() || c.spec.Backend != cluster.Sentinel {
		return nil
	}
	routes := map[string]string{}
	for i, m := range c.members {
		routes[m.addr(0)] = p.links[i]
	}
	return routes
}
