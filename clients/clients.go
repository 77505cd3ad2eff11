// Package clients is the contract that a lock under test fulfils. A client never
// hides an indefinite outcome: it does not retry a request that may have been
// carried out, and an error that proves nothing is passed on as it is.
package clients

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// What an error may prove. Anything else that a client returns is indefinite:
// the operation may have happened, or may happen later.
var (
	ErrHeld     = errors.New("held")      // acquire: the server said that somebody holds the lock
	ErrNotHeld  = errors.New("not-held")  // renew, check, release: the server said that this grant does not hold it
	ErrNoQuorum = errors.New("no-quorum") // acquire: a Redlock round that the client itself abandoned
	ErrAhead    = errors.New("ahead")     // acquire: the client left a queue in which somebody stood ahead; that one need not hold the lock
)

// notDone is an error with proof that the operation did not happen and never will.
type notDone struct{ err error }

func (e notDone) Error() string { return e.err.Error() }
func (e notDone) Unwrap() error { return e.err }

// NotDone says that err proves that the operation did not happen and never
// will: it was never sent, or it was refused by the one who decides.
func NotDone(err error) error {
	if err == nil {
		return nil
	}
	return notDone{err}
}

// Definite reports whether err proves that the operation did not happen.
func Definite(err error) bool {
	var nd notDone
	return errors.As(err, &nd) || errors.Is(err, ErrHeld) || errors.Is(err, ErrNotHeld) || errors.Is(err, ErrNoQuorum) || errors.Is(err, ErrAhead)
}

// NeverSent marks err as definite if it says that no connection could be made,
// so that the request cannot have left.
func NeverSent(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return NotDone(err)
	}
	return err
}

// A Request asks for a lock.
type Request struct {
	Key  string
	ID   uint64        // the number that the grant will have
	TTL  time.Duration // of the lease or session that is asked for
	Wait time.Duration // how long the client may wait inside; 0 for one try
}

// A Grant is what an acquire got and what the other operations refer to.
type Grant struct {
	Key      string
	ID       uint64
	Token    uint64 // the fencing token, if HasToken
	HasToken bool
	// Valid is the lease that the holder may rely on, counted from Mark. Zero
	// with Session false means a lock that never expires.
	Valid time.Duration
	// Session says that the lock is held while a session lives that may end
	// unannounced, instead of for a known time.
	Session bool
	// Mark is the mark from which Valid counts; 0 when it counts from the
	// beginning of the operation.
	Mark  uint64
	Owner string // the owner's random value, where the lock has one; not a token
}

// A Lock is one process's view of the locks of one backend. Operations come one
// at a time; background work of its own may report to the Observer meanwhile.
type Lock interface {
	Acquire(ctx context.Context, r Request) (Grant, error)
	Release(ctx context.Context, g Grant) error
	// Close ends the session and whatever it holds.
	Close(ctx context.Context) error
}

// A Renewer is a Lock whose lease can be extended.
type Renewer interface {
	Renew(ctx context.Context, g Grant) (Grant, error)
}

// A Checker is a Lock that can be asked whether it still holds. The grant that
// it returns has Valid or Session only if the server was asked.
type Checker interface {
	Check(ctx context.Context, g Grant) (Grant, error)
}

// What a client tells by itself; the names are those of the history.
const (
	Renewed     = "renewed"      // a background renewal succeeded
	RenewFailed = "renew-failed" // a background renewal failed
	Suspended   = "suspended"    // the connection is in doubt
	Lost        = "lost"         // the lock or its session is gone
	Connected   = "connected"    // connected, for the first time or again
)

// An Event is something that a client tells without being asked.
type Event struct {
	F       string // one of the names above
	Key     string // empty when it is about the whole session
	Grant   uint64 // 0 when it is about the whole session
	Valid   time.Duration
	Session bool
	Mark    uint64
	Err     error
}

// An Observer takes what a client tells. Its methods may be called from several
// goroutines.
type Observer interface {
	// Mark waits until the runner has stamped "now" and gives the mark's number:
	// a lease that counts from a request sent afterwards is under-stated.
	Mark(ctx context.Context, key string, grant uint64) (uint64, error)
	Tell(Event)
}

// Config is what every client is made from.
type Config struct {
	Backend     string
	Endpoints   []string          // of the servers; of the sentinels for redis-sentinel
	Routes      map[string]string // where to go in place of an address that a server tells; nil for there
	Access      *Access           // nil for servers that let everybody in, in plain text
	Master      string            // the name that the sentinels know
	TTL         time.Duration     // of leases and sessions, unless a Request says otherwise
	RetryDelay  time.Duration     // between tries, for a client that tries inside
	NodeTimeout time.Duration     // for one node of several; 0 for the client's default
	Renew       bool              // renew in the background
	Worker      int               // which worker this is
	Seed        uint64            // for the client's own random choices
	Observer    Observer
	// Options are what a single client knows and the others leave alone.
	Options map[string]string
}

// New makes a client. It fails if the servers cannot be reached.
type New func(ctx context.Context, cfg Config) (Lock, error)

// Fault names the object and the act of a failed request.
func Fault(act, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", act, key, err)
}
