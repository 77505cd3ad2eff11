package redis

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/redisdb"
	"github.com/lockcheck/lockcheck/clients/internal/servertest"
)

// A wire is a server and two clients: one behind a proxy, one beside it.
type wire struct {
	servertest.Subject
	server *servertest.Server
	proxy  *servertest.Proxy
	lock   clients.Lock
	beside clients.Lock
}

func newWire(t *testing.T, new clients.New, token bool, change func(*clients.Config)) *wire {
	w := &wire{server: servertest.Redis(t)}
	w.proxy = servertest.NewProxy(t, w.server.Addr)
	w.Subject = subject(new, token, w.server.Addr)
	w.beside = w.Make(t, nil)
	w.lock = w.Make(t, func(c *clients.Config) {
		c.Endpoints = []string{w.proxy.Addr}
		if change != nil {
			change(c)
		}
	})
	return w
}

// long outlasts every wait of a test.
var long = clients.Request{Key: "k", TTL: time.Hour}

func within(t *testing.T, d time.Duration) context.Context { return servertest.Within(t, d) }

func TestLostReplies(t *testing.T) {
	for name, new := range map[string]clients.New{"set-nx": NewSetNX, "set-nx-incr": NewSetNXIncr} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, new, name == "set-nx-incr", nil)
			w.proxy.DropReplies()
			before := servertest.Calls(t, w.server, "set")
			_, err := w.lock.Acquire(within(t, 300*time.Millisecond), long)
			servertest.Unknown(t, "acquire", err)
			_, err = w.beside.Acquire(within(t, time.Second), long)
			servertest.Is(t, "acquire beside", err, clients.ErrHeld) // so it had happened
			sets := servertest.Calls(t, w.server, "set") - before
			if name == "set-nx" {
				sets-- // the one beside
			}
			if sets != 1 {
				t.Fatalf("the server saw %d sets of one try", sets)
			}
			w.proxy.Heal()
			g := w.Get(t, w.lock, "other")
			w.proxy.DropReplies()
			servertest.Unknown(t, "release", w.lock.Release(within(t, 300*time.Millisecond), g))
			servertest.Is(t, "check of what was released", checked(t, w.beside, g), clients.ErrNotHeld)
		})
	}
}

func checked(t *testing.T, l clients.Lock, g clients.Grant) error {
	_, err := l.(clients.Checker).Check(within(t, 5*time.Second), g)
	return err
}

func TestLostRequest(t *testing.T) {
	t.Parallel()
	w := newWire(t, NewSetNX, false, nil)
	w.proxy.DropRequests()
	_, err := w.lock.Acquire(within(t, 200*time.Millisecond), long)
	servertest.Unknown(t, "acquire", err) // the client cannot know that it never arrived
	w.proxy.Heal()
	w.Get(t, w.lock, "k")
}

func TestNeverSent(t *testing.T) {
	t.Parallel()
	w := newWire(t, NewSetNX, false, nil)
	g := w.Get(t, w.lock, "mine")
	w.proxy.Down()
	w.lock.Acquire(within(t, time.Second), long) // may still meet the connection that ended
	_, err := w.lock.Acquire(within(t, time.Second), long)
	servertest.NotDone(t, "acquire", err)
	servertest.NotDone(t, "release", w.lock.Release(within(t, time.Second), g))
	servertest.NotDone(t, "check", checked(t, w.lock, g))
	w.proxy.Up()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = w.lock.Acquire(over, long)
	servertest.NotDone(t, "acquire without time", err)
	servertest.Is(t, "check afterwards", checked(t, w.lock, g), nil)
}

// The greeting that go-redis sends first is not the command.
func TestNoGreeting(t *testing.T) {
	t.Parallel()
	w := newWire(t, NewSetNX, false, nil)
	w.proxy.Down()
	w.proxy.Up() // the pooled connection is gone
	w.proxy.DropReplies()
	servertest.Eventually(t, "a new connection is made", func() bool {
		_, err := w.lock.Acquire(within(t, 100*time.Millisecond), long)
		return clients.Definite(err)
	})
	servertest.Is(t, "nobody has it", checked(t, w.beside, clients.Grant{Key: "k", Owner: "nobody"}), clients.ErrNotHeld)
	w.Get(t, w.beside, "k")
}

func TestServerKilled(t *testing.T) {
	t.Parallel()
	w := newWire(t, NewSetNX, false, nil)
	w.server.Pause()
	failed := make(chan error, 1)
	go func() {
		_, err := w.lock.Acquire(context.Background(), long)
		failed <- err
	}()
	time.Sleep(50 * time.Millisecond) // to be under way; sooner would do no harm
	w.server.Kill()
	servertest.Unknown(t, "acquire", <-failed)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	replica := servertest.Replica(t, "127.0.0.1:1")
	_, err := subject(NewSetNX, false, replica.Addr).Make(t, nil).Acquire(within(t, time.Second), long)
	servertest.NotDone(t, "acquire on a replica", err)

	w := newWire(t, NewSetNXIncr, true, nil)
	send(t, w.server.Addr, "SET "+redisdb.CounterKey("k")+" none\r\n")
	_, err = w.lock.Acquire(within(t, time.Second), long)
	servertest.NotDone(t, "acquire with a broken counter", err)
	send(t, w.server.Addr, "DEL "+redisdb.CounterKey("k")+"\r\n")
	w.Get(t, w.beside, "k") // so it left no lock behind

	_, err = w.lock.Acquire(within(t, time.Second), clients.Request{Key: "short", TTL: 2 * time.Millisecond})
	servertest.NotDone(t, "acquire with a TTL that leaves nothing", err)
}

func send(t *testing.T, addr, command string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte(command))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

func TestRenewalFails(t *testing.T) {
	t.Parallel()
	var rec servertest.Recorder
	w := newWire(t, NewSetNX, false, func(c *clients.Config) { c.Renew, c.Observer = true, &rec })
	g := w.Get(t, w.lock, "k")
	rec.Await(t, clients.Renewed, 1)
	w.proxy.DropReplies()
	w.proxy.DropRequests()
	if e := rec.Await(t, clients.RenewFailed, 1); clients.Definite(e.Err) && errors.Is(e.Err, clients.ErrNotHeld) {
		t.Fatalf("a lost reply: %v", e.Err)
	}
	w.Get(t, w.beside, "k") // after the TTL
	w.proxy.Heal()
	servertest.Eventually(t, "the server says not-held", func() bool {
		all := rec.Events()
		return errors.Is(all[len(all)-1].Err, clients.ErrNotHeld)
	})
	told := len(rec.Events()) // the renewals have ended by themselves
	time.Sleep(w.Config.TTL)
	if all := rec.Events(); len(all) != told || rec.Count(clients.Lost) != 0 {
		t.Fatalf("told after not-held: %+v", all)
	}
	servertest.Is(t, "release", w.lock.Release(within(t, time.Second), g), clients.ErrNotHeld)
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	master, sentinels := servertest.Sentinel(t)
	s := subject(NewSetNX, false, servertest.Addrs(sentinels)...)
	s.Config.Backend, s.Config.Master = Sentinel, servertest.MasterName
	a, b := s.Make(t, nil), s.Make(t, nil)
	g := s.Get(t, a, "k")
	_, err := b.Acquire(within(t, time.Second), long)
	servertest.Is(t, "second acquire", err, clients.ErrHeld)
	servertest.Is(t, "check", checked(t, b, g), nil)
	master.Kill()
	_, err = a.Acquire(within(t, time.Second), long)
	if err == nil || errors.Is(err, clients.ErrHeld) {
		t.Fatalf("acquire without a master: %v", err)
	}
	servertest.Eventually(t, "a new master grants", func() bool {
		_, err := a.Acquire(within(t, time.Second), clients.Request{Key: "after", TTL: time.Minute})
		return err == nil
	})
	_, err = b.Acquire(within(t, 3*time.Second), clients.Request{Key: "after", TTL: time.Minute})
	servertest.Is(t, "second acquire of it", err, clients.ErrHeld)

	sentinels[0].Kill()
	if _, err := NewSetNX(within(t, time.Second), s.Config); err == nil {
		t.Fatal("a client without a sentinel")
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	w := newWire(t, NewSetNX, false, nil)
	w.Get(t, w.lock, "k")
	w.proxy.DropReplies()
	w.proxy.DropRequests()
	begun := time.Now()
	w.lock.Close(within(t, time.Second))
	if took := time.Since(begun); took > time.Second {
		t.Fatalf("close took %v", took)
	}
	for _, addrs := range [][]string{{"127.0.0.1:1"}, {w.proxy.Addr}, nil} {
		if _, err := NewSetNX(within(t, 300*time.Millisecond), clients.Config{Endpoints: addrs}); err == nil {
			t.Fatalf("a client of %v", addrs)
		}
	}
}
