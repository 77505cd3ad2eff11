package hold

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/clients"
)

// Renewals are the renewals of one grant in the background.
type Renewals struct {
	obs    clients.Observer
	grant  clients.Grant
	every  time.Duration
	renew  func(context.Context) (clients.Grant, error)
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool
}

// Renew sends a renewal of g now and then: first the mark, which the lease will
// count from, then the request. It ends with Stop, or when the server has said
// that g does not hold the lock, for that does not change any more.
func Renew(obs clients.Observer, g clients.Grant, every time.Duration, renew func(context.Context) (clients.Grant, error)) *Renewals {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Renewals{obs: obs, grant: g, every: every, renew: renew, cancel: cancel}
	go r.loop(ctx)
	return r
}

// Stop ends the renewals. A request that is under way is not waited for, but
// nothing is told once Stop has returned. A nil r has nothing to stop.
func (r *Renewals) Stop() {
	if r == nil {
		return
	}
	r.cancel()
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
}

func (r *Renewals) loop(ctx context.Context) {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if ctx.Err() != nil { // both were ready
			return
		}
		if err := r.once(ctx); errors.Is(err, clients.ErrNotHeld) {
			return
		}
	}
}

// once has as long as there is until the next one is due.
func (r *Renewals) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.every)
	defer cancel()
	var got clients.Grant
	mark, err := r.obs.Mark(ctx, r.grant.Key, r.grant.ID)
	if err == nil {
		got, err = r.renew(ctx)
	}
	e := clients.Event{F: clients.RenewFailed, Key: r.grant.Key, Grant: r.grant.ID, Err: err}
	if err == nil {
		e.F, e.Valid, e.Session, e.Mark = clients.Renewed, got.Valid, got.Session, mark
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.obs.Tell(e)
	}
	return err
}
