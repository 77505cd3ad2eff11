package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/zookeeper"
)

// zkLock is github.com/go-zookeeper/zk's own Lock, with the connection's defaults.
// It hands out no token and cannot be asked whether it is held. Lock takes no
// deadline and has no way to give up: a try that lasts too long ends as info, and
// with its session.
//
// The pings of the connection prove nothing about the lock, since a server that is
// cut off from the others answers them too; so no renewals are told.
type zkLock struct {
	conn      *zk.Conn
	obs       clients.Observer
	held      handles[*zk.Lock]
	queueing  atomic.Uint64 // the mark of the latest creation that was sent
	connected bool          // used by go-zookeeper's one calling goroutine
	up        chan struct{} // closed with the first session
}

func newZKLock(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	l := &zkLock{obs: cfg.Observer, up: make(chan struct{})}
	conn, _, err := zk.Connect(cfg.Endpoints, cfg.TTL, zk.WithEventCallback(l.listen), zk.WithDialer(l.dial))
	if err != nil {
		return nil, err
	}
	l.conn = conn
	select {
	case <-l.up:
		return l, nil
	case <-time.After(helloWithin):
		err = fmt.Errorf("no session within %v", helloWithin)
	case <-ctx.Done():
		err = ctx.Err()
	}
	go conn.Close()
	return nil, fmt.Errorf("reach zookeeper at %v: %w", cfg.Endpoints, err)
}

// listen tells what go-zookeeper's listener hears.
func (l *zkLock) listen(e zk.Event) {
	switch {
	case e.State == zk.StateHasSession && !l.connected:
		l.connected = true
		select {
		case <-l.up:
			l.obs.Tell(clients.Event{F: clients.Connected})
		default:
			close(l.up)
		}
	case e.State == zk.StateDisconnected && l.connected:
		l.connected = false
		l.obs.Tell(clients.Event{F: clients.Suspended})
	case e.State == zk.StateExpired:
		l.connected = false
		l.obs.Tell(clients.Event{F: clients.Lost, Err: zk.ErrSessionExpired})
	}
}

// dial watches for creations: go-zookeeper begins a new session by itself when the
// old one has expired, and a node that is created then is none of the old one's.
func (l *zkLock) dial(network, addr string, within time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout(network, addr, within)
	return creations{c, l}, err
}

type creations struct {
	net.Conn
	l *zkLock
}

// What a request begins with: its length, its number, and what it asks for. The
// greeting of a connection has neither of these, and 0 in the number's place.
const (
	numberAt = 4
	opAt     = 8
	opCreate = 1
)

// Write is given one request at a time.
func (c creations) Write(b []byte) (int, error) {
	if len(b) >= opAt+4 && binary.BigEndian.Uint32(b[numberAt:]) != 0 && binary.BigEndian.Uint32(b[opAt:]) == opCreate {
		mark, err := c.l.obs.Mark(context.Background(), "", 0)
		if err != nil {
			return 0, err
		}
		c.l.queueing.Store(mark)
	}
	return c.Conn.Write(b)
}

// leastWait is what a try gets that should not wait.
const leastWait = 500 * time.Millisecond

func (l *zkLock) Acquire(ctx context.Context, r clients.Request) (clients.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.Wait, leastWait))
	defer cancel()
	lock := zk.NewLock(l.conn, zookeeper.Dir(r.Key), zk.WorldACL(zk.PermAll))
	if err := l.wait(ctx, lock.Lock); err != nil {
		return clients.Grant{}, err // its node may stand in the queue, whatever the error says
	}
	l.held.put(r.ID, lock)
	return clients.Grant{Session: true, Mark: l.queueing.Load()}, nil
}

// wait leaves a call behind that takes too long.
func (l *zkLock) wait(ctx context.Context, call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("still waiting inside: %w", ctx.Err())
	}
}

func (l *zkLock) Release(ctx context.Context, g clients.Grant) error {
	lock, err := l.held.get(g)
	if err != nil {
		return err
	}
	err = l.wait(ctx, lock.Unlock)
	switch {
	case err == nil:
		l.held.drop(g)
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrSessionExpired): // go-zookeeper sends a request once
		return clients.ErrNotHeld
	}
	return err
}

// Close ends the session, as far as a server can be reached in a moment.
func (l *zkLock) Close(ctx context.Context) error {
	return l.wait(ctx, func() error { l.conn.Close(); return nil })
}
