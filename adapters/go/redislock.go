package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"

	"github.com/lockcheck/lockcheck/clients"
)

// redislockLock is github.com/bsm/redislock. A try is one Obtain without a retry
// strategy. The library says nothing of how long a lock may be relied on, so that
// the allowance is ours: 1 % and 2 ms, as for lockcheck's own Redis locks.
type redislockLock struct {
	line
	c    *redislock.Client
	held handles[obtained]
}

type obtained struct {
	*redislock.Lock
	ttl time.Duration
}

func newRedislock(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	l := &redislockLock{}
	if err := l.dial(ctx, cfg); err != nil {
		return nil, err
	}
	l.c = redislock.New(l.conns[0])
	return l, nil
}

func relyOn(ttl time.Duration) time.Duration {
	ttl = ttl.Truncate(time.Millisecond)
	return ttl - ttl/100 - 2*time.Millisecond
}

func (l *redislockLock) Acquire(ctx context.Context, r clients.Request) (clients.Grant, error) {
	if relyOn(r.TTL) <= 0 {
		return clients.Grant{}, clients.NotDone(fmt.Errorf("a TTL of %v leaves nothing to rely on", r.TTL))
	}
	once := l.watch()
	lock, err := l.c.Obtain(ctx, redisKey(r.Key), r.TTL, nil)
	if err != nil {
		return clients.Grant{}, refused(err, once(), redislock.ErrNotObtained, clients.ErrHeld)
	}
	l.held.put(r.ID, obtained{lock, r.TTL})
	return clients.Grant{Valid: relyOn(r.TTL)}, nil
}

func (l *redislockLock) Renew(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	h, err := l.held.get(g)
	if err != nil {
		return g, err
	}
	once := l.watch()
	err = h.Refresh(ctx, h.ttl, nil)
	g.Valid = relyOn(h.ttl)
	return g, refused(err, once(), redislock.ErrNotObtained, clients.ErrNotHeld)
}

// Check asks for what is left of the lock. It is 0 for a lock that is another's.
func (l *redislockLock) Check(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	h, err := l.held.get(g)
	if err != nil {
		return g, err
	}
	once := l.watch()
	left, err := h.TTL(ctx)
	if err == nil && left == 0 {
		err = clients.ErrNotHeld
	}
	g.Valid = 0 // it extends nothing
	return g, refused(err, once(), clients.ErrNotHeld, clients.ErrNotHeld)
}

func (l *redislockLock) Release(ctx context.Context, g clients.Grant) error {
	h, err := l.held.get(g)
	if err != nil {
		return err
	}
	once := l.watch()
	if err := h.Release(ctx); err != nil {
		return refused(err, once(), redislock.ErrLockNotHeld, clients.ErrNotHeld)
	}
	l.held.drop(g)
	return nil
}

func (l *redislockLock) Close(context.Context) error { return l.close() }

// refused says what an error proves: with no more than one request, the server's
// refusal, or that nothing was sent.
func refused(err error, once bool, refusal, said error) error {
	switch {
	case err == nil:
		return nil
	case !once:
		return fmt.Errorf("perhaps sent more than once: %v", err)
	case errors.Is(err, refusal):
		return said
	}
	return clients.NeverSent(err)
}
