package local

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
	"golang.org/x/sys/unix"

	"github.com/lockcheck/lockcheck/cluster"
)

const (
	storePort = 9000
	// Proxies listen below the range that outgoing connections take their ports
	// from, so that one which was disabled finds its port free again.
	proxyBase   = 20000
	proxyStride = 16 // ports kept for one worker
)

// Lab starts a cluster in the lab. The process must be inside it.
func Lab(ctx context.Context, spec cluster.Spec) (*Cluster, error) {
	if !inside {
		return nil, ErrOutside
	}
	since := startTime()
	d, err := newDriver(spec)
	if err != nil {
		return nil, err
	}
	if spec.Workers > labWorkers {
		return nil, fmt.Errorf("start %s: %d workers: the lab has places for %d", spec.Backend, spec.Workers, labWorkers)
	}
	b, err := newBridge()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Backend, err)
	}
	return start(ctx, &labNetwork{b: b}, d, spec, since)
}

// A labNetwork gives every server and worker a namespace.
type labNetwork struct{ b *bridge }

func (n *labNetwork) name() string { return NetworkLab }

func (n *labNetwork) node(i int, name string, r role) (host, []int, error) {
	h, err := n.b.addHost(name, byte(firstNode+i))
	return h, r.ports, err
}

func (n *labNetwork) worker(i int) (host, error) {
	return n.b.addHost("w"+strconv.Itoa(i), byte(firstWorker+i))
}

func (n *labNetwork) storeAddr() string {
	return net.JoinHostPort(n.b.bridgeIP().String(), strconv.Itoa(storePort))
}

// link redirects the worker's connections inside its namespace, so that its
// client uses the servers' own addresses and cannot help using the proxy.
func (n *labNetwork) link(p *proxies, worker int, h host, ups []upstream) ([]string, error) {
	var addrs []string
	var list []toxiproxy.Proxy
	var rules []redirect
	for k, u := range ups {
		to, err := netip.ParseAddrPort(u.addr)
		if err != nil {
			return nil, fmt.Errorf("address of %s: %w", u.name, err)
		}
		at := netip.AddrPortFrom(n.b.bridgeIP(), uint16(proxyBase+worker*proxyStride+k))
		list = append(list, toxiproxy.Proxy{
			Name: proxyName(worker, u.name), Listen: at.String(), Upstream: u.addr, Enabled: true,
		})
		rules = append(rules, redirect{ip: to.Addr(), port: to.Port(), toIP: at.Addr(), toPort: at.Port()})
		addrs = append(addrs, u.addr)
	}
	if _, err := p.client.Populate(list); err != nil {
		return nil, err
	}
	return addrs, h.(*labHost).redirect(rules)
}

// dataDir puts a tmpfs over the directory, in the lab's mount namespace only:
// what it holds is gone with the lab, however that ends.
func (n *labNetwork) dataDir(dir string) (undo func() error, err error) {
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		return nil, fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	return func() error {
		// Lazily, since a reader may still be in it; nobody writes any more.
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
		return os.Remove(dir)
	}, nil
}

func (n *labNetwork) versions() map[string]string {
	v := map[string]string{"kernel": kernelVersion()}
	if s := readOwn(sysctlFile(rtoMaxSysctl)); s != "" {
		v["tcp_rto_max_ms"] = s
	}
	return v
}

func (n *labNetwork) close() error { return n.b.close() }
