package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/etcd"
)

// etcdMutex is go.etcd.io/etcd/client/v3/concurrency: one Session for the worker,
// which keeps its lease alive by itself, and a Mutex on it for each acquire. The
// token is the revision of Header.
type etcdMutex struct {
	c    *clientv3.Client
	seen *seen
	obs  clients.Observer
	ttl  time.Duration
	held handles[*concurrency.Mutex]

	mu      sync.Mutex
	session *concurrency.Session
	watch   *watch
}

func newEtcdMutex(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	l := &etcdMutex{seen: newSeen(cfg.Observer), obs: cfg.Observer, ttl: cfg.TTL}
	var err error
	l.c, err = clientv3.New(clientv3.Config{
		Endpoints: cfg.Endpoints, DialTimeout: helloWithin,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.seen.unary), grpc.WithChainStreamInterceptor(l.seen.stream)},
	})
	if err != nil {
		return nil, err
	}
	hctx, cancel := context.WithTimeout(ctx, helloWithin)
	defer cancel()
	if _, err := l.c.Get(hctx, "hello"); err != nil {
		l.c.Close()
		return nil, fmt.Errorf("reach etcd at %v: %w", cfg.Endpoints, err)
	}
	return l, nil
}

// live gives the session, a new one if there is none or the library says that the
// old one is done.
func (l *etcdMutex) live() (*concurrency.Session, *watch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil {
		select {
		case <-l.session.Done():
			l.watch.stop()
		default:
			return l.session, l.watch, nil
		}
	}
	l.session = nil
	s, err := concurrency.NewSession(l.c, concurrency.WithTTL(int(l.ttl/time.Second)))
	if err != nil {
		return nil, nil, err
	}
	l.session, l.watch = s, watchLease(l.c.Endpoints(), s, l.obs, l.ttl/4)
	return l.session, l.watch, nil
}

func (l *etcdMutex) Acquire(ctx context.Context, r clients.Request) (clients.Grant, error) {
	s, w, err := l.live()
	if err != nil { // whatever became of the lease, no place in a queue was asked for
		return clients.Grant{}, clients.NotDone(fmt.Errorf("session: %w", err))
	}
	m := concurrency.NewMutex(s, strings.TrimSuffix(etcd.QueueDir(r.Key), "/"))
	once := l.seen.watch()
	if r.Wait > 0 {
		ctx, cancel := context.WithTimeout(ctx, r.Wait)
		err = m.Lock(ctx)
		cancel()
	} else {
		err = m.TryLock(ctx)
	}
	if err != nil {
		return clients.Grant{}, gone(m, err, once())
	}
	l.held.put(r.ID, m)
	w.granted()
	g := clients.Grant{Token: uint64(m.Header().Revision), HasToken: true}
	g.Valid, g.Mark = l.seen.hold(int64(s.Lease()), r.Key, r.ID)
	return g, nil
}

// left is the key of a Mutex that knows that it has left the queue.
const left = "\x00"

// gone says what a Lock's error proves: that it is not in the queue, if the
// library has deleted its key, or found it gone, or was refused.
func gone(m *concurrency.Mutex, err error, once bool) error {
	switch {
	case m.Key() == left, errors.Is(err, concurrency.ErrSessionExpired),
		once && errors.Is(err, rpctypes.ErrLeaseNotFound):
		return clients.NotDone(err)
	}
	return err
}

// Check is what the library offers for it: a transaction on IsOwner.
func (l *etcdMutex) Check(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	m, err := l.held.get(g)
	if err != nil {
		return g, err
	}
	resp, err := l.c.Txn(ctx).If(m.IsOwner()).Commit()
	if err == nil && !resp.Succeeded {
		err = clients.ErrNotHeld
	}
	g.Valid, g.Mark = 0, 0
	return g, err
}

// Release passes on what the server said: Unlock itself answers nil also when
// there was no key to delete any more.
func (l *etcdMutex) Release(ctx context.Context, g clients.Grant) error {
	m, err := l.held.get(g)
	if err != nil {
		return err
	}
	l.seen.drop(g.ID)
	once := l.seen.watch()
	if err := m.Unlock(ctx); err != nil {
		return err
	}
	switch deleted := l.seen.deleted.Load(); {
	case deleted == 0 && once():
		return clients.ErrNotHeld
	case deleted == 0:
		return errors.New("there was no key to delete, perhaps because it was asked for twice")
	}
	l.held.drop(g)
	return nil
}

// Close revokes the lease, as far as the servers can be reached in a moment.
func (l *etcdMutex) Close(ctx context.Context) error {
	l.mu.Lock()
	s, w := l.session, l.watch
	l.session = nil
	l.mu.Unlock()
	var err error
	if s != nil {
		w.stop()
		l.seen.clear()
		done := make(chan error, 1)
		go func() { done <- s.Close() }()
		select {
		case err = <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	l.c.Close()
	return err
}
