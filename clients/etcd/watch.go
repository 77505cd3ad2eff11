package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/hold"
)

// A held lease is watched from outside the lock's own code, over connections of
// its own: what the lock believes plays no part in it.
type held struct {
	lease    clientv3.LeaseID
	renewals *hold.Renewals
	key      string
	id       uint64
	obs      clients.Observer
	until    time.Time // when the first TTL is over, by our own clock
	cancel   context.CancelFunc

	mu    sync.Mutex
	state state
}

type state int

const (
	acquiring state = iota // the lease is there, the transaction is not answered
	holding
	ended // lost, given up, or its release has begun
)

// watch asks for the lease from now on, at first while the transaction is under
// way.
func (l *Lock) watch(g clients.Grant, lease clientv3.LeaseID, begun time.Time) *held {
	ctx, cancel := context.WithCancel(context.Background())
	h := &held{lease: lease, key: g.Key, id: g.ID, obs: l.obs, until: begun.Add(g.Valid), cancel: cancel}
	go h.loop(ctx, l.outside, g.Valid/4)
	return h
}

func (h *held) loop(ctx context.Context, outside *members, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := h.now()
		tctx, cancel := context.WithTimeout(ctx, 2*every)
		gone, err := outside.gone(tctx, h.lease)
		cancel()
		if err == nil && gone && h.lost(asked) {
			return
		}
	}
}

func (h *held) now() state {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// lost tells that the lease is gone. If the lock was granted while we asked, the
// grant may still be on its way to the user and "lost" would overtake it: that
// is left to the next question.
func (h *held) lost(asked state) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.state == ended:
		return true
	case h.state != asked:
		return false
	}
	h.state = ended
	h.obs.Tell(clients.Event{F: clients.Lost, Key: h.key, Grant: h.id, Err: fmt.Errorf("lease %x is gone", int64(h.lease))})
	return true
}

// granted says whether a transaction that succeeded is still worth anything: a
// lease that ran out while the answer was under way gives no lock. Its error is
// indefinite, for somebody did hold the lock.
func (h *held) granted() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == ended || !time.Now().Before(h.until) {
		return errors.New("the lease ran out before the answer came")
	}
	h.state = holding
	return nil
}

// end stops watching and renewing; nothing is told afterwards.
func (h *held) end() {
	h.renewals.Stop()
	h.cancel()
	h.mu.Lock()
	h.state = ended
	h.mu.Unlock()
}
