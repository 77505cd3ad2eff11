package faulty

import (
	"context"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/redisdb"
	"github.com/lockcheck/lockcheck/clients/redis"
)

// broken makes redis/set-nx on a database with one method of its own.
func broken(instead func(*redisdb.DB) redis.Database) clients.New {
	return func(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
		return redis.With(ctx, cfg, false, instead)
	}
}

// UnsafeUnlock deletes the key without comparing the owner.
var UnsafeUnlock = broken(func(db *redisdb.DB) redis.Database { return unsafeUnlock{db} })

type unsafeUnlock struct{ *redisdb.DB }

func (d unsafeUnlock) Delete(ctx context.Context, name, _ string) (bool, error) {
	v, err := d.Command(ctx, "DEL", redisdb.LockKey(name))
	return v == int64(1), err
}

// GetThenDel compares the owner in one request and deletes in another.
var GetThenDel = broken(func(db *redisdb.DB) redis.Database { return getThenDel{db} })

type getThenDel struct{ *redisdb.DB }

func (d getThenDel) Delete(ctx context.Context, name, owner string) (bool, error) {
	if mine, err := d.Owns(ctx, name, owner); err != nil || !mine {
		return false, err
	}
	return unsafeUnlock(d).Delete(ctx, name, owner)
}

// SetnxThenExpire takes the key in one request and lets it expire by another.
var SetnxThenExpire = broken(func(db *redisdb.DB) redis.Database { return setnxThenExpire{db} })

type setnxThenExpire struct{ *redisdb.DB }

func (d setnxThenExpire) Set(ctx context.Context, name, owner string, ttl time.Duration) (bool, error) {
	v, err := d.Command(ctx, "SETNX", redisdb.LockKey(name), owner)
	if err != nil || v != int64(1) {
		return false, err
	}
	return extendAnyone(ctx, d.DB, name, ttl)
}

func extendAnyone(ctx context.Context, db *redisdb.DB, name string, ttl time.Duration) (bool, error) {
	v, err := db.Command(ctx, "PEXPIRE", redisdb.LockKey(name), ttl.Milliseconds())
	return v == int64(1), err
}

// ExtendRecreates sets the key again when a renewal finds that it has expired.
var ExtendRecreates = broken(func(db *redisdb.DB) redis.Database { return extendRecreates{db} })

type extendRecreates struct{ *redisdb.DB }

func (d extendRecreates) Extend(ctx context.Context, name, owner string, ttl time.Duration) (bool, error) {
	if ok, err := d.DB.Extend(ctx, name, owner, ttl); ok || err != nil {
		return ok, err
	}
	return d.Set(ctx, name, owner, ttl)
}

// ExtendOther renews the key whoever owns it.
var ExtendOther = broken(func(db *redisdb.DB) redis.Database { return extendOther{db} })

type extendOther struct{ *redisdb.DB }

func (d extendOther) Extend(ctx context.Context, name, _ string, ttl time.Duration) (bool, error) {
	return extendAnyone(ctx, d.DB, name, ttl)
}

// ClockToken takes its token from the client's clock. Its twin is
// redis/set-nx-incr.
func ClockToken(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	wrong, err := offset(cfg)
	if err != nil {
		return nil, err
	}
	return redis.With(ctx, cfg, true, func(db *redisdb.DB) redis.Database { return clockToken{db, wrong} })
}

type clockToken struct {
	*redisdb.DB
	wrong time.Duration
}

func (d clockToken) SetAndCount(ctx context.Context, name, owner string, ttl time.Duration) (uint64, bool, error) {
	ok, err := d.Set(ctx, name, owner, ttl)
	return uint64(time.Now().Add(d.wrong).UnixMicro()), ok, err
}
