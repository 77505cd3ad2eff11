package local

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"
)

// leaderLimit bounds the question who leads, which goes to all servers at once: a
// stopped one does not answer.
const leaderLimit = 500 * time.Millisecond

// A Dropped counts the packets that a cut has lost, as the kernel tells it.
type Dropped struct {
	Node    string // the receiver
	From    string // the sender
	Packets uint64
	Bytes   uint64
}

func (c *Cluster) member(node string) (*member, error) {
	for _, m := range c.members {
		if m.name == node {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no node %q", node)
}

// Pid is the process of a node's server.
func (c *Cluster) Pid(node string) (int, error) {
	m, err := c.member(node)
	if err != nil {
		return 0, err
	}
	p, err := m.process()
	if err != nil {
		return 0, err
	}
	return p.cmd.Process.Pid, nil
}

// Kill ends a node's server with SIGKILL and waits until it is gone. A server
// that does not run is left alone.
func (c *Cluster) Kill(node string) error {
	m, err := c.member(node)
	if err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	m.kill()
	return nil
}

// Restart starts nodes' servers again, killing those that run, and waits until
// they serve in their cluster. With keepData false they start with empty data
// directories. Where the backend has a quorum it is asked to allow that, if the
// other nodes make one; if not, the nodes come back as if nothing had ever been.
func (c *Cluster) Restart(ctx context.Context, keepData bool, nodes ...string) error {
	if err := c.restart(ctx, keepData, nodes); err != nil {
		return fmt.Errorf("restart %s: %w", strings.Join(nodes, ", "), err)
	}
	return nil
}

func (c *Cluster) restart(ctx context.Context, keepData bool, nodes []string) error {
	var ms []*member
	for _, n := range nodes {
		m, err := c.member(n)
		if err != nil {
			return err
		}
		ms = append(ms, m)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready after %v", startLimit))
	defer cancel()
	for _, m := range ms {
		m.kill()
	}
	if !keepData {
		for _, m := range ms {
			if err := c.forget(ctx, m); err != nil {
				return fmt.Errorf("without data: %w", err)
			}
		}
	}
	if err := c.startAll(ms); err != nil {
		return err
	}
	return supervise(ctx, ms, func(ctx context.Context) error {
		return each(ms, func(m *member) error { return c.driver.rejoined(ctx, m, c.members) })
	})
}

// forget removes a member's data.
func (c *Cluster) forget(ctx context.Context, m *member) error {
	if err := os.RemoveAll(m.dataDir()); err != nil {
		return err
	}
	f, ok := c.driver.(forgetter)
	if !ok {
		return nil
	}
	running := 0
	for _, o := range c.members {
		if _, err := o.process(); err == nil {
			running++
		}
	}
	if running <= len(c.members)/2 {
		return f.anew(m)
	}
	return f.forget(ctx, m, c.members)
}

// Leader names the node that leads: the master for Sentinel, the leader for
// ZooKeeper and etcd, the only node for a single Redis. It is an ErrNoLeader
// while nobody leads, and always for Redlock.
func (c *Cluster) Leader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderLimit)
	defer cancel()
	node, err := c.driver.leader(ctx, c.members)
	if err != nil {
		return "", fmt.Errorf("find the leader of %s: %w", c.spec.Backend, err)
	}
	return node, nil
}

// A peer is somebody whose packets can be dropped.
type peer struct {
	name string
	ip   netip.Addr
}

func newPeer(m *member) (peer, error) {
	ip, err := netip.ParseAddr(m.host.addr())
	return peer{name: m.name, ip: ip}, err
}

// A cutter is a host that can lose packets.
type cutter interface {
	drop(from []peer) error
	undrop() error
	dropped() ([]Dropped, error)
}

// Cut makes a node deaf to others: their packets are lost as they arrive. Call
// it for both ends to cut both ways. Only nodes can be cut from nodes; what
// comes from a proxy is not to be dropped, or the proxy blocks.
func (c *Cluster) Cut(node string, from ...string) error {
	h, err := c.cutter(node)
	if err != nil {
		return fmt.Errorf("cut %s: %w", node, err)
	}
	var peers []peer
	for _, f := range from {
		m, err := c.member(f)
		if err != nil {
			return fmt.Errorf("cut %s: %w", node, err)
		}
		p, err := newPeer(m)
		if err != nil {
			return fmt.Errorf("cut %s from %s: %w", node, f, err)
		}
		peers = append(peers, p)
	}
	if err := h.drop(peers); err != nil {
		return fmt.Errorf("cut %s from %v: %w", node, from, err)
	}
	return nil
}

// HealCuts ends every cut. It is idempotent.
func (c *Cluster) HealCuts() error {
	var errs []error
	for _, m := range c.members {
		if h, err := c.cutter(m.name); err == nil {
			if err := h.undrop(); err != nil {
				errs = append(errs, fmt.Errorf("heal %s: %w", m.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Counters reads what the cuts that are in force at a node have dropped so far.
func (c *Cluster) Counters(node string) ([]Dropped, error) {
	h, err := c.cutter(node)
	if err != nil {
		return nil, fmt.Errorf("count drops of %s: %w", node, err)
	}
	d, err := h.dropped()
	if err != nil {
		return nil, fmt.Errorf("count drops of %s: %w", node, err)
	}
	return d, nil
}

func (c *Cluster) cutter(node string) (cutter, error) {
	m, err := c.member(node)
	if err != nil {
		return nil, err
	}
	switch h := m.host.(type) {
	case cutter:
		return h, nil
	case *boxHost:
		if h.rules != nil {
			return h.rules, nil
		}
		return nil, ErrNoRules
	}
	return nil, ErrNoNamespaces
}
