package servertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/clients"
)

// A Recorder is an observer that remembers, and stamps marks as a runner does.
type Recorder struct {
	mu     sync.Mutex
	marks  map[uint64]time.Time
	events []clients.Event
}

// Mark implements clients.Observer.
func (r *Recorder) Mark(context.Context, string, uint64) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.marks == nil {
		r.marks = map[uint64]time.Time{}
	}
	n := uint64(len(r.marks) + 1)
	r.marks[n] = time.Now()
	return n, nil
}

// Tell implements clients.Observer.
func (r *Recorder) Tell(e clients.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Stamp is when the mark was made.
func (r *Recorder) Stamp(mark uint64) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.marks[mark]
}

// Events gives what was told so far.
func (r *Recorder) Events() []clients.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]clients.Event(nil), r.events...)
}

// Count is how often f was told.
func (r *Recorder) Count(f string) int {
	n := 0
	for _, e := range r.Events() {
		if e.F == f {
			n++
		}
	}
	return n
}

// Await waits until f was told n times and gives the last of them.
func (r *Recorder) Await(t testing.TB, f string, n int) clients.Event {
	t.Helper()
	Eventually(t, "told "+f, func() bool { return r.Count(f) >= n })
	var last clients.Event
	for _, e := range r.Events() {
		if e.F == f {
			last = e
		}
	}
	return last
}
