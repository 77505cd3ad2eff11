// Package etcd is the lock on an etcd lease: a key bound to the lease, created
// in a transaction on the condition that it does not exist (create revision 0),
// after the way etcd documents locks
// (https://etcd.io/docs/latest/learning/api/#transaction and #lease-api). The
// token is the transaction's revision. It never waits, and sends no request
// twice unless the first certainly was not looked at.
package etcd

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/hold"
)

const (
	// opWithin bounds an operation whose caller did not.
	opWithin = 5 * time.Second
	// helloWithin is how long one member may take when the client is made.
	helloWithin = 2 * time.Second
	// revokeWithin bounds the tidying up that nobody waits for.
	revokeWithin = time.Second
)

// A Lock is one process's view of the locks.
type Lock struct {
	members *members
	outside *members // the watcher's own connections
	cfg     clients.Config
	obs     clients.Observer
	queues  bool // each contender has a key of its own
	holds   hold.Table[*held]
	tidying sync.WaitGroup
}

// New makes etcd/lease.
func New(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	l, err := connect(ctx, cfg)
	if err != nil {
		return nil, err // not a nil *Lock
	}
	return l, nil
}

func connect(ctx context.Context, cfg clients.Config) (*Lock, error) {
	l := &Lock{cfg: cfg, obs: hold.Observer(cfg.Observer)}
	var err error
	if l.members, err = open(cfg.Endpoints, cfg.Worker, cfg.Access); err != nil {
		return nil, err
	}
	if l.outside, err = open(cfg.Endpoints, cfg.Worker, cfg.Access); err != nil {
		l.members.close()
		return nil, err
	}
	if err := l.hello(ctx); err != nil {
		l.members.close()
		l.outside.close()
		return nil, fmt.Errorf("reach etcd at %v: %w", cfg.Endpoints, err)
	}
	return l, nil
}

// hello looks for a member that answers a linearizable read, which a repeated
// question cannot harm.
func (l *Lock) hello(ctx context.Context) error {
	var err error
	for range l.members.clients {
		tctx, cancel := context.WithTimeout(ctx, helloWithin)
		_, err = l.members.created(tctx, LockKey(""))
		cancel()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// key is where a grant lives.
func (l *Lock) key(g clients.Grant) string {
	if l.queues {
		return queueKey(g.Key, g.Owner)
	}
	return LockKey(g.Key)
}

// LockKey is where the lock of that name lives.
func LockKey(name string) string { return "lockcheck/" + name }

// Acquire is one try: a lease, then a transaction. The lock is held for the
// lease's TTL from the mark before the lease was asked for.
func (l *Lock) Acquire(ctx context.Context, r clients.Request) (clients.Grant, error) {
	r.TTL = cmp.Or(r.TTL, l.cfg.TTL)
	ctx, cancel := hold.Deadline(ctx, opWithin)
	defer cancel()
	mark, err := l.obs.Mark(ctx, r.Key, r.ID)
	if err != nil {
		return clients.Grant{}, clients.Fault("acquire", r.Key, clients.NotDone(err))
	}
	begun := time.Now()
	lease, valid, err := l.members.grant(ctx, r.TTL)
	if err != nil { // whatever became of the lease, no transaction was sent
		return clients.Grant{}, clients.Fault("acquire", r.Key, clients.NotDone(fmt.Errorf("lease: %w", err)))
	}
	g := clients.Grant{Key: r.Key, ID: r.ID, Valid: valid, Mark: mark, HasToken: true, Owner: ownerOf(lease)}
	h := l.watch(g, lease, begun)
	g.Token, err = l.members.create(ctx, l.key(g), g.Owner, lease)
	if err == nil {
		err = h.granted()
	}
	if err != nil {
		l.giveUp(h)
		return clients.Grant{}, clients.Fault("acquire", r.Key, err)
	}
	return l.keep(g, h)
}

// keep remembers a grant and renews it in the background, if that is wanted.
func (l *Lock) keep(g clients.Grant, h *held) (clients.Grant, error) {
	if l.cfg.Renew {
		h.renewals = hold.Renew(l.obs, g, g.Valid/3, func(ctx context.Context) (clients.Grant, error) {
			return l.keepAlive(ctx, g, h.lease)
		})
	}
	if !l.holds.Put(g.Owner, h) {
		h.end()
		return clients.Grant{}, clients.Fault("acquire", g.Key, hold.ErrClosed)
	}
	return g, nil
}

// The owner of a grant is its lease, which the cluster has given to nobody else.
func ownerOf(lease clientv3.LeaseID) string { return strconv.FormatInt(int64(lease), 16) }

func leaseOf(g clients.Grant) (clientv3.LeaseID, bool) {
	id, err := strconv.ParseInt(g.Owner, 16, 64)
	return clientv3.LeaseID(id), err == nil
}

// create takes the lock if nobody has it; its create revision is the token.
func (m *members) create(ctx context.Context, key, owner string, lease clientv3.LeaseID) (token uint64, err error) {
	err = m.do(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, owner, clientv3.WithLease(lease))).
			Commit()
		if err != nil {
			return err
		}
		if !resp.Succeeded {
			return clients.ErrHeld
		}
		token = uint64(resp.Header.Revision)
		return nil
	})
	return token, err
}

// created gives the create revision of the lock's key, 0 if there is none. The
// read is linearizable, which is etcd's default.
func (m *members) created(ctx context.Context, key string) (revision uint64, err error) {
	err = m.do(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Get(ctx, key)
		if err == nil && len(resp.Kvs) == 1 {
			revision = uint64(resp.Kvs[0].CreateRevision)
		}
		return err
	})
	return revision, err
}

// remove deletes the lock's key if it is still the one with that create
// revision. clientv3 sends a transaction that writes once, where LeaseRevoke
// would be repeated.
func (m *members) remove(ctx context.Context, key string, token uint64) error {
	return m.do(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", int64(token))).
			Then(clientv3.OpDelete(key)).
			Commit()
		if err == nil && !resp.Succeeded {
			return clients.ErrNotHeld
		}
		return err
	})
}

// Renew keeps the lease alive once.
func (l *Lock) Renew(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	lease, ok := leaseOf(g)
	if !ok {
		return clients.Grant{}, hold.Unknown("renew", g)
	}
	ctx, cancel := hold.Deadline(ctx, opWithin)
	defer cancel()
	return l.keepAlive(ctx, g, lease)
}

func (l *Lock) keepAlive(ctx context.Context, g clients.Grant, lease clientv3.LeaseID) (clients.Grant, error) {
	valid, err := l.members.keepAlive(ctx, lease)
	g.Valid, g.Mark = valid, 0
	return g, clients.Fault("renew", g.Key, err)
}

// Check reads whose the key is. It extends nothing.
func (l *Lock) Check(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	if !g.HasToken {
		return clients.Grant{}, hold.Unknown("check", g)
	}
	ctx, cancel := hold.Deadline(ctx, opWithin)
	defer cancel()
	revision, err := l.members.created(ctx, l.key(g))
	if err == nil && revision != g.Token {
		err = clients.ErrNotHeld
	}
	g.Valid, g.Mark = 0, 0
	return g, clients.Fault("check", g.Key, err)
}

// Release deletes the key if it is still this grant's, and lets the lease go
// when that is done or known to be needless.
func (l *Lock) Release(ctx context.Context, g clients.Grant) error {
	lease, ok := leaseOf(g)
	if !ok || !g.HasToken {
		return hold.Unknown("release", g)
	}
	if h, ok := l.holds.Get(g.Owner); ok {
		h.end() // from here on nobody tells that it was lost
	}
	ctx, cancel := hold.Deadline(ctx, opWithin)
	defer cancel()
	err := l.members.remove(ctx, l.key(g), g.Token)
	if err == nil || clients.Definite(err) {
		l.holds.Take(g.Owner)
		l.tidy(lease)
	}
	return clients.Fault("release", g.Key, err)
}

// giveUp ends a hold that no grant came of. If the transaction's outcome is
// unknown, ending the lease undoes what it may have done.
func (l *Lock) giveUp(h *held) {
	h.end()
	l.tidy(h.lease)
}

// tidy revokes a lease without making anybody wait.
func (l *Lock) tidy(lease clientv3.LeaseID) {
	l.tidying.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), revokeWithin)
		defer cancel()
		l.members.revoke(ctx, lease)
	})
}

// Close revokes what is held, as far as the servers can be reached in a moment.
func (l *Lock) Close(ctx context.Context) error {
	for _, h := range l.holds.Close() {
		l.giveUp(h)
	}
	done := make(chan struct{})
	go func() {
		l.tidying.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done: // revokeWithin sees to it
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.members.close()
	l.outside.close()
	return err
}
