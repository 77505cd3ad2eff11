package faulty

import (
	"context"
	"strconv"
	"sync"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/etcd"
)

// EtcdNoRecheck does not look at its own key after the wait. Its twin is
// etcd/queue.
var EtcdNoRecheck = etcd.Queue(func(*etcd.Waited, context.Context) error { return nil })

// EtcdNoKeepalive never renews, and does not listen when it is told that its
// lease is gone.
func EtcdNoKeepalive(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	cfg.Renew = false
	if cfg.Observer != nil {
		cfg.Observer = deaf{cfg.Observer}
	}
	return etcd.New(ctx, cfg)
}

// EtcdLeaseToken hands out the lease's ID as the token. The members make these
// IDs each by itself.
func EtcdLeaseToken(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	l, err := etcd.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &leaseToken{inner: l.(*etcd.Lock), revisions: map[string]uint64{}}, nil
}

type leaseToken struct {
	inner     *etcd.Lock
	mu        sync.Mutex
	revisions map[string]uint64 // what the honest lock knows a grant by, by owner
}

func (l *leaseToken) Acquire(ctx context.Context, r clients.Request) (clients.Grant, error) {
	g, err := l.inner.Acquire(ctx, r)
	if err != nil {
		return g, err
	}
	l.mu.Lock()
	l.revisions[g.Owner] = g.Token
	l.mu.Unlock()
	g.Token, err = strconv.ParseUint(g.Owner, 16, 64) // an owner is its lease
	return g, err
}

// honest gives the grant as the honest lock knows it.
func (l *leaseToken) honest(g clients.Grant) clients.Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.Token, g.HasToken = l.revisions[g.Owner], g.Owner != ""
	return g
}

func (l *leaseToken) Renew(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	token := g.Token
	g, err := l.inner.Renew(ctx, l.honest(g))
	g.Token = token
	return g, err
}

func (l *leaseToken) Check(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	token := g.Token
	g, err := l.inner.Check(ctx, l.honest(g))
	g.Token = token
	return g, err
}

func (l *leaseToken) Release(ctx context.Context, g clients.Grant) error {
	return l.inner.Release(ctx, l.honest(g))
}

func (l *leaseToken) Close(ctx context.Context) error { return l.inner.Close(ctx) }
