package faulty

import (
	"context"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/redisdb"
	"github.com/lockcheck/lockcheck/clients/redlock"
)

// MinorityRedlock is content with n/2 of n servers.
func MinorityRedlock(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	r := redlock.Published()
	r.Quorum = func(n int) int { return n / 2 }
	return r.New(ctx, cfg)
}

// RedlockNoValidity claims the whole TTL from the end of the round, whatever the
// round took.
func RedlockNoValidity(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	r := redlock.Published()
	r.Claim = func(ctx context.Context, w redlock.Won) (time.Duration, uint64, error) {
		mark, err := w.Observer.Mark(ctx, w.Request.Key, w.Request.ID)
		return w.Request.TTL, mark, err
	}
	return r.New(ctx, cfg)
}

// RedlockNoCleanup leaves the keys of a round that failed where they are.
func RedlockNoCleanup(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	r := redlock.Published()
	r.Undo = false
	return r.New(ctx, cfg)
}

// RedlockMaxToken counts the grants on each server and takes the highest count
// of its round as the token, but does not write it back to the others.
func RedlockMaxToken(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	top := &maxima{of: map[string]uint64{}}
	r := redlock.Published()
	r.Node = func(db *redisdb.DB) redlock.Node { return counting{db, top} }
	l, err := r.Lock(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return maxToken{l, top}, nil
}

type maxToken struct {
	*redlock.Lock
	top *maxima
}

func (l maxToken) Acquire(ctx context.Context, r clients.Request) (clients.Grant, error) {
	g, err := l.Lock.Acquire(ctx, r)
	if err == nil {
		g.Token, g.HasToken = l.top.take(g.Owner), true
	}
	return g, err
}

// maxima are the highest counts, by the owner of the round.
type maxima struct {
	mu sync.Mutex
	of map[string]uint64
}

func (m *maxima) note(owner string, token uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of[owner] = max(m.of[owner], token)
}

func (m *maxima) take(owner string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer delete(m.of, owner)
	return m.of[owner]
}

type counting struct {
	*redisdb.DB
	top *maxima
}

func (n counting) Set(ctx context.Context, name, owner string, ttl time.Duration) (bool, error) {
	token, ok, err := n.SetAndCount(ctx, name, owner, ttl)
	if ok {
		n.top.note(owner, token)
	}
	return ok, err
}
