package redis

import (
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/servertest"
)

func subject(new clients.New, token bool, addrs ...string) servertest.Subject {
	return servertest.Subject{
		New: new, Token: token, Refused: clients.ErrHeld,
		Config: clients.Config{Backend: "redis", Endpoints: addrs, TTL: time.Second},
	}
}

func TestContract(t *testing.T) {
	t.Run("set-nx", func(t *testing.T) {
		servertest.Contract(t, subject(NewSetNX, false, servertest.Redis(t).Addr))
	})
	t.Run("set-nx-incr", func(t *testing.T) {
		servertest.Contract(t, subject(NewSetNXIncr, true, servertest.Redis(t).Addr))
	})
}

func TestLeaks(t *testing.T) {
	servertest.Leaks(t, subject(NewSetNX, false, servertest.Redis(t).Addr))
}
