package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/lockcheck/lockcheck/clients"
)

// redsyncLock is github.com/go-redsync/redsync over go-redis v9: Redlock, on one
// server or on several. A try is one TryLockContext; the lease is what Until says.
type redsyncLock struct {
	line
	rs      *redsync.Redsync
	options []redsync.Option
	held    handles[*redsync.Mutex]
}

func newRedsync(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	return redsyncWith(ctx, cfg)
}

// newRedsyncRefilling has the option that sets a key again that an Extend did not
// find. It is off by default.
func newRedsyncRefilling(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	return redsyncWith(ctx, cfg, redsync.WithSetNXOnExtend())
}

func redsyncWith(ctx context.Context, cfg clients.Config, options ...redsync.Option) (clients.Lock, error) {
	l := &redsyncLock{options: options}
	if err := l.dial(ctx, cfg); err != nil {
		return nil, err
	}
	var pools []redis.Pool
	for _, c := range l.conns {
		pools = append(pools, goredis.NewPool(c))
	}
	l.rs = redsync.New(pools...)
	return l, nil
}

func (l *redsyncLock) Acquire(ctx context.Context, r clients.Request) (clients.Grant, error) {
	m := l.rs.NewMutex(redisKey(r.Key), append([]redsync.Option{redsync.WithExpiry(r.TTL)}, l.options...)...)
	once, begun := l.watch(), time.Now()
	err := m.TryLockContext(ctx)
	switch {
	case err == nil:
		l.held.put(r.ID, m)
		return clients.Grant{Valid: m.Until().Sub(begun)}, nil // Until counts from later than the try's beginning
	case len(l.conns) > 1:
		// The library itself gave the round up: without its decision there is no lock.
		return clients.Grant{}, errors.Join(clients.ErrNoQuorum, err)
	}
	return clients.Grant{}, l.refused(err, once(), clients.ErrHeld)
}

func (l *redsyncLock) Renew(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	m, err := l.held.get(g)
	if err != nil {
		return g, err
	}
	once, begun := l.watch(), time.Now()
	if ok, err := m.ExtendContext(ctx); !ok {
		return g, l.refused(err, once(), clients.ErrNotHeld)
	}
	g.Valid = m.Until().Sub(begun)
	return g, nil
}

func (l *redsyncLock) Release(ctx context.Context, g clients.Grant) error {
	m, err := l.held.get(g)
	if err != nil {
		return err
	}
	once := l.watch()
	if ok, err := m.UnlockContext(ctx); !ok {
		return l.refused(err, once(), clients.ErrNotHeld)
	}
	l.held.drop(g)
	return nil
}

func (l *redsyncLock) Close(context.Context) error { return l.close() }

// refused says what it proves that the library did not succeed: what a majority
// of the servers said, if each was asked once.
func (l *redsyncLock) refused(err error, once bool, said error) error {
	switch {
	case !once:
		return err
	case refusals(err) > len(l.conns)/2:
		return said
	}
	return clients.NeverSent(err)
}

// refusals is how many servers said that the lock is another's, or nobody's.
func refusals(err error) int {
	var taken *redsync.ErrTaken
	var node *redsync.ErrNodeTaken
	switch joined, ok := err.(interface{ Unwrap() []error }); {
	case ok:
		n := 0
		for _, e := range joined.Unwrap() {
			n += refusals(e)
		}
		return n
	case errors.As(err, &taken):
		return len(taken.Nodes)
	case errors.As(err, &node), errors.Is(err, redsync.ErrLockAlreadyExpired):
		return 1
	}
	return 0
}
