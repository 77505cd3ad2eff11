// Package redisdb speaks to one Redis database for the locks that live in Redis.
// Every call is one request, sent at most once, and its error says what it
// proves. It refuses to retry.
package redisdb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockcheck/lockcheck/clients"
)

const (
	// dialWithin bounds making a connection, and with Sentinel also asking who
	// the master is. It has room for one sentinel that is cut off (replyWithin)
	// and for the others after it.
	dialWithin = 3 * time.Second
	// replyWithin bounds a request whose caller sets no earlier deadline.
	replyWithin = time.Second
	// poolSize is never reached. After that many failed dials go-redis would
	// refuse to dial at all and look again only once a second.
	poolSize = 4096
)

// A DB is one Redis database, or the master that the sentinels name.
type DB struct{ c *redis.Client }

// Single is the server at addr. No connection is made yet.
func Single(addr string, a Auth) *DB {
	silence()
	return &DB{redis.NewClient(&redis.Options{
		Username: a.User, Password: a.Password, TLSConfig: a.TLS,
		Addr:       addr,
		Protocol:   2,
		MaxRetries: -1,

		DialTimeout:           dialWithin,
		DialerRetries:         1,
		ReadTimeout:           replyWithin,
		WriteTimeout:          replyWithin,
		ContextTimeoutEnabled: true,
		ConnMaxIdleTime:       -1,
		PoolSize:              poolSize,
		PipelinePoolSize:      -1,

		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})}
}

// Failover is the master of that name, as the sentinels at addrs see it. When
// they name another one, go-redis closes the connections to the old one. Routes,
// if there are any, say where to go in place of the addresses that they tell; one
// that is not among them is refused, so that nothing can lead past a proxy.
func Failover(master string, addrs []string, routes map[string]string, a Auth) *DB {
	silence()
	return &DB{redis.NewFailoverClient(&redis.FailoverOptions{
		Username: a.User, Password: a.Password, SentinelUsername: a.User, SentinelPassword: a.Password, TLSConfig: a.TLS,
		MasterName:    master,
		SentinelAddrs: addrs,
		Dialer:        routed(addrs, routes, a.TLS),
		Protocol:      2,
		MaxRetries:    -1,

		DialTimeout:           dialWithin,
		DialerRetries:         1,
		ReadTimeout:           replyWithin,
		WriteTimeout:          replyWithin,
		ContextTimeoutEnabled: true,
		ConnMaxIdleTime:       -1,
		PoolSize:              poolSize,
		PipelinePoolSize:      -1,

		DisableIdentity: true,
	})}
}

// Close ends the connections at once, under requests that wait for a reply too.
func (d *DB) Close() error { return d.c.Close() }

// Ping asks for a sign of life.
func (d *DB) Ping(ctx context.Context) error {
	_, err := d.do(ctx, "PING", "lockcheck")
	return err
}

// do sends one command and gives its reply, nil for Redis's nil. Its error is
// definite in two cases. The server answered with an error: none of our
// commands changes anything before it can fail. Or the command was never even
// put into a connection's buffer: no connection, no master, no greeting (HELLO,
// which go-redis sends in any case), no time left.
func (d *DB) do(ctx context.Context, args ...any) (any, error) { return do(ctx, d.c, args...) }

// A sender is go-redis's client, or one connection of it.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

func do(ctx context.Context, to sender, args ...any) (any, error) {
	last := &traced{value: fmt.Sprint(args[len(args)-1])}
	args[len(args)-1] = last
	cmd := redis.NewCmd(ctx, args...)
	_ = to.Process(ctx, cmd) // the command has the error, too
	v, err := cmd.Result()
	var reply redis.Error
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, redis.Nil):
		return nil, nil
	case !last.written.Load(), errors.As(err, &reply):
		return nil, clients.NotDone(err)
	}
	return nil, err
}

// traced is an argument that knows whether it was written: go-redis calls
// MarshalBinary when it puts the command into the connection's buffer, and at
// no other time.
type traced struct {
	value   string
	written atomic.Bool
}

func (t *traced) MarshalBinary() ([]byte, error) {
	t.written.Store(true)
	return []byte(t.value), nil
}

// silence stops go-redis from writing to standard error, for the whole process:
// it knows no logger of a single client. What it would say is in the errors.
var silence = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
