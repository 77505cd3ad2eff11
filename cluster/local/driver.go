package local

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/cluster"
)

// A driver knows one kind of server. It talks to servers directly, never through
// a worker's proxy.
type driver interface {
	// roles lists the members to make, in order; their names follow from it.
	roles() []named
	// command writes what configuration m needs, unless it is there, and
	// returns what starts it.
	command(m *member, all []*member) (*exec.Cmd, error)
	// ready waits until the cluster has answered a first real operation.
	ready(ctx context.Context, all []*member) error
	// rejoined waits until m serves again after a restart.
	rejoined(ctx context.Context, m *member, all []*member) error
	// leader names the member that leads, as the cluster itself sees it.
	leader(ctx context.Context, all []*member) (string, error)
	// versions asks the servers.
	versions(ctx context.Context, all []*member) (map[string]string, error)
}

// A forgetter is a driver whose cluster must be told before a member that lost
// its data may come back.
type forgetter interface {
	forget(ctx context.Context, m *member, all []*member) error
	// anew is what is left of that when no quorum remains to be told.
	anew(m *member) error
}

// A steppingDown is a driver whose leader can be asked to let another one lead.
type steppingDown interface {
	handOver(ctx context.Context, all []*member) error
}

type named struct {
	name   string
	role   role
	second bool // starts when the others are listening
}

// newDriver returns the driver of a backend with the programs that it needs.
func newDriver(spec cluster.Spec) (driver, error) {
	paths, err := Find(spec.Backend)
	if err != nil {
		return nil, err
	}
	return newDriverOf(spec, paths)
}

// newDriverOf returns the driver of a backend whose programs are there.
func newDriverOf(spec cluster.Spec, paths map[string]string) (driver, error) {
	aof := false
	switch spec.Persistence {
	case "", "none":
	case "aof":
		aof = true
	default:
		return nil, fmt.Errorf("start %s: persistence %q: want none or aof", spec.Backend, spec.Persistence)
	}
	switch spec.Backend {
	case cluster.Redis:
		return &redisDriver{path: paths[redisServer], nodes: 1, aof: aof}, nil
	case cluster.Redlock:
		return &redisDriver{path: paths[redisServer], nodes: redlockNodes, aof: aof}, nil
	case cluster.Sentinel:
		return &sentinelDriver{
			redis:    redisDriver{path: paths[redisServer], nodes: sentinelServers, aof: aof},
			sentinel: paths[redisSentinel],
		}, nil
	case cluster.ZooKeeper:
		return &zookeeperDriver{java: paths[javaProgram], classPath: paths[zookeeperJar], sessionMax: spec.SessionMax}, nil
	default: // Find knows the same backends
		return &etcdDriver{path: paths[etcdServer]}, nil
	}
}

// numbered gives n members of one role the names n1, n2, ...
func numbered(prefix string, n int, r role) []named {
	var out []named
	for i := range n {
		out = append(out, named{name: fmt.Sprintf("%s%d", prefix, i+1), role: r})
	}
	return out
}

const (
	pollEvery = 2 * time.Millisecond
	tryLimit  = 2 * time.Second // for one question to one server
)

// poll repeats try, each time with a deadline of its own, until it succeeds or
// ctx ends; the error is then the last one that try gave.
func poll(ctx context.Context, what string, try func(context.Context) error) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		tctx, cancel := context.WithTimeout(ctx, tryLimit)
		err := try(tctx)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last answer: %w)", what, context.Cause(ctx), err)
		case <-t.C:
		}
	}
}

// each runs f for all members at once and returns the first error by order.
func each(ms []*member, f func(*member) error) error {
	errs := make([]error, len(ms))
	done := make(chan struct{}, len(ms))
	for i, m := range ms {
		go func() {
			errs[i] = f(m)
			done <- struct{}{}
		}()
	}
	for range ms {
		<-done
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// listening waits until m's first port accepts connections.
func listening(ctx context.Context, m *member) error {
	return poll(ctx, "connect to "+m.name, func(ctx context.Context) error {
		conn, err := dial(ctx, m.door())
		if err == nil {
			conn.Close()
		}
		return err
	})
}

func clientAddrs(ms ...*member) []string {
	var addrs []string
	for _, m := range ms {
		addrs = append(addrs, m.door())
	}
	return addrs
}

func indexOf(ms []*member, m *member) int { return slices.Index(ms, m) }

func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }
