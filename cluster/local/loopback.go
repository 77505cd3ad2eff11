package local

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/lockcheck/lockcheck/cluster"
)

const localhost = "127.0.0.1"

// Loopback starts a cluster on ports of 127.0.0.1, without namespaces. The
// servers end with this process, but the programs that a worker starts may not.
func Loopback(ctx context.Context, spec cluster.Spec) (*Cluster, error) {
	since := startTime()
	d, err := newDriver(spec)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		c, err := start(ctx, newLoopback(), d, spec, since)
		if err == nil || try == portTries || !portTaken(err) {
			return c, err
		}
	}
}

// A loopNetwork has one place, this machine, and tells servers apart by ports.
type loopNetwork struct{ threads *forker }

func newLoopback() *loopNetwork { return &loopNetwork{threads: newForker()} }

func (n *loopNetwork) name() string { return NetworkLoopback }

func (n *loopNetwork) node(_ int, _ string, r role) (host, []int, error) {
	ports := make([]int, len(r.ports))
	for i := range ports {
		p, err := freePort()
		if err != nil {
			return nil, nil, err
		}
		ports[i] = p
	}
	return loopHost{n.threads}, ports, nil
}

func (n *loopNetwork) worker(int) (host, error) { return loopHost{n.threads}, nil }

func (n *loopNetwork) storeAddr() string { return localhost + ":0" }

// link gives the worker the proxies' addresses: nothing redirects it here.
func (n *loopNetwork) link(p *proxies, worker int, _ host, ups []upstream) ([]string, error) {
	var addrs []string
	for _, u := range ups {
		addr, err := proxyOnFreePort(p, proxyName(worker, u.name), u.addr)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

func proxyOnFreePort(p *proxies, name, to string) (addr string, err error) {
	for range portTries {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		addr = net.JoinHostPort(localhost, strconv.Itoa(port))
		_, err = p.client.CreateProxy(name, addr, to)
		if err == nil {
			return addr, nil
		}
		if !isPortTaken(err.Error()) {
			return "", fmt.Errorf("create proxy %s: %w", name, err)
		}
	}
	return "", fmt.Errorf("create proxy %s: every port that was tried is in use", name)
}

// dataDir keeps the data on the disk.
func (n *loopNetwork) dataDir(dir string) (undo func() error, err error) {
	return func() error { return os.RemoveAll(dir) }, nil
}

func (n *loopNetwork) versions() map[string]string {
	return map[string]string{"kernel": kernelVersion()}
}

func (n *loopNetwork) close() error {
	n.threads.close()
	return nil
}

// A loopHost starts processes on this machine.
type loopHost struct{ threads *forker }

func (h loopHost) addr() string { return localhost }

func (h loopHost) start(cmd *exec.Cmd, how starter) error { return h.threads.start(cmd, how) }

const (
	// Ports are taken from below the range that outgoing connections use, so
	// that a server that was killed finds its port free again.
	portBase = 20000
	portSpan = 12000
)

// lastPort counts the ports that this process tried. It starts at another place
// in each process, so that two of them seldom try the same.
var lastPort atomic.Int64

// freePort returns a port that nobody listens on now. Somebody may the moment
// after, so whoever uses it must be ready to try another.
func freePort() (int, error) {
	for range portSpan {
		port := portBase + (os.Getpid()*61+int(lastPort.Add(1)))%portSpan
		ln, err := net.Listen("tcp", net.JoinHostPort(localhost, strconv.Itoa(port)))
		if err == nil {
			return port, ln.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: none from %d to %d", portBase, portBase+portSpan-1)
}

func portTaken(err error) bool { return isPortTaken(err.Error()) }

func isPortTaken(s string) bool {
	return strings.Contains(strings.ToLower(s), "address already in use")
}
