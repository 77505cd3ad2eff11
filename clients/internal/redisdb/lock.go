package redisdb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/clients"
)

// The scripts of "Distributed Locks with Redis"
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
// They go out as EVAL, never as EVALSHA: with that, a server that does not know
// the script would cost a second request.
const (
	// deleteIfOwner lets go only of a lock that is still ours.
	deleteIfOwner = `if redis.call("get",KEYS[1]) == ARGV[1] then
	return redis.call("del",KEYS[1])
end
return 0`

	extendIfOwner = `if redis.call("get",KEYS[1]) == ARGV[1] then
	return redis.call("pexpire",KEYS[1],ARGV[2])
end
return 0`

	// setAndCount counts before it sets, so that a counter that cannot be
	// counted up leaves no lock behind.
	setAndCount = `if redis.call("exists",KEYS[1]) == 1 then
	return false
end
local token = redis.call("incr",KEYS[2])
redis.call("set",KEYS[1],ARGV[1],"PX",ARGV[2])
return token`
)

// LockKey is where the lock of that name lives, CounterKey its token counter.
// Neither prefix begins with the other, so no name can make them meet.
func LockKey(name string) string    { return "lockcheck/lock/" + name }
func CounterKey(name string) string { return "lockcheck/token/" + name }

// Validity is how long a holder may rely on a lock of that TTL, counted from
// before it was asked for. Redis keeps whole milliseconds of a cached wall
// clock, and clocks drift: the allowance is Redlock's, 1 % and 2 ms. It fails if
// nothing remains.
func Validity(ttl time.Duration) (time.Duration, error) {
	ttl = ttl.Truncate(time.Millisecond)
	valid := ttl - ttl/100 - 2*time.Millisecond
	if valid <= 0 {
		return 0, clients.NotDone(fmt.Errorf("a TTL of %v leaves nothing to rely on", ttl))
	}
	return valid, nil
}

// Set takes the lock for owner, if nobody has it.
func (d *DB) Set(ctx context.Context, name, owner string, ttl time.Duration) (bool, error) {
	v, err := d.do(ctx, "SET", LockKey(name), owner, "NX", "PX", ttl.Milliseconds())
	return v != nil, err
}

// SetAndWait is Set that also asks how many replicas have it, on the same
// connection, and waits for one that long. No answer to that counts as none.
func (d *DB) SetAndWait(ctx context.Context, name, owner string, ttl, within time.Duration) (ok, replicated bool, err error) {
	conn := d.c.Conn()
	defer conn.Close()
	v, err := do(ctx, conn, "SET", LockKey(name), owner, "NX", "PX", ttl.Milliseconds())
	if err != nil || v == nil {
		return false, false, err
	}
	n, err := do(ctx, conn, "WAIT", 1, within.Milliseconds())
	replicas, _ := n.(int64)
	return true, err == nil && replicas > 0, nil
}

// SetAndCount is Set that also counts the grants of this lock.
func (d *DB) SetAndCount(ctx context.Context, name, owner string, ttl time.Duration) (token uint64, ok bool, err error) {
	v, err := d.do(ctx, "EVAL", setAndCount, 2, LockKey(name), CounterKey(name), owner, ttl.Milliseconds())
	n, ok := v.(int64)
	return uint64(n), ok, err
}

// Delete lets go of the lock, if it is owner's.
func (d *DB) Delete(ctx context.Context, name, owner string) (bool, error) {
	v, err := d.do(ctx, "EVAL", deleteIfOwner, 1, LockKey(name), owner)
	return v == int64(1), err
}

// Extend gives the lock ttl from now, if it is owner's.
func (d *DB) Extend(ctx context.Context, name, owner string, ttl time.Duration) (bool, error) {
	v, err := d.do(ctx, "EVAL", extendIfOwner, 1, LockKey(name), owner, ttl.Milliseconds())
	return v == int64(1), err
}

// Owns asks whether the lock is owner's.
func (d *DB) Owns(ctx context.Context, name, owner string) (bool, error) {
	v, err := d.do(ctx, "GET", LockKey(name))
	return v == owner, err
}

// Command sends a command that is no part of the honest locks. As with theirs,
// an error reply must prove that nothing was changed.
func (d *DB) Command(ctx context.Context, args ...any) (any, error) { return d.do(ctx, args...) }

// DeleteWatched is Delete by optimistic locking: WATCH, GET, compare, and DEL in
// a transaction that comes to nothing if the key was changed meanwhile. Without
// the transaction the WATCH protects nothing, which is what a lock that is broken
// on purpose shows.
func (d *DB) DeleteWatched(ctx context.Context, name, owner string, transaction bool) (bool, error) {
	conn := d.c.Conn()
	defer conn.Close()
	if _, err := do(ctx, conn, "WATCH", LockKey(name)); err != nil {
		return false, clients.NotDone(err) // nothing was asked to be deleted
	}
	v, err := do(ctx, conn, "GET", LockKey(name))
	if err != nil {
		return false, clients.NotDone(err)
	}
	if v != owner {
		_, _ = do(ctx, conn, "UNWATCH") // the answer stands; a watch left behind could only undo a later transaction
		return false, nil
	}
	if !transaction {
		v, err := do(ctx, conn, "DEL", LockKey(name))
		return v == int64(1), err
	}
	var n *redis.IntCmd
	_, err = conn.TxPipelined(ctx, func(p redis.Pipeliner) error {
		n = p.Del(ctx, LockKey(name))
		return nil
	})
	if errors.Is(err, redis.TxFailedErr) { // changed since: it expired, unless somebody renewed it
		if v, err = do(ctx, conn, "GET", LockKey(name)); err == nil && v != owner {
			return false, nil
		}
		return false, clients.NotDone(fmt.Errorf("the key was changed during the release: %w", redis.TxFailedErr))
	}
	return err == nil && n.Val() == 1, err
}
