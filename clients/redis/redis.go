// Package redis is the lock on a single Redis, or on the master that sentinels
// name: SET NX PX with a random owner, release and renewal by a Lua script that
// compares the owner first, after "Distributed Locks with Redis"
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
// It never waits and never retries. Replication is asynchronous: a failover may
// forget a lock, which is for the checker to find.
package redis

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

// opWithin bounds an operation whose caller did not.
const opWithin = 5 * time.Second

// Sentinel is the backend whose endpoints are sentinels.
const Sentinel = "redis-sentinel"

// A Database is what the lock asks of Redis. A lock that is broken on purpose has
// another one than redisdb.DB.
type Database interface {
	Ping(ctx context.Context) error
	Set(ctx context.Context, name, owner string, ttl time.Duration) (bool, error)
	SetAndWait(ctx context.Context, name, owner string, ttl, within time.Duration) (ok, replicated bool, err error)
	SetAndCount(ctx context.Context, name, owner string, ttl time.Duration) (token uint64, ok bool, err error)
	Extend(ctx context.Context, name, owner string, ttl time.Duration) (bool, error)
	Owns(ctx context.Context, name, owner string) (bool, error)
	Delete(ctx context.Context, name, owner string) (bool, error)
	Close() error
}

// A Lock is one process's view of the locks.
type Lock struct {
	db    Database
	cfg   clients.Config
	obs   clients.Observer
	kind  kind
	holds hold.Table[*held]
}

type held struct {
	ttl      time.Duration
	renewals *hold.Renewals
}

// A kind is one of the algorithms.
type kind uint8

const (
	plain      kind = iota
	counting        // the grant has a token
	replicated      // the grant is believed when a replica has it
)

// NewSetNX makes redis/set-nx, a lock without tokens: its owner is a random
// value, which identifies and does not order.
func NewSetNX(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	return newLock(ctx, cfg, plain, nil)
}

// NewSetNXIncr makes redis/set-nx-incr, whose token is a counter in the same
// Redis. It goes back when the data is lost.
func NewSetNXIncr(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	return newLock(ctx, cfg, counting, nil)
}

// NewSetNXWait makes redis/set-nx-wait, which asks the master to WAIT until one
// replica has the lock, and lets go of it if none has it in time. That makes a
// failover that forgets the lock unlikely, not impossible.
func NewSetNXWait(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	return newLock(ctx, cfg, replicated, nil)
}

// With makes redis/set-nx, or redis/set-nx-incr if the grants are counted, on
// what instead makes of the database.
func With(ctx context.Context, cfg clients.Config, counted bool, instead func(*redisdb.DB) Database) (clients.Lock, error) {
	k := plain
	if counted {
		k = counting
	}
	return newLock(ctx, cfg, k, instead)
}

func newLock(ctx context.Context, cfg clients.Config, k kind, instead func(*redisdb.DB) Database) (clients.Lock, error) {
	honest, err := open(cfg)
	if err != nil {
		return nil, err
	}
	var db Database = honest
	if instead != nil {
		db = instead(honest)
	}
	ctx, cancel := hold.Deadline(ctx, opWithin)
	defer cancel()
	if err := db.Ping(ctx); err != nil {
		db.Close()
		return nil, fmt.Errorf("reach redis at %v: %w", cfg.Endpoints, err)
	}
	return &Lock{db: db, cfg: cfg, obs: hold.Observer(cfg.Observer), kind: k}, nil
}

func open(cfg clients.Config) (*redisdb.DB, error) {
	auth, err := redisdb.AuthOf(cfg.Access)
	if err != nil {
		return nil, err
	}
	if cfg.Backend == Sentinel {
		if len(cfg.Endpoints) == 0 || cfg.Master == "" {
			return nil, errors.New("redis-sentinel needs the sentinels' addresses and the master's name")
		}
		return redisdb.Failover(cfg.Master, cfg.Endpoints, cfg.Routes, auth), nil
	}
	if len(cfg.Endpoints) != 1 {
		return nil, fmt.Errorf("redis needs one address, not %v", cfg.Endpoints)
	}
	return redisdb.Single(cfg.Endpoints[0], auth), nil
}

// Acquire is one try. Its lease counts from its beginning.
func (l *Lock) Acquire(ctx context.Context, r clients.Request) (clients.Grant, error) {
	r.TTL = cmp.Or(r.TTL, l.cfg.TTL)
	valid, err := redisdb.Validity(r.TTL)
	if err != nil {
		return clients.Grant{}, clients.Fault("acquire", r.Key, err)
	}
	ctx, cancel := hold.Deadline(ctx, opWithin)
	defer cancel()
	g := clients.Grant{Key: r.Key, ID: r.ID, Valid: valid, Owner: hold.NewOwner(), HasToken: l.kind == counting}
	var ok bool
	switch l.kind {
	case counting:
		g.Token, ok, err = l.db.SetAndCount(ctx, r.Key, g.Owner, r.TTL)
	case replicated:
		ok, err = l.setReplicated(ctx, g, r.TTL)
	default:
		ok, err = l.db.Set(ctx, r.Key, g.Owner, r.TTL)
	}
	switch {
	case err != nil:
		return clients.Grant{}, clients.Fault("acquire", r.Key, err)
	case !ok:
		return clients.Grant{}, clients.Fault("acquire", r.Key, clients.ErrHeld)
	}
	if !l.keep(g, r.TTL) {
		return clients.Grant{}, clients.Fault("acquire", r.Key, hold.ErrClosed)
	}
	return g, nil
}

// waitWithin bounds the wait for a replica, unless the caller says. It has to be
// well below the time in which go-redis wants an answer.
const waitWithin = 250 * time.Millisecond

// setReplicated takes the lock and waits for a replica to have it. A lock that
// none has is given up: that is definite, as for a Redlock round, since without
// the client's own decision there is no lock.
func (l *Lock) setReplicated(ctx context.Context, g clients.Grant, ttl time.Duration) (bool, error) {
	ok, copied, err := l.db.SetAndWait(ctx, g.Key, g.Owner, ttl, cmp.Or(l.cfg.NodeTimeout, waitWithin))
	if err != nil || !ok || copied {
		return ok, err
	}
	_, err = l.db.Delete(ctx, g.Key, g.Owner)
	return false, fmt.Errorf("%w: no replica has it (undone: %v)", clients.ErrNoQuorum, err == nil)
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

// Renew gives the lock its whole TTL again.
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
	ctx, cancel := hold.Deadline(ctx, opWithin)
	defer cancel()
	ok, err := l.db.Extend(ctx, g.Key, g.Owner, ttl)
	if err := proved("renew", g.Key, ok, err); err != nil {
		return clients.Grant{}, err
	}
	g.Valid, g.Mark = valid, 0 // the new lease counts from this request
	return g, nil
}

// Check asks the server who has the lock. Its answer extends nothing, so the
// grant comes back without a validity.
func (l *Lock) Check(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	if g.Owner == "" {
		return clients.Grant{}, hold.Unknown("check", g)
	}
	ctx, cancel := hold.Deadline(ctx, opWithin)
	defer cancel()
	ok, err := l.db.Owns(ctx, g.Key, g.Owner)
	if err := proved("check", g.Key, ok, err); err != nil {
		return clients.Grant{}, err
	}
	g.Valid, g.Mark = 0, 0
	return g, nil
}

// Release lets go of the lock if it is still this grant's.
func (l *Lock) Release(ctx context.Context, g clients.Grant) error {
	if g.Owner == "" {
		return hold.Unknown("release", g)
	}
	if h, ok := l.holds.Take(g.Owner); ok {
		h.renewals.Stop()
	}
	ctx, cancel := hold.Deadline(ctx, opWithin)
	defer cancel()
	ok, err := l.db.Delete(ctx, g.Key, g.Owner)
	return proved("release", g.Key, ok, err)
}

// proved turns the answer of a script that compares the owner into an error.
func proved(act, key string, same bool, err error) error {
	if err == nil && !same {
		err = clients.ErrNotHeld
	}
	return clients.Fault(act, key, err)
}

// Close ends the connections. What is held stays until its TTL has passed:
// Redis knows no sessions.
func (l *Lock) Close(context.Context) error {
	for _, h := range l.holds.Close() {
		h.renewals.Stop()
	}
	return l.db.Close()
}
