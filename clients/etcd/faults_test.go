package etcd

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/hold"
	"github.com/lockcheck/lockcheck/clients/internal/servertest"
)

type wire struct {
	servertest.Subject
	servers []*servertest.Server
	proxies []*servertest.Proxy
	lock    *Lock // behind the proxies
	beside  clients.Lock
}

func newWire(t *testing.T, n int, change func(*clients.Config)) *wire {
	w := &wire{servers: servertest.Etcd(t, n)}
	proxies, addrs := servertest.Proxies(t, w.servers)
	w.proxies, w.Subject = proxies, subject(servertest.Addrs(w.servers))
	w.beside = w.Make(t, nil)
	w.lock = w.Make(t, func(c *clients.Config) {
		c.Endpoints = addrs
		if change != nil {
			change(c)
		}
	}).(*Lock)
	return w
}

// long outlasts every wait of a test.
var long = clients.Request{Key: "k", TTL: time.Hour}

func within(t *testing.T, d time.Duration) context.Context { return servertest.Within(t, d) }

func checked(t *testing.T, l clients.Lock, g clients.Grant) error {
	_, err := l.(clients.Checker).Check(within(t, 10*time.Second), g)
	return err
}

// calls is how many calls of a method the server has started or handled.
func calls(t *testing.T, s *servertest.Server, what, method string) int {
	t.Helper()
	resp, err := http.Get("http://" + s.Addr + "/metrics")
	if err != nil {
		t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
		return 0
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		var v int
		if strings.HasPrefix(line, "grpc_server_"+what+"_total") && strings.Contains(line, fmt.Sprintf("grpc_method=%q", method)) {
			fmt.Sscan(line[strings.LastIndex(line, " "):], &v)
			n += v // handled has a line for each code
		}
	}
	return n
}

// untilHandled ends when the server has handled one more call of the method:
// etcd drops a request whose caller gives up before it was proposed, so that a
// caller with a fixed time would depend on how busy the machine is.
func untilHandled(t *testing.T, s *servertest.Server, method string) context.Context {
	ctx, cancel := context.WithCancel(within(t, 30*time.Second))
	before := calls(t, s, "handled", method)
	over := make(chan struct{})
	t.Cleanup(func() { cancel(); <-over })
	go func() {
		defer close(over)
		defer cancel()
		for ctx.Err() == nil && calls(t, s, "handled", method) == before {
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return ctx
}

func TestLostReplies(t *testing.T) {
	t.Parallel()
	w := newWire(t, 1, nil)
	lease, _, err := w.lock.members.grant(within(t, 5*time.Second), time.Minute)
	servertest.Is(t, "lease", err, nil)
	before := calls(t, w.servers[0], "started", "Txn")
	w.proxies[0].DropReplies()
	_, err = w.lock.members.create(untilHandled(t, w.servers[0], "Txn"), LockKey("k"), ownerOf(lease), lease)
	servertest.Unknown(t, "transaction", err)
	if n := calls(t, w.servers[0], "started", "Txn") - before; n != 1 {
		t.Fatalf("the server saw %d transactions of one try", n)
	}
	_, err = w.beside.Acquire(within(t, 5*time.Second), long)
	servertest.Is(t, "acquire beside", err, clients.ErrHeld) // so it had happened

	_, err = w.lock.Acquire(within(t, 300*time.Millisecond), clients.Request{Key: "other", TTL: time.Minute})
	servertest.NotDone(t, "acquire whose lease is not even known", err)
	w.proxies[0].Heal()
	w.lock.Check(within(t, time.Second), clients.Grant{Key: "k", HasToken: true}) // meets the connection that ended
	g := w.Get(t, w.lock, "third")
	w.proxies[0].DropReplies()
	servertest.Unknown(t, "release", w.lock.Release(untilHandled(t, w.servers[0], "Txn"), g))
	servertest.Is(t, "check of what was released", checked(t, w.beside, g), clients.ErrNotHeld)
	_, err = w.lock.Renew(within(t, 300*time.Millisecond), g)
	servertest.Unknown(t, "renew", err)
	servertest.Unknown(t, "check", func() error { _, err := w.lock.Check(within(t, 300*time.Millisecond), g); return err }())
}

func TestNeverSent(t *testing.T) {
	t.Parallel()
	w := newWire(t, 1, nil)
	g := w.Get(t, w.lock, "mine")
	w.proxies[0].Down()
	w.lock.Check(within(t, time.Second), g) // may still meet the connection that ended
	begun := time.Now()
	servertest.NotDone(t, "release", w.lock.Release(within(t, 10*time.Second), g))
	_, err := w.lock.Renew(within(t, 10*time.Second), g)
	servertest.NotDone(t, "renew", err)
	_, err = w.lock.members.create(within(t, 10*time.Second), "k", "o", 1)
	servertest.NotDone(t, "transaction", err)
	if took := time.Since(begun); took > 5*time.Second {
		t.Fatalf("it took %v to find that nobody listens", took)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	servertest.NotDone(t, "release without time", w.lock.Release(over, g))
}

// A lease that is not there is the server's refusal.
func TestNoLease(t *testing.T) {
	t.Parallel()
	w := newWire(t, 1, nil)
	_, err := w.lock.members.create(within(t, 5*time.Second), "k", "o", 4711)
	servertest.NotDone(t, "transaction", err)
	_, err = w.lock.members.keepAlive(within(t, 5*time.Second), 4711)
	servertest.Is(t, "keep-alive", err, clients.ErrNotHeld)
}

func TestServerKilled(t *testing.T) {
	t.Parallel()
	w := newWire(t, 1, nil)
	lease, _, err := w.lock.members.grant(within(t, 5*time.Second), time.Minute)
	servertest.Is(t, "lease", err, nil)
	w.servers[0].Pause()
	failed := make(chan error, 1)
	go func() {
		_, err := w.lock.members.create(context.Background(), "k", "o", lease)
		failed <- err
	}()
	time.Sleep(50 * time.Millisecond) // to be under way; sooner would be definite, and wrong here
	w.servers[0].Kill()
	servertest.Unknown(t, "transaction", <-failed)
}

// One member after the other fails: silent, down, without a leader.
func TestFailover(t *testing.T) {
	t.Parallel()
	w := newWire(t, 3, nil)
	g, err := w.lock.Acquire(within(t, 10*time.Second), long)
	servertest.Is(t, "acquire", err, nil)

	at := w.lock.members.current.Load()
	w.proxies[at].DropReplies()
	begun := time.Now()
	_, err = w.lock.Check(within(t, 400*time.Millisecond), g)
	servertest.Unknown(t, "check at a silent member", err)
	if took := time.Since(begun); took > 2*time.Second {
		t.Fatalf("hung for %v at a silent member", took)
	}
	servertest.Is(t, "the next check", checked(t, w.lock, g), nil)

	at = w.lock.members.current.Load()
	w.proxies[at].Down()
	w.lock.Check(within(t, 10*time.Second), g) // may still meet the connection that ended
	servertest.Is(t, "check with one silent and one down", checked(t, w.lock, g), nil)

	for _, p := range w.proxies {
		p.Heal()
	}
	w.proxies[at].Up()
	w.servers[0].Kill()
	w.servers[1].Kill()
	servertest.Eventually(t, "without a leader a release is refused", func() bool {
		err := w.lock.Release(within(t, 10*time.Second), g)
		return clients.Definite(err)
	})
}

func TestLost(t *testing.T) {
	t.Parallel()
	var rec servertest.Recorder
	w := newWire(t, 1, func(c *clients.Config) { c.Observer = &rec })
	released := w.Get(t, w.lock, "released")
	servertest.Is(t, "release", w.lock.Release(within(t, 5*time.Second), released), nil)
	g := w.Get(t, w.lock, "k")
	from := rec.Stamp(g.Mark)
	e := rec.Await(t, clients.Lost, 1)
	if e.Grant != g.ID || e.Key != g.Key || time.Since(from) < g.Valid {
		t.Fatalf("%v after the mark: %+v", time.Since(from), e)
	}
	servertest.Is(t, "check", checked(t, w.lock, g), clients.ErrNotHeld)
	time.Sleep(g.Valid) // it would be told again
	if all := rec.Events(); len(all) != 1 {
		t.Fatalf("told %+v", all)
	}
}

// A keep-alive that comes too late fails; it is the watcher that tells "lost".
func TestRenewalFails(t *testing.T) {
	t.Parallel()
	var rec servertest.Recorder
	w := newWire(t, 1, func(c *clients.Config) { c.Observer, c.Renew = &rec, true })
	w.Get(t, w.lock, "k")
	rec.Await(t, clients.Renewed, 2)
	w.proxies[0].Down()
	rec.Await(t, clients.RenewFailed, 1)
	w.Get(t, w.beside, "k")
	w.proxies[0].Up()
	rec.Await(t, clients.Lost, 1)
	if rec.Count(clients.Lost) != 1 {
		t.Fatalf("told %+v", rec.Events())
	}
}

// A lease that runs out while the transaction is under way gives no lock.
func TestLostDuringAcquire(t *testing.T) {
	t.Parallel()
	var rec servertest.Recorder
	w := newWire(t, 1, func(c *clients.Config) { c.Observer = &rec })
	begun := time.Now()
	lease, valid, err := w.lock.members.grant(within(t, 5*time.Second), time.Second)
	servertest.Is(t, "lease", err, nil)
	h := w.lock.watch(clients.Grant{Key: "k", ID: 7, Valid: valid, Owner: hold.NewOwner()}, lease, begun)
	rec.Await(t, clients.Lost, 1)
	servertest.Unknown(t, "granted", h.granted())
}

func TestForms(t *testing.T) {
	t.Parallel()
	w := newWire(t, 1, nil)
	g, err := w.lock.Acquire(within(t, 5*time.Second), clients.Request{Key: "k", TTL: 1200 * time.Millisecond})
	servertest.Is(t, "acquire", err, nil)
	if g.Valid != 2*time.Second {
		t.Fatalf("valid for %v: etcd's leases are whole seconds", g.Valid)
	}
	w.proxies[0].DropReplies()
	begun := time.Now()
	w.lock.Close(within(t, 5*time.Second))
	if took := time.Since(begun); took > 3*time.Second {
		t.Fatalf("close took %v", took)
	}
	for _, addrs := range [][]string{{"127.0.0.1:1"}, {w.proxies[0].Addr}, nil} {
		if _, err := New(within(t, 500*time.Millisecond), clients.Config{Endpoints: addrs, TTL: time.Second}); err == nil {
			t.Fatalf("a client of %v", addrs)
		}
	}
}
