// Package redlock is the lock on several independent Redis servers, as
// "Distributed Locks with Redis" describes it under The Redlock Algorithm
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/):
// the same random owner is set on every server, a majority of them in good time
// is the lock. It never waits and never retries.
//
// The published steps try the servers one after the other; the same page says
// that a client should ideally speak to all of them at once, since the faster a
// majority is tried, the smaller the window for a split. This client does, so a
// server that does not answer costs its time-out once, not for each.
package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/hold"
	"github.com/lockcheck/lockcheck/clients/internal/redisdb"
)

// nodeWithin is how long one server may take, unless the caller says. It has to
// be small against the TTL, or a single dead server eats up the validity.
const nodeWithin = 100 * time.Millisecond

// helloWithin bounds the making of a client whose caller did not.
const helloWithin = 5 * time.Second

// Rules are what the algorithm decides. A lock that is broken on purpose has one
// that differs.
type Rules struct {
	// Node is how a server is spoken to.
	Node func(*redisdb.DB) Node
	// Quorum is how many of n servers are the lock.
	Quorum func(n int) int
	// Undo says whether a round that did not win is taken back.
	Undo bool
	// Claim gives what a round that has won may rely on, and the mark that it
	// counts from. Its error says why there is nothing to rely on.
	Claim func(ctx context.Context, w Won) (valid time.Duration, mark uint64, err error)
}

// Won is a round that a quorum has answered with yes.
type Won struct {
	Request  clients.Request
	Valid    time.Duration // the TTL less what clocks may drift, from Begun
	Begun    time.Time
	Observer clients.Observer
}

// Published are the rules as they are written.
func Published() Rules {
	return Rules{
		Node:   func(db *redisdb.DB) Node { return db },
		Quorum: func(n int) int { return n/2 + 1 },
		Undo:   true,
		// The published validity, TTL - elapsed - drift, counts from now. Counted
		// from the beginning it is TTL - drift, and that is what the grant says.
		Claim: func(_ context.Context, w Won) (time.Duration, uint64, error) {
			if time.Since(w.Begun) >= w.Valid {
				return 0, 0, errTooLate
			}
			return w.Valid, 0, nil
		},
	}
}

var errTooLate = errors.New("the round took as long as the lock lasts")

// A Lock is one process's view of the locks.
type Lock struct {
	rules  Rules
	nodes  nodes
	quorum int
	cfg    clients.Config
	obs    clients.Observer
	holds  hold.Table[*held]
}

type held struct {
	ttl      time.Duration
	renewals *hold.Renewals
}

// New makes redlock/redlock. It fails unless a majority answers.
func New(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	return Published().New(ctx, cfg)
}

// New makes the lock by these rules.
func (r Rules) New(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	l, err := r.Lock(ctx, cfg)
	if err != nil {
		return nil, err // not a nil *Lock
	}
	return l, nil
}

// Lock is New for whoever adds to it.
func (r Rules) Lock(ctx context.Context, cfg clients.Config) (*Lock, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("redlock needs the addresses of its servers")
	}
	auth, err := redisdb.AuthOf(cfg.Access)
	if err != nil {
		return nil, err
	}
	l := &Lock{rules: r, cfg: cfg, obs: hold.Observer(cfg.Observer), quorum: r.Quorum(len(cfg.Endpoints))}
	l.nodes = open(cfg.Endpoints, auth, cfg.NodeTimeout, r.Node)
	if err := l.hello(ctx); err != nil {
		l.nodes.close()
		return nil, fmt.Errorf("reach a majority of %v: %w", cfg.Endpoints, err)
	}
	return l, nil
}

// hello asks again, which harms nobody, until a majority has answered: the time
// that a round gives a server may be too short for the first connection.
func (l *Lock) hello(ctx context.Context) error {
	ctx, cancel := hold.Deadline(ctx, helloWithin)
	defer cancel()
	for {
		t := l.nodes.ask(ctx, func(ctx context.Context, db Node) (bool, error) { return true, db.Ping(ctx) })
		if t.yes >= l.quorum {
			return nil
		}
		select {
		case <-time.After(l.nodes.within / 4):
		case <-ctx.Done():
			return t.err()
		}
	}
}

// Acquire is one round. A round that did not win is undone on every server, also
// on those that did not answer, and given up: that is definite, for without the
// client's own decision there is no lock.
func (l *Lock) Acquire(ctx context.Context, r clients.Request) (clients.Grant, error) {
	r.TTL = cmp.Or(r.TTL, l.cfg.TTL)
	valid, err := redisdb.Validity(r.TTL)
	if err != nil {
		return clients.Grant{}, clients.Fault("acquire", r.Key, err)
	}
	begun := time.Now()
	owner := hold.NewOwner()
	t := l.nodes.ask(ctx, func(ctx context.Context, db Node) (bool, error) {
		return db.Set(ctx, r.Key, owner, r.TTL)
	})
	g := clients.Grant{Key: r.Key, ID: r.ID, Owner: owner}
	err = t.err()
	if t.yes >= l.quorum {
		g.Valid, g.Mark, err = l.rules.Claim(ctx, Won{r, valid, begun, l.obs})
	}
	if err != nil {
		if l.rules.Undo {
			l.nodes.undo(func(ctx context.Context, db Node) { db.Delete(ctx, r.Key, owner) })
		}
		return clients.Grant{}, clients.Fault("acquire", r.Key, fmt.Errorf("%w after %v: %v", clients.ErrNoQuorum, time.Since(begun), err))
	}
	if !l.keep(g, r.TTL) {
		return clients.Grant{}, clients.Fault("acquire", r.Key, hold.ErrClosed)
	}
	return g, nil
}

// keep remembers a grant and renews it in the background, if that is wanted.
func (l *Lock) keep(g clients.Grant, ttl time.Duration) bool {
	h := &held{ttl: ttl}
	if l.cfg.Renew {
		h.renewals = hold.Renew(l.obs, g, ttl/3, func(ctx context.Context) (clients.Grant, error) {
			return l.extend(ctx, g, ttl)
		})
	}
	ok := l.holds.Put(g.Owner, h)
	if !ok {
		h.renewals.Stop()
	}
	return ok
}

// Renew gives the lock its whole TTL again on a majority.
func (l *Lock) Renew(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	if g.Owner == "" {
		return clients.Grant{}, hold.Unknown("renew", g)
	}
	ttl := l.cfg.TTL
	if h, ok := l.holds.Get(g.Owner); ok {
		ttl = h.ttl
	}
	return l.extend(ctx, g, ttl)
}

func (l *Lock) extend(ctx context.Context, g clients.Grant, ttl time.Duration) (clients.Grant, error) {
	valid, err := redisdb.Validity(ttl)
	if err != nil {
		return clients.Grant{}, clients.Fault("renew", g.Key, err)
	}
	begun := time.Now()
	t := l.nodes.ask(ctx, func(ctx context.Context, db Node) (bool, error) {
		return db.Extend(ctx, g.Key, g.Owner, ttl)
	})
	if err := l.proved(t); err != nil {
		return clients.Grant{}, clients.Fault("renew", g.Key, err)
	}
	if took := time.Since(begun); took >= valid {
		// It happened, but there is nothing left to rely on.
		return clients.Grant{}, clients.Fault("renew", g.Key, fmt.Errorf("took %v of a TTL of %v", took, ttl))
	}
	g.Valid, g.Mark = valid, 0
	return g, nil
}

// Check asks the servers who has the lock. It extends nothing.
func (l *Lock) Check(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	if g.Owner == "" {
		return clients.Grant{}, hold.Unknown("check", g)
	}
	t := l.nodes.ask(ctx, func(ctx context.Context, db Node) (bool, error) {
		return db.Owns(ctx, g.Key, g.Owner)
	})
	g.Valid, g.Mark = 0, 0
	return g, clients.Fault("check", g.Key, l.proved(t))
}

// Release lets go on every server where the lock is still this grant's.
func (l *Lock) Release(ctx context.Context, g clients.Grant) error {
	if g.Owner == "" {
		return hold.Unknown("release", g)
	}
	if h, ok := l.holds.Take(g.Owner); ok {
		h.renewals.Stop()
	}
	t := l.nodes.ask(ctx, func(ctx context.Context, db Node) (bool, error) {
		return db.Delete(ctx, g.Key, g.Owner)
	})
	return clients.Fault("release", g.Key, l.proved(t))
}

// proved says what the servers' answers together prove. A majority decides;
// without one it is open, unless nobody can have done anything.
func (l *Lock) proved(t tally) error {
	switch {
	case t.yes >= l.quorum:
		return nil
	case t.no >= l.quorum:
		return clients.ErrNotHeld
	case t.yes == 0 && t.open == 0:
		return clients.NotDone(t.err())
	}
	return t.err()
}

// Close ends the connections. What is held stays until its TTL has passed.
func (l *Lock) Close(context.Context) error {
	for _, h := range l.holds.Close() {
		h.renewals.Stop()
	}
	return l.nodes.close()
}
