// Package hold is what a lock client keeps of a grant while it is held: who it
// is, and the renewals in the background. It tells the observer nothing about a
// grant whose release has begun.
package hold

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/clients"
)

// NewOwner gives a random value that no other process and no earlier grant has.
// It comes from the system, not from Config.Seed: two workers with one seed must
// never be able to release each other's lock.
func NewOwner() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, says its documentation
	return hex.EncodeToString(b[:])
}

// Observer gives o, or one that hears nothing if there is none.
func Observer(o clients.Observer) clients.Observer {
	if o == nil {
		return deaf{}
	}
	return o
}

type deaf struct{}

func (deaf) Mark(context.Context, string, uint64) (uint64, error) { return 0, nil }
func (deaf) Tell(clients.Event)                                   {}

// Deadline bounds an operation whose caller did not.
func Deadline(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

// A Table holds what a client remembers of its grants, by owner.
type Table[T any] struct {
	mu     sync.Mutex
	m      map[string]T
	closed bool
}

// Put remembers v, unless the table is closed: then an acquire that hung has
// come to its end after the client was closed.
func (t *Table[T]) Put(owner string, v T) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.m == nil {
		t.m = map[string]T{}
	}
	t.m[owner] = v
	return true
}

// Get gives what is remembered of owner's grant.
func (t *Table[T]) Get(owner string) (T, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.m[owner]
	return v, ok
}

// Take is Get that also forgets.
func (t *Table[T]) Take(owner string) (T, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.m[owner]
	delete(t.m, owner)
	return v, ok
}

// Close forgets everything, for good, and gives what there was.
func (t *Table[T]) Close() []T {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	var all []T
	for _, v := range t.m {
		all = append(all, v)
	}
	t.m = nil
	return all
}

// ErrClosed is the outcome of an acquire that won after the client was closed.
var ErrClosed = errors.New("the client was closed meanwhile")

// Unknown is the error for a grant that says nothing of its owner, so that
// nothing can be sent for it.
func Unknown(act string, g clients.Grant) error {
	return clients.NotDone(clients.Fault(act, g.Key, errors.New("this client did not hand out the grant")))
}
