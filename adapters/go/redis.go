package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/clients"
)

// A line is the connections of one session. go-redis sends a command again after
// trouble on one, three times unless it is told otherwise, and says nothing of it.
type line struct {
	trouble atomic.Int64
	conns   []redis.UniversalClient
}

// dial makes the clients with go-redis's own defaults, as a program has them that
// sets none: one for each server, or one for the master that sentinels name.
func (l *line) dial(ctx context.Context, cfg clients.Config) error {
	if cfg.Renew {
		return errors.New("this library does not renew in the background: leave --renew out")
	}
	if cfg.Backend == "redis-sentinel" {
		c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: cfg.Master, SentinelAddrs: cfg.Endpoints})
		c.AddHook(l)
		l.conns = append(l.conns, c)
	} else {
		for _, addr := range cfg.Endpoints {
			c := redis.NewClient(&redis.Options{Addr: addr})
			c.AddHook(l)
			l.conns = append(l.conns, c)
		}
	}
	return l.hello(ctx)
}

const helloWithin = 5 * time.Second

// hello waits until a majority answers.
func (l *line) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, helloWithin)
	defer cancel()
	answers := make(chan error, len(l.conns))
	for _, c := range l.conns {
		go func() { answers <- c.Ping(ctx).Err() }()
	}
	yes, errs := 0, []error(nil)
	for range l.conns {
		var err error
		select {
		case err = <-answers:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if errs = append(errs, err); err == nil {
			yes++
		}
		if yes > len(l.conns)/2 {
			return nil
		}
	}
	l.close()
	return fmt.Errorf("reach a majority of redis: %w", errors.Join(errs...))
}

func (l *line) close() error {
	var errs []error
	for _, c := range l.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// watch gives a function that reports whether all went well on the connections
// since then, so that no command was sent twice.
func (l *line) watch() (once func() bool) {
	before := l.trouble.Load()
	return func() bool { return l.trouble.Load() == before }
}

// DialHook and its fellows are go-redis's hooks.
func (l *line) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if tcp, ok := c.(*net.TCPConn); ok {
			return watched{tcp, l}, err
		}
		return c, err
	}
}
func (l *line) ProcessHook(next redis.ProcessHook) redis.ProcessHook                      { return next }
func (l *line) ProcessPipelineHook(n redis.ProcessPipelineHook) redis.ProcessPipelineHook { return n }

// watched is a connection that notes its trouble. It is still a TCP connection to
// go-redis, which looks at the socket before it uses an old one.
type watched struct {
	*net.TCPConn
	l *line
}

func (w watched) Read(b []byte) (int, error) {
	n, err := w.TCPConn.Read(b)
	if err != nil {
		w.l.trouble.Add(1)
	}
	return n, err
}

func (w watched) Write(b []byte) (int, error) {
	n, err := w.TCPConn.Write(b)
	if err != nil {
		w.l.trouble.Add(1)
	}
	return n, err
}

// redisKey is where the lock of that name lives.
func redisKey(name string) string { return "lockcheck/lock/" + name }
