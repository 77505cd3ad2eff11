package local

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Each lab of this process has a /24 of 10.77.0.0/16, so that labs can stand
// side by side.
const (
	labsAtOnce  = 256
	firstNode   = 11  // last byte of the first node's address
	firstWorker = 100 // and of the first worker's
	labWorkers  = 255 - firstWorker
	mtu         = 1500

	// rtoMax bounds TCP's back-off in milliseconds, so that a healed link is
	// tried again within a second and not after as long as it was cut.
	rtoMax       = "1000"
	rtoMaxSysctl = "net.ipv4.tcp_rto_max_ms"

	killTries = 500 // times pollEvery
)

var subnets struct {
	sync.Mutex
	taken [labsAtOnce]bool
}

// veths numbers the veth pairs of this process. No name is used twice, because
// a pair goes some time after its namespace.
var veths atomic.Uint32

// A bridge joins the hosts of one lab.
type bridge struct {
	subnet  byte
	release sync.Once
	root    netns.NsHandle // where the bridge and the proxies are
	link    *netlink.Bridge

	mu    sync.Mutex // guards what follows, and the making of hosts
	hosts []*labHost
}

// newBridge makes a bridge with an address in the current network namespace.
func newBridge() (_ *bridge, err error) {
	subnet, err := takeSubnet()
	if err != nil {
		return nil, err
	}
	b := &bridge{subnet: subnet, root: netns.None()}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.root, err = currentNS(); err != nil {
		return nil, fmt.Errorf("open own network namespace: %w", err)
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	at := netlink.NewLinkAttrs()
	at.Name, at.MTU = fmt.Sprintf("lab%d", subnet), mtu
	// Left alone, a bridge takes the lowest address of its ports and changes it
	// when one comes or goes; every neighbour is then wrong about it for seconds.
	at.HardwareAddr = net.HardwareAddr{0x02, 0, 0, 0, subnet, 1}
	snooping := false
	b.link = &netlink.Bridge{LinkAttrs: at, MulticastSnooping: &snooping}
	if err := h.LinkAdd(b.link); err != nil {
		b.link = nil
		return nil, fmt.Errorf("add bridge %s: %w", at.Name, err)
	}
	if err := address(h, at.Name, b.bridgeIP()); err != nil {
		return nil, err
	}
	setSysctl(rtoMaxSysctl, rtoMax)
	return b, nil
}

func takeSubnet() (byte, error) {
	subnets.Lock()
	defer subnets.Unlock()
	for i, taken := range subnets.taken {
		if !taken {
			subnets.taken[i] = true
			return byte(i), nil
		}
	}
	return 0, fmt.Errorf("take a subnet: all %d labs of this process are in use", labsAtOnce)
}

func (b *bridge) bridgeIP() netip.Addr { return b.ip(1) }

func (b *bridge) ip(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, b.subnet, last}) }

// close takes the bridge and its hosts away, and ends what still runs in them.
func (b *bridge) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, h := range b.hosts {
		errs = append(errs, h.close())
	}
	b.hosts = nil
	if b.link != nil {
		errs = append(errs, deleteLink(b.link.Name))
		b.link = nil
	}
	if b.root.IsOpen() {
		errs = append(errs, b.root.Close())
	}
	b.release.Do(func() {
		subnets.Lock()
		defer subnets.Unlock()
		subnets.taken[b.subnet] = false
	})
	return errors.Join(errs...)
}

// A labHost is one network namespace on the bridge.
type labHost struct {
	b    *bridge
	name string
	ip   netip.Addr
	ns   netns.NsHandle
	veth string // the bridge's end

	mu  sync.Mutex // one nftables batch at a time; nothing starts while it closes
	nft *nftables.Conn
}

// addHost makes a namespace and a veth pair between it and the bridge.
func (b *bridge) addHost(name string, last byte) (*labHost, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ns, err := newNS(b.root)
	if err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", name, err)
	}
	h := &labHost{b: b, name: name, ip: b.ip(last), ns: ns, veth: fmt.Sprintf("v%d", veths.Add(1))}
	if err := h.plug(); err != nil {
		return nil, errors.Join(fmt.Errorf("plug %s into the bridge: %w", name, err), h.close())
	}
	b.hosts = append(b.hosts, h)
	return h, nil
}

func (h *labHost) plug() error {
	root, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer root.Close()
	at := netlink.NewLinkAttrs()
	at.Name, at.MTU, at.MasterIndex = h.veth, mtu, h.b.link.Index
	pair := &netlink.Veth{LinkAttrs: at, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(h.ns))}
	if err := root.LinkAdd(pair); err != nil {
		return fmt.Errorf("add veth %s: %w", h.veth, err)
	}
	if err := linkUp(root, h.veth); err != nil {
		return err
	}
	return h.do(func() error {
		// A socket belongs to the namespace of the thread that opens it.
		own, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open netlink: %w", err)
		}
		defer own.Close()
		setSysctl(rtoMaxSysctl, rtoMax)
		return errors.Join(linkUp(own, "lo"), address(own, "eth0", h.ip))
	})
}

// start starts cmd in the namespace: a clone copies those of its thread.
func (h *labHost) start(cmd *exec.Cmd, how starter) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ns.IsOpen() {
		return errClosed
	}
	return h.do(func() error { return how(cmd) })
}

func (h *labHost) addr() string { return h.ip.String() }

// do runs f on a thread inside the namespace.
func (h *labHost) do(f func() error) error { return inNS(h.ns, h.b.root, f) }

func (h *labHost) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	if h.nft != nil {
		errs = append(errs, h.nft.CloseLasting())
		h.nft = nil
	}
	if h.ns.IsOpen() {
		// The kernel takes the veth pair away with the namespace, and does so for
		// all in one go, where deleting each would take tens of milliseconds.
		errs = append(errs, h.killAll(), h.ns.Close())
	}
	return errors.Join(errs...)
}

// killAll ends every process in the namespace: a worker may have started others,
// and those again. A process can fork before it is killed, so it looks until it
// finds none.
func (h *labHost) killAll() error {
	id, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", int(h.ns)))
	if err != nil {
		return fmt.Errorf("identify namespace of %s: %w", h.name, err)
	}
	for range killTries {
		pids, err := pidsIn(id)
		if err != nil {
			return fmt.Errorf("list processes of %s: %w", h.name, err)
		}
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			// It may have ended meanwhile.
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(pollEvery)
	}
	return fmt.Errorf("end the processes of %s: some stay", h.name)
}

// pidsIn lists the processes in a network namespace, apart from this one: a
// thread of it may be there to start something.
func pidsIn(id string) ([]int, error) {
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, l := range links {
		// The link of a process that has ended cannot be read.
		if ns, err := os.Readlink(l); err != nil || ns != id {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(l, "/")[2])
		if err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// inNS runs f on a locked thread in ns and brings the thread back to root.
func inNS(ns, root netns.NsHandle, f func() error) error {
	ch := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			runtime.UnlockOSThread()
			ch <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		err := f()
		if back := netns.Set(root); back != nil {
			// Still locked, so that the thread ends with this goroutine and
			// nobody else runs in the wrong namespace.
			ch <- errors.Join(err, fmt.Errorf("leave network namespace: %w", back))
			return
		}
		runtime.UnlockOSThread()
		ch <- err
	}()
	return <-ch
}

// newNS makes a network namespace without leaving root for good.
func newNS(root netns.NsHandle) (ns netns.NsHandle, err error) {
	err = inNS(root, root, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		ns, err = currentNS()
		return err
	})
	return ns, err
}

// currentNS opens the namespace of the calling thread. The library's own way
// goes through /proc/<pid>, which is wrong until /proc is mounted anew.
func currentNS() (netns.NsHandle, error) { return netns.GetFromPath("/proc/thread-self/ns/net") }

func linkUp(h *netlink.Handle, name string) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := h.LinkSetUp(l); err != nil {
		return fmt.Errorf("set link %s up: %w", name, err)
	}
	return nil
}

// address gives a link its address in the lab's /24 and sets it up.
func address(h *netlink.Handle, name string, ip netip.Addr) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	n := &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(24, 32)}
	if err := h.AddrAdd(l, &netlink.Addr{IPNet: n}); err != nil {
		return fmt.Errorf("add address %s to %s: %w", ip, name, err)
	}
	return linkUp(h, name)
}

func deleteLink(name string) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	l, err := h.LinkByName(name)
	if err != nil {
		return nil // gone already
	}
	if err := h.LinkDel(l); err != nil {
		return fmt.Errorf("delete link %s: %w", name, err)
	}
	return nil
}

func sysctlFile(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

// setSysctl writes a setting of the calling thread's network namespace, where
// this kernel has it. What came of it is read back for test.json.
func setSysctl(name, value string) { _ = os.WriteFile(sysctlFile(name), []byte(value), 0) }
