package zookeeper

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/servertest"
)

// A wire is a server and two clients: one behind a proxy, one beside it.
type wire struct {
	servertest.Subject
	name   string // of the test: several share one server
	server *servertest.Server
	proxy  *servertest.Proxy
	rec    *servertest.Recorder
	lock   *Lock // behind the proxy
	beside *Lock
}

func newWire(t *testing.T, server *servertest.Server, session time.Duration) *wire {
	w := &wire{name: t.Name() + "/", server: server, rec: &servertest.Recorder{}, Subject: subject([]string{server.Addr})}
	w.proxy = servertest.NewProxy(t, server.Addr)
	w.beside = w.Make(t, func(c *clients.Config) { c.TTL = 20 * time.Second }).(*Lock)
	w.lock = w.Make(t, func(c *clients.Config) {
		c.Endpoints, c.TTL, c.Observer = []string{w.proxy.Addr}, session, w.rec
	}).(*Lock)
	return w
}

// Get is the subject's, on keys of this test.
func (w *wire) Get(t *testing.T, l clients.Lock, key string) clients.Grant {
	t.Helper()
	return w.Subject.Get(t, l, w.name+key)
}

func (w *wire) request(key string, wait time.Duration) clients.Request {
	return clients.Request{Key: w.name + key, ID: 1, Wait: wait}
}

// A JVM takes long to start, so what leaves the server alone shares one.
func TestOneServer(t *testing.T) {
	server := alone(t)
	for name, test := range map[string]struct {
		session time.Duration
		run     func(*testing.T, *wire)
	}{
		"lost replies":  {20 * time.Second, lostReplies},
		"found again":   {20 * time.Second, foundAgain},
		"never sent":    {20 * time.Second, neverSent},
		"waiting":       {20 * time.Second, waiting},
		"only ahead":    {20 * time.Second, onlyAhead},
		"other session": {20 * time.Second, otherSession},
		"expired":       {time.Second, expired},
		"renewal fails": {time.Second, renewalFails},
		"connects fast": {time.Second, connectsFast},
		"minimum":       {20 * time.Second, minimum},
		"contract":      {20 * time.Second, func(t *testing.T, w *wire) { servertest.Contract(t, w.Subject) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newWire(t, server, test.session))
		})
	}
}

func within(t *testing.T, d time.Duration) context.Context { return servertest.Within(t, d) }

func checked(t *testing.T, l *Lock, g clients.Grant) error {
	_, err := l.Check(within(t, 10*time.Second), g)
	return err
}

// queue is who stands in line, as a client beside the proxy sees it.
func (w *wire) queue(t *testing.T, key string) []string {
	t.Helper()
	children, _, err := w.beside.s.conn.Children(Dir(w.name + key))
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return children
}

func (w *wire) waitQueue(t *testing.T, key string, n int) {
	t.Helper()
	servertest.Eventually(t, "the queue has the length", func() bool { return len(w.queue(t, key)) == n })
}

type outcome struct {
	g   clients.Grant
	err error
}

// begin acquires in the background.
func begin(l *Lock, ctx context.Context, r clients.Request) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		g, err := l.Acquire(ctx, r)
		done <- outcome{g, err}
	}()
	return done
}

func lostReplies(t *testing.T, w *wire) {
	g := w.Get(t, w.lock, "mine")
	w.proxy.DropReplies()
	_, err := w.lock.Acquire(within(t, 400*time.Millisecond), w.request("mine too", 0))
	servertest.Unknown(t, "acquire", err)
	servertest.Unknown(t, "check", func() error { _, err := w.lock.Check(within(t, 200*time.Millisecond), g); return err }())
	servertest.Unknown(t, "release", w.lock.Release(within(t, 200*time.Millisecond), g))
	w.waitQueue(t, "mine", 0)
	w.proxy.Heal() // ends the connection
	w.rec.Await(t, clients.Connected, 2)
	servertest.Is(t, "release of what was released", w.lock.Release(within(t, 10*time.Second), g), clients.ErrNotHeld)
}

// A node whose creation got no answer is found again, and there is no second.
func foundAgain(t *testing.T, w *wire) {
	w.waitQueue(t, "k", 0)
	servertest.Is(t, "make the parents", w.beside.Release(within(t, 10*time.Second), w.Get(t, w.beside, "k")), nil)
	w.proxy.DropReplies()
	done := begin(w.lock, within(t, 30*time.Second), w.request("k", 0))
	w.waitQueue(t, "k", 1)
	w.proxy.Heal() // ends the connection
	got := <-done
	servertest.Is(t, "acquire", got.err, nil)
	if q := w.queue(t, "k"); len(q) != 1 || q[0] != got.g.Owner {
		t.Fatalf("queue %v, grant %+v", q, got.g)
	}
	servertest.Is(t, "check", checked(t, w.lock, got.g), nil)
}

func neverSent(t *testing.T, w *wire) {
	g := w.Get(t, w.lock, "k")
	w.proxy.Down()
	w.rec.Await(t, clients.Suspended, 1)
	_, err := w.lock.Acquire(within(t, 100*time.Millisecond), w.request("other", 0))
	servertest.NotDone(t, "acquire", err)
	servertest.NotDone(t, "release", w.lock.Release(within(t, 100*time.Millisecond), g))
	w.proxy.Up()
	w.rec.Await(t, clients.Connected, 2)
	servertest.Is(t, "check", checked(t, w.lock, g), nil)
}

func waiting(t *testing.T, w *wire) {
	ctx := within(t, 30*time.Second)
	g := w.Get(t, w.beside, "k")
	begun := time.Now()
	_, err := w.lock.Acquire(ctx, w.request("k", 300*time.Millisecond))
	servertest.Is(t, "acquire", err, clients.ErrAhead)
	if took := time.Since(begun); took < 300*time.Millisecond {
		t.Fatalf("waited only %v", took)
	}
	_, err = w.lock.Acquire(within(t, 3*time.Second), w.request("k", time.Minute))
	servertest.Is(t, "acquire with less time than it may wait", err, clients.ErrAhead)
	if q := w.queue(t, "k"); len(q) != 1 {
		t.Fatalf("left in the queue: %v", q)
	}
	done := begin(w.lock, ctx, w.request("k", time.Minute))
	w.waitQueue(t, "k", 2)
	servertest.Is(t, "release", w.beside.Release(ctx, g), nil)
	got := <-done
	servertest.Is(t, "acquire", got.err, nil)
	if got.g.Token <= g.Token {
		t.Fatalf("token %d after %d", got.g.Token, g.Token)
	}
}

// A contender that stands ahead need not hold the lock: it may not have looked
// yet, and give up. Nobody holds it here, so "held" would be a lie, and the
// linearizability checker would take it for the lock's.
func onlyAhead(t *testing.T, w *wire) {
	servertest.Is(t, "make the parents", w.beside.Release(within(t, 10*time.Second), w.Get(t, w.beside, "k")), nil)
	node, err := w.beside.s.conn.Create(Dir(w.name+"k")+"/"+prefix("somebody"), nil, Recipe().Flags, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.lock.Acquire(within(t, 10*time.Second), w.request("k", 0))
	servertest.Is(t, "acquire behind a contender that holds nothing", err, clients.ErrAhead)
	if err := w.beside.s.conn.Delete(node, -1); err != nil {
		t.Fatal(err)
	}
	w.Get(t, w.lock, "k")
}

func expired(t *testing.T, w *wire) {
	first := w.Get(t, w.lock, "k")
	held := w.Get(t, w.beside, "waiting")
	waiting := begin(w.lock, within(t, 40*time.Second), w.request("waiting", 30*time.Second))
	w.waitQueue(t, "waiting", 2)
	w.proxy.Down()
	w.rec.Await(t, clients.Suspended, 1)
	w.waitQueue(t, "k", 0) // the session has expired, and its client does not know
	if w.rec.Count(clients.Lost) != 0 {
		t.Fatal("told lost before a server could say so")
	}
	w.proxy.Up()
	w.rec.Await(t, clients.Lost, 1)
	w.rec.Await(t, clients.Connected, 2)
	if got := <-waiting; got.err == nil || errors.Is(got.err, clients.ErrHeld) { // definite or not: a lost reply is possible
		t.Fatalf("an acquire whose session expired: %+v", got)
	}
	servertest.Is(t, "check", checked(t, w.lock, first), clients.ErrNotHeld)
	servertest.Is(t, "release", w.lock.Release(within(t, 10*time.Second), first), clients.ErrNotHeld)
	second := w.Get(t, w.lock, "k")
	if second.Token <= first.Token || !w.rec.Stamp(second.Mark).After(w.rec.Stamp(first.Mark)) {
		t.Fatalf("%+v after %+v", second, first)
	}
	if q := w.queue(t, "waiting"); len(q) != 1 || q[0] != held.Owner {
		t.Fatalf("left in the queue: %v", q)
	}
	var told []string
	for _, e := range w.rec.Events() {
		told = append(told, e.F)
	}
	if got := strings.Join(told, " "); got != "connected suspended lost connected" {
		t.Fatalf("told %s", got)
	}
}

// The first in the queue has no lock if the session is not that of the acquire.
func otherSession(t *testing.T, w *wire) {
	g := w.Get(t, w.lock, "k")
	epoch, _, _, _ := w.lock.s.look()
	servertest.Is(t, "the same session", w.lock.await(within(t, 10*time.Second), epoch, g, 0), nil)
	servertest.Is(t, "another session", w.lock.await(within(t, 10*time.Second), epoch+1, g, 0), errOtherSession)
	_, err := w.lock.enqueue(within(t, 10*time.Second), epoch+1, w.name+"other")
	servertest.NotDone(t, "created in another session", err)
	if q := w.queue(t, "other"); len(q) != 0 {
		t.Fatalf("left in the queue: %v", q)
	}
	// Its node may stand for a while after a session was said to have expired.
	w.lock.holds.Put(g.Owner, held{epoch + 1, nil})
	servertest.Is(t, "check after the session", checked(t, w.lock, g), clients.ErrNotHeld)
	servertest.Is(t, "release after the session", w.lock.Release(within(t, 10*time.Second), g), clients.ErrNotHeld)
	if q := w.queue(t, "k"); len(q) != 1 {
		t.Fatalf("another session's node was touched: %v", q)
	}
}

func alone(t *testing.T) *servertest.Server {
	t.Helper()
	return servertest.ZooKeeper(t, 1, "maxSessionTimeout=60000")[0]
}

func TestRestart(t *testing.T) {
	t.Parallel()
	w := newWire(t, alone(t), 20*time.Second)
	g := w.Get(t, w.lock, "k")
	w.server.Kill()
	w.rec.Await(t, clients.Suspended, 1)
	w.server.Restart()
	w.rec.Await(t, clients.Connected, 2)
	servertest.Is(t, "check", checked(t, w.lock, g), nil)
	if w.rec.Count(clients.Lost) != 0 {
		t.Fatal("lost by a restart")
	}
}

// The server that the client is connected to dies, and another takes over
// within the session.
func TestFailover(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t, 3, "maxSessionTimeout=60000")
	var rec servertest.Recorder
	s := subject(servertest.Addrs(servers))
	l := s.Make(t, func(c *clients.Config) { c.TTL, c.Observer, c.Worker = 8*time.Second, &rec, 1 }).(*Lock)
	g := s.Get(t, l, "k")
	if at := l.s.conn.Server(); at != servers[1].Addr {
		t.Fatalf("worker 1 went to %s", at)
	}
	servers[1].Kill()
	rec.Await(t, clients.Suspended, 1)
	rec.Await(t, clients.Connected, 2)
	servertest.Is(t, "check", checked(t, l, g), nil)
	servertest.Is(t, "release", l.Release(within(t, 10*time.Second), g), nil)
	if rec.Count(clients.Lost) != 0 {
		t.Fatal("lost by a failover")
	}
}

func renewalFails(t *testing.T, w *wire) {
	rec := &servertest.Recorder{}
	l := w.Make(t, func(c *clients.Config) { c.Endpoints, c.Renew, c.Observer = []string{w.proxy.Addr}, true, rec })
	w.Get(t, l, "k")
	rec.Await(t, clients.Renewed, 1)
	w.proxy.Down()
	rec.Await(t, clients.RenewFailed, 1)
	w.waitQueue(t, "k", 0)
	w.proxy.Up()
	servertest.Eventually(t, "the server says not-held", func() bool {
		for _, e := range rec.Events() {
			if errors.Is(e.Err, clients.ErrNotHeld) {
				return true
			}
		}
		return false
	})
	rec.Await(t, clients.Lost, 1)
}

// Without maxSessionTimeout, 20 ticks are the most.
func TestSessionCapped(t *testing.T) {
	t.Parallel()
	s := subject([]string{servertest.ZooKeeper(t, 1)[0].Addr})
	s.Config.TTL = 5 * time.Second
	if _, err := New(within(t, 10*time.Second), s.Config); err == nil || !strings.Contains(err.Error(), "4s") {
		t.Fatalf("20 ticks are 4 s, not 5: %v", err)
	}
}

func minimum(t *testing.T, w *wire) {
	l := w.Make(t, func(c *clients.Config) { c.TTL = 100 * time.Millisecond }).(*Lock)
	if got := l.SessionTimeout(); got != 400*time.Millisecond {
		t.Fatalf("at least 2 ticks, but %v", got)
	}
}

// The first server does not answer, the second does: that must not take long.
func connectsFast(t *testing.T, w *wire) {
	w.proxy.DropReplies()
	for _, dead := range []string{"127.0.0.1:1", w.proxy.Addr} {
		begun := time.Now()
		w.Make(t, func(c *clients.Config) { c.Endpoints = []string{dead, w.server.Addr} })
		if took := time.Since(begun); took > 5*time.Second { // go-zookeeper alone: 6.7 s
			t.Fatalf("connecting took %v", took)
		}
	}
	w.proxy.Heal()
}

func TestServersGone(t *testing.T) {
	w := newWire(t, alone(t), 20*time.Second)
	g := w.Get(t, w.lock, "k")
	w.server.Pause()
	begun := time.Now()
	servertest.Unknown(t, "check", func() error { _, err := w.lock.Check(within(t, 200*time.Millisecond), g); return err }())
	if took := time.Since(begun); took > time.Second {
		t.Fatalf("a check with 200 ms took %v", took)
	}
	if _, err := New(within(t, 300*time.Millisecond), w.Config); err == nil {
		t.Fatal("a client of nobody")
	}
	begun = time.Now()
	servertest.Unknown(t, "close", w.lock.Close(within(t, 5*time.Second)))
	if took := time.Since(begun); took > 2*time.Second {
		t.Fatalf("close took %v", took)
	}
	w.server.Kill()
	w.beside.Close(within(t, time.Second))
	servertest.Eventually(t, "go-zookeeper ends", func() bool {
		stacks := make([]byte, 1<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "go-zookeeper")
	})
}
