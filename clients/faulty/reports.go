package faulty

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/redisdb"
	"github.com/lockcheck/lockcheck/clients/redis"
)

// WatchDel releases by WATCH, GET and DEL, and never opens the transaction that
// the watch is for. Its twin is WatchMulti.
var WatchDel = broken(func(db *redisdb.DB) redis.Database { return watched{db, false} })

// WatchMulti releases by WATCH, GET and DEL in a transaction: an honest lock.
var WatchMulti = broken(func(db *redisdb.DB) redis.Database { return watched{db, true} })

type watched struct {
	*redisdb.DB
	transaction bool
}

func (d watched) Delete(ctx context.Context, name, owner string) (bool, error) {
	return d.DeleteWatched(ctx, name, owner, d.transaction)
}

// RenewUntilError renews in the background, and never again after one renewal
// has failed. Its twin is redis/set-nx that renews.
var RenewUntilError = broken(func(db *redisdb.DB) redis.Database { return &renewUntilError{DB: db} })

type renewUntilError struct {
	*redisdb.DB
	over atomic.Pointer[string] // the owner whose renewals have ended
}

func (d *renewUntilError) Extend(ctx context.Context, name, owner string, ttl time.Duration) (bool, error) {
	if over := d.over.Load(); over != nil && *over == owner {
		return false, clients.NotDone(errNotRescheduled)
	}
	ok, err := d.DB.Extend(ctx, name, owner, ttl)
	if err != nil {
		d.over.Store(&owner)
	}
	return ok, err
}

var errNotRescheduled = errors.New("no renewal was scheduled any more")
