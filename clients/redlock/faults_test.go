package redlock

import (
	"context"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/redisdb"
	"github.com/lockcheck/lockcheck/clients/internal/servertest"
)

const quick = 100 * time.Millisecond

type wires struct {
	servertest.Subject
	servers []*servertest.Server
	proxies []*servertest.Proxy
	lock    clients.Lock
}

func newWires(t *testing.T, change func(*clients.Config)) *wires {
	w := &wires{servers: servertest.Redises(t, 5)}
	var addrs []string
	w.proxies, addrs = servertest.Proxies(t, w.servers)
	w.Subject = subject(addrs)
	w.lock = w.Make(t, change)
	return w
}

// free reports whether nobody has the key on server i.
func (w *wires) free(t *testing.T, i int, key string) bool {
	t.Helper()
	db := redisdb.Single(w.servers[i].Addr, redisdb.Auth{})
	defer db.Close()
	ok, err := db.Set(servertest.Within(t, 5*time.Second), key, "probe", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// long outlasts every wait of a test.
var long = clients.Request{Key: "k", TTL: time.Hour}

func within(t *testing.T, d time.Duration) context.Context { return servertest.Within(t, d) }

func TestMinorityDown(t *testing.T) {
	t.Parallel()
	w := newWires(t, nil)
	w.servers[0].Kill()
	w.proxies[1].DropReplies()
	g, err := w.lock.Acquire(within(t, 5*time.Second), long)
	servertest.Is(t, "acquire", err, nil)
	_, err = w.lock.(clients.Checker).Check(within(t, 5*time.Second), g)
	servertest.Is(t, "check", err, nil)
	_, err = w.lock.(clients.Renewer).Renew(within(t, 5*time.Second), g)
	servertest.Is(t, "renew", err, nil)
	servertest.Is(t, "release", w.lock.Release(within(t, 5*time.Second), g), nil)
	for i := 2; i < 5; i++ { // server 1 never answers the greeting
		if !w.free(t, i, "k") {
			t.Fatalf("server %d keeps the lock", i)
		}
	}
}

// A round that failed is undone, also where the answer was too late.
func TestNoQuorum(t *testing.T) {
	t.Parallel()
	w := newWires(t, func(c *clients.Config) { c.NodeTimeout = quick })
	w.servers[0].Kill()
	w.proxies[1].DropReplies()
	w.proxies[2].DelayReplies(3 * int(quick.Milliseconds()))
	_, err := w.lock.Acquire(within(t, 5*time.Second), long)
	servertest.Is(t, "acquire", err, clients.ErrNoQuorum)
	for i := 2; i < 5; i++ {
		servertest.Eventually(t, "the lock is undone", func() bool { return w.free(t, i, "k") })
	}
}

// A quorum that comes when the lease is over is none.
func TestTooLate(t *testing.T) {
	t.Parallel()
	w := newWires(t, nil)
	for _, p := range w.proxies[:3] {
		p.DelayReplies(150)
	}
	_, err := w.lock.Acquire(within(t, 5*time.Second), clients.Request{Key: "k", TTL: 120 * time.Millisecond})
	servertest.Is(t, "acquire", err, clients.ErrNoQuorum)
	g, err := w.lock.Acquire(within(t, 5*time.Second), long)
	servertest.Is(t, "acquire with time enough", err, nil)
	if want := long.TTL - long.TTL/100 - 2*time.Millisecond; g.Valid != want || g.Mark != 0 {
		t.Fatalf("valid %v from mark %d, want %v from the invoke", g.Valid, g.Mark, want)
	}
}

func TestReleaseUnknown(t *testing.T) {
	t.Parallel()
	w := newWires(t, func(c *clients.Config) { c.NodeTimeout = quick })
	g := w.Get(t, w.lock, "k")
	for _, p := range w.proxies[:3] {
		p.DropReplies()
	}
	servertest.Unknown(t, "release", w.lock.Release(within(t, 5*time.Second), g))
}

func TestNeverSent(t *testing.T) {
	t.Parallel()
	w := newWires(t, nil)
	g, err := w.lock.Acquire(within(t, 5*time.Second), long)
	servertest.Is(t, "acquire", err, nil)
	for _, p := range w.proxies {
		p.Down()
	}
	_, err = w.lock.Acquire(within(t, 5*time.Second), clients.Request{Key: "none", TTL: time.Minute})
	servertest.Is(t, "acquire", err, clients.ErrNoQuorum)
	servertest.NotDone(t, "release", w.lock.Release(within(t, 5*time.Second), g))
	if _, err := New(within(t, time.Second), w.Config); err == nil {
		t.Fatal("a client of nobody")
	}
}
