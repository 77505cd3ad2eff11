package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/hold"
)

// lookEvery is how often a waiting contender looks who is ahead of it. It reads
// instead of watching: a read that fails says so.
const lookEvery = 10 * time.Millisecond

// NewQueue makes etcd/queue, the lock of etcd's concurrency package in shape: a
// key for each contender, in the order of their create revisions, and whoever is
// first has the lock. The token is the create revision of the contender's key.
//
// A lease is kept alive from the grant on and not while its contender waits, so
// that a wait which outlives the lease comes to nothing: after the wait the
// contender looks whether its own key is still there.
func NewQueue(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	return Queue((*Waited).Look)(ctx, cfg)
}

// Queue is NewQueue with something else done after the wait.
func Queue(after func(*Waited, context.Context) error) clients.New {
	return func(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
		l, err := connect(ctx, cfg)
		if err != nil {
			return nil, err
		}
		l.queues = true
		return queue{l, after}, nil
	}
}

type queue struct {
	*Lock
	after func(*Waited, context.Context) error
}

// QueueDir is where the contenders for the lock of that name stand. Escaping
// keeps any name in one part of the key.
func QueueDir(name string) string { return "lockcheck-queue/" + url.QueryEscape(name) + "/" }

func queueKey(name, owner string) string { return QueueDir(name) + owner }

// Waited is a contender that has nobody ahead of it any more.
type Waited struct {
	l *Lock
	g clients.Grant
	h *held
}

// errRanOut says that a contender had left the queue, without knowing it.
var errRanOut = errors.New("the lease ran out during the wait")

// Look makes sure that the contender still stands in the queue.
func (w *Waited) Look(ctx context.Context) error {
	revision, err := w.l.members.created(ctx, w.l.key(w.g))
	switch {
	case err != nil:
		return err
	case revision != w.g.Token:
		return clients.NotDone(errRanOut)
	}
	return w.h.granted()
}

// Acquire queues up and waits for its turn, up to Request.Wait.
func (q queue) Acquire(ctx context.Context, r clients.Request) (clients.Grant, error) {
	l := q.Lock
	r.TTL = cmp.Or(r.TTL, l.cfg.TTL)
	ctx, cancel := hold.Deadline(ctx, r.Wait+opWithin)
	defer cancel()
	mark, err := l.obs.Mark(ctx, r.Key, r.ID)
	if err != nil {
		return clients.Grant{}, clients.Fault("acquire", r.Key, clients.NotDone(err))
	}
	begun := time.Now()
	lease, valid, err := l.members.grant(ctx, r.TTL)
	if err != nil {
		return clients.Grant{}, clients.Fault("acquire", r.Key, clients.NotDone(fmt.Errorf("lease: %w", err)))
	}
	g := clients.Grant{Key: r.Key, ID: r.ID, Valid: valid, Mark: mark, HasToken: true, Owner: ownerOf(lease)}
	h := l.watch(g, lease, begun)
	if g.Token, err = l.members.create(ctx, l.key(g), g.Owner, lease); err == nil {
		err = l.await(ctx, g, r.Wait)
	}
	if err == nil {
		err = q.after(&Waited{l, g, h}, ctx)
	}
	if err != nil {
		return clients.Grant{}, clients.Fault("acquire", r.Key, l.leave(ctx, g, h, err))
	}
	return l.keep(g, h)
}

// await returns nil once nobody is ahead. After wait it gives up with ErrAhead:
// whoever is ahead may be a contender that gives up, too.
func (l *Lock) await(ctx context.Context, g clients.Grant, wait time.Duration) error {
	over := time.After(wait)
	for {
		first, err := l.members.first(ctx, g)
		switch {
		case err != nil:
			return err
		case first:
			return nil
		case wait <= 0:
			return clients.ErrAhead
		}
		select {
		case <-time.After(lookEvery):
		case <-over:
			return clients.ErrAhead
		case <-ctx.Done():
			return clients.ErrAhead
		}
	}
}

// first reports whether nobody who came before still stands in the queue. The
// read is linearizable.
func (m *members) first(ctx context.Context, g clients.Grant) (first bool, err error) {
	err = m.do(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Get(ctx, QueueDir(g.Key), clientv3.WithPrefix(), clientv3.WithMaxCreateRev(int64(g.Token)-1), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
		if err == nil {
			first = len(resp.Kvs) == 0
		}
		return err
	})
	return first, err
}

// leave takes the contender out of the queue, so that nobody waits for it until
// its lease ends. Nothing is left open: a lock is granted by the contender's own
// decision, and it has decided.
func (l *Lock) leave(ctx context.Context, g clients.Grant, h *held, why error) error {
	h.end()
	if g.Token != 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeWithin)
		defer cancel()
		l.members.remove(ctx, l.key(g), g.Token)
	}
	l.tidy(h.lease)
	return clients.NotDone(why)
}
