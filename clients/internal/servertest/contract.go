package servertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/clients"
)

// A Subject is a lock client and what it promises.
type Subject struct {
	New     clients.New
	Config  clients.Config // without an observer
	Token   bool
	Session bool  // held while a session lives; else a lease
	Freed   bool  // by Close
	Refused error // what an acquire of a lock that is held returns
}

// Contract checks what every client has to keep.
func Contract(t *testing.T, s Subject) {
	for name, f := range map[string]func(*testing.T, Subject){
		"life": life, "expiry": expiry, "renewal": renewal, "background": background,
		"hostile keys": hostileKeys, "close": closing, "contenders": contenders, "unknown grant": unknownGrant,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, s)
		})
	}
}

var lastID atomic.Uint64

// Make makes one client that is closed with the test. worker tells it apart.
func (s Subject) Make(t testing.TB, change func(*clients.Config)) clients.Lock {
	t.Helper()
	cfg := s.Config
	if change != nil {
		change(&cfg)
	}
	l, err := s.New(Within(t, startWithin), cfg)
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	t.Cleanup(func() { l.Close(Within(t, 2*time.Second)) })
	return l
}

// Within gives a context for one operation.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func (s Subject) request(key string) clients.Request {
	return clients.Request{Key: key, ID: lastID.Add(1), TTL: s.Config.TTL}
}

// Get acquires, trying again while the lock is refused.
func (s Subject) Get(t testing.TB, l clients.Lock, key string) clients.Grant {
	t.Helper()
	ctx := Within(t, startWithin)
	for {
		g, err := l.Acquire(ctx, s.request(key))
		switch {
		case err == nil:
			s.look(t, g, key)
			return g
		case !errors.Is(err, s.Refused):
			t.Fatalf("acquire %q: %v", key, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// look checks the form of a grant.
func (s Subject) look(t testing.TB, g clients.Grant, key string) {
	t.Helper()
	if g.Key != key || g.Owner == "" || g.HasToken != s.Token || (g.Token == 0) == s.Token || g.Session != s.Session || (g.Valid > 0) == s.Session {
		t.Fatalf("grant of %q: %+v", key, g)
	}
}

func check(ctx context.Context, l clients.Lock, g clients.Grant) (clients.Grant, error) {
	return l.(clients.Checker).Check(ctx, g)
}

func want(t testing.TB, what string, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Fatalf("%s: got %v, want %v", what, err, wanted)
	}
}

func life(t *testing.T, s Subject) {
	a, b, ctx := s.Make(t, nil), s.Make(t, nil), Within(t, startWithin)
	g := s.Get(t, a, "life")
	_, err := b.Acquire(ctx, s.request("life"))
	want(t, "second acquire", err, s.Refused)
	c, err := check(ctx, a, g)
	want(t, "check", err, nil)
	if c.Valid != 0 || c.Session != s.Session {
		t.Fatalf("check extends nothing, but says %+v", c)
	}
	want(t, "release", a.Release(ctx, g), nil)
	_, err = check(ctx, a, g)
	want(t, "check after release", err, clients.ErrNotHeld)
	want(t, "second release", a.Release(ctx, g), clients.ErrNotHeld)
	h := s.Get(t, b, "life")
	if s.Token && h.Token <= g.Token {
		t.Fatalf("token %d after %d", h.Token, g.Token)
	}
	want(t, "release of a grant that is over", a.Release(ctx, g), clients.ErrNotHeld)
	_, err = check(ctx, b, h)
	want(t, "check of the other's grant", err, nil)
}

func expiry(t *testing.T, s Subject) {
	if s.Session {
		t.Skip("a session does not expire while its client lives")
	}
	a, b, ctx := s.Make(t, nil), s.Make(t, nil), Within(t, startWithin)
	begun := time.Now()
	g := s.Get(t, a, "expiry")
	h := s.Get(t, b, "expiry")
	if early := time.Since(begun); early < g.Valid {
		t.Fatalf("the next grant came after %v, of %v that were promised", early, g.Valid)
	}
	want(t, "release after expiry", a.Release(ctx, g), clients.ErrNotHeld)
	_, err := a.(clients.Renewer).Renew(ctx, g)
	want(t, "renew after expiry", err, clients.ErrNotHeld)
	_, err = check(ctx, b, h)
	want(t, "check of the next grant", err, nil)
}

func renewal(t *testing.T, s Subject) {
	a, b, ctx := s.Make(t, nil), s.Make(t, nil), Within(t, startWithin)
	g := s.Get(t, a, "renewal")
	for end := time.Now().Add(2 * s.Config.TTL); time.Now().Before(end); time.Sleep(s.Config.TTL / 10) {
		asked := time.Now()
		r, err := a.(clients.Renewer).Renew(ctx, g)
		if time.Since(asked) > s.Config.TTL/2 {
			t.Skip("this machine is too busy to keep a lease")
		}
		want(t, "renew", err, nil)
		if r.Mark != 0 || r.Session != s.Session || (r.Valid > 0) == s.Session {
			t.Fatalf("renewed: %+v", r)
		}
		g = r
	}
	_, err := b.Acquire(ctx, s.request("renewal"))
	want(t, "acquire of a lock that is kept", err, s.Refused)
	want(t, "release", a.Release(ctx, g), nil)
}

func background(t *testing.T, s Subject) {
	var rec Recorder
	a := s.Make(t, func(c *clients.Config) { c.Renew, c.Observer = true, &rec })
	b, ctx := s.Make(t, nil), Within(t, startWithin)
	g := s.Get(t, a, "background")
	e := rec.Await(t, clients.Renewed, 6)
	if e.Grant != g.ID || e.Key != g.Key || e.Mark == 0 || e.Session != s.Session || (e.Valid > 0) == s.Session {
		t.Fatalf("renewed: %+v", e)
	}
	_, err := b.Acquire(ctx, s.request("background"))
	want(t, "acquire of a lock that is kept", err, s.Refused)
	want(t, "release", a.Release(ctx, g), nil)
	before := len(rec.Events())
	s.Get(t, b, "background")
	time.Sleep(s.Config.TTL / 2) // a renewal would have been due
	if after := rec.Events(); len(after) != before {
		t.Fatalf("told after the release: %+v", after[before:])
	}
}

func hostileKeys(t *testing.T, s Subject) {
	l, ctx := s.Make(t, func(c *clients.Config) { c.Renew = true }), Within(t, startWithin)
	var held []clients.Grant
	for _, key := range []string{
		"", " ", "/", "//", "a/b", "a//b", "/a", ".", "..", "../..", "%", "%2E", "%2F", "a b", "a+b", "a\nb", "a\r\nb",
		"token/x", "lock/x", "x", "lockcheck/x", "zookeeper", "*", "{x}", "é", "\U0001f512", "\x00", "\xff",
	} {
		r := s.request(key)
		r.TTL *= 20 // all of them are held to the end, however slow the machine is
		g, err := l.Acquire(ctx, r)
		want(t, fmt.Sprintf("acquire %q", key), err, nil)
		held = append(held, g)
	}
	for _, g := range held {
		_, err := check(ctx, l, g)
		want(t, fmt.Sprintf("check %q", g.Key), err, nil)
	}
	for _, g := range held {
		want(t, fmt.Sprintf("release %q", g.Key), l.Release(ctx, g), nil)
	}
}

func closing(t *testing.T, s Subject) {
	a, b, ctx := s.Make(t, func(c *clients.Config) { c.Renew = true }), s.Make(t, nil), Within(t, startWithin)
	s.Get(t, a, "close")
	s.Get(t, a, "close too")
	want(t, "close", a.Close(ctx), nil)
	if s.Freed {
		s.Get(t, b, "close")
		s.Get(t, b, "close too")
	} else {
		_, err := b.Acquire(ctx, s.request("close"))
		want(t, "acquire after close", err, s.Refused)
	}
	if _, err := a.Acquire(ctx, s.request("closed")); err == nil {
		t.Fatal("a closed client acquires")
	}
}

func contenders(t *testing.T, s Subject) {
	const workers, rounds = 8, 4
	var inside, violations atomic.Int32
	var shared int // guarded by nothing but the lock
	var lastToken uint64
	var all sync.WaitGroup
	for w := range workers {
		l := s.Make(t, func(c *clients.Config) { c.Renew, c.Worker = true, w })
		all.Go(func() {
			for range rounds {
				g, err := s.patiently(Within(t, startWithin), l, "contended")
				if err != nil {
					t.Errorf("worker %d: acquire: %v", w, err)
					return
				}
				if inside.Add(1) != 1 || s.Token && g.Token <= lastToken {
					violations.Add(1)
				}
				shared, lastToken = shared+1, g.Token
				inside.Add(-1)
				if err := l.Release(Within(t, startWithin), g); err != nil {
					t.Errorf("worker %d: release: %v", w, err)
					return
				}
			}
		})
	}
	all.Wait()
	if shared != workers*rounds || violations.Load() != 0 {
		t.Fatalf("counted %d of %d, %d overlaps", shared, workers*rounds, violations.Load())
	}
}

// patiently acquires with waiting inside, where the client can, and polls.
func (s Subject) patiently(ctx context.Context, l clients.Lock, key string) (clients.Grant, error) {
	for delay := time.Millisecond; ; time.Sleep(delay) {
		r := s.request(key)
		r.Wait = 200 * time.Millisecond
		g, err := l.Acquire(ctx, r)
		if err == nil || !errors.Is(err, s.Refused) {
			return g, err
		}
		delay = time.Duration(1+r.ID%7) * 2 * time.Millisecond // of one pace, Redlock's rounds might split for ever
	}
}

func unknownGrant(t *testing.T, s Subject) {
	l, ctx := s.Make(t, nil), Within(t, startWithin)
	g := clients.Grant{Key: "unknown", ID: lastID.Add(1)}
	if err := l.Release(ctx, g); !clients.Definite(err) || errors.Is(err, clients.ErrNotHeld) {
		t.Fatalf("release: %v", err)
	}
	if _, err := check(ctx, l, g); !clients.Definite(err) || errors.Is(err, clients.ErrNotHeld) {
		t.Fatalf("check: %v", err)
	}
}
