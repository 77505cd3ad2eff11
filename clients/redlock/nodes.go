package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/redisdb"
)

// undoWithin is how long a server has to take back a round that failed.
const undoWithin = time.Second

// A Node is what the lock asks of one server.
type Node interface {
	Ping(ctx context.Context) error
	Set(ctx context.Context, name, owner string, ttl time.Duration) (bool, error)
	Extend(ctx context.Context, name, owner string, ttl time.Duration) (bool, error)
	Owns(ctx context.Context, name, owner string) (bool, error)
	Delete(ctx context.Context, name, owner string) (bool, error)
	Close() error
}

// nodes are the independent servers and how long each may take.
type nodes struct {
	dbs    []Node
	within time.Duration
}

func open(addrs []string, auth redisdb.Auth, within time.Duration, node func(*redisdb.DB) Node) nodes {
	if within <= 0 {
		within = nodeWithin
	}
	n := nodes{within: within}
	for _, a := range addrs {
		n.dbs = append(n.dbs, node(redisdb.Single(a, auth)))
	}
	return n
}

func (n nodes) close() error {
	var errs []error
	for _, db := range n.dbs {
		errs = append(errs, db.Close())
	}
	return errors.Join(errs...)
}

// A tally is what the servers answered to one question.
type tally struct {
	yes, no int
	failed  int // certainly did nothing: never asked, or answered with an error
	open    int // may have done it
	errs    []error
}

func (t tally) String() string {
	return fmt.Sprintf("%d yes, %d no, %d failed, %d unknown", t.yes, t.no, t.failed, t.open)
}

// err is plain on purpose: the single servers' proofs are not the lock's.
func (t tally) err() error {
	return fmt.Errorf("%v: %v", t, errors.Join(t.errs...))
}

// undo takes back a round on every server. A server that was too slow for the
// round is given longer here, without making the caller wait: after a time-out
// go-redis connects anew, and sends nothing before its greeting is answered. One
// whose answers do not arrive at all keeps the lock until the TTL has passed.
func (n nodes) undo(take func(context.Context, Node)) {
	var all sync.WaitGroup
	for _, db := range n.dbs {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), undoWithin)
			defer cancel()
			take(ctx, db)
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(n.within):
	}
}

// ask puts one question to every server at once, and waits until each has
// answered or used up its time.
func (n nodes) ask(ctx context.Context, question func(context.Context, Node) (bool, error)) tally {
	ctx, cancel := context.WithTimeout(ctx, n.within)
	defer cancel()
	type answer struct {
		yes bool
		err error
	}
	answers := make(chan answer, len(n.dbs))
	for _, db := range n.dbs {
		go func() {
			yes, err := question(ctx, db)
			answers <- answer{yes, err}
		}()
	}
	var t tally
	for range n.dbs {
		switch a := <-answers; {
		case a.err == nil && a.yes:
			t.yes++
		case a.err == nil:
			t.no++
		default:
			if clients.Definite(a.err) {
				t.failed++
			} else {
				t.open++
			}
			t.errs = append(t.errs, a.err)
		}
	}
	return t
}
