package redis

import (
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/servertest"
)

// A grant is believed when a replica has it.
func TestWait(t *testing.T) {
	master := servertest.Redis(t)
	servertest.Replica(t, master.Addr)
	s := subject(NewSetNXWait, false, master.Addr)
	l := s.Make(t, nil)
	servertest.Eventually(t, "the replica follows", func() bool {
		g, err := l.Acquire(within(t, 5*time.Second), long)
		return err == nil && l.Release(within(t, 5*time.Second), g) == nil
	})
	servertest.Contract(t, s)
}

// A lock that no replica has is given up, and is free again.
func TestWaitInVain(t *testing.T) {
	master := servertest.Redis(t)
	l := subject(NewSetNXWait, false, master.Addr).Make(t, func(c *clients.Config) { c.NodeTimeout = time.Millisecond })
	beside := subject(NewSetNX, false, master.Addr).Make(t, nil)
	_, err := l.Acquire(within(t, 5*time.Second), long)
	servertest.Is(t, "acquire without a replica", err, clients.ErrNoQuorum)
	_, err = beside.Acquire(within(t, 5*time.Second), long)
	servertest.Is(t, "acquire by another", err, nil)
	_, err = l.Acquire(within(t, 5*time.Second), long)
	servertest.Is(t, "acquire of what is held", err, clients.ErrHeld)
}
