package redlock

import (
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/servertest"
)

func subject(addrs []string) servertest.Subject {
	return servertest.Subject{
		New: New, Refused: clients.ErrNoQuorum,
		Config: clients.Config{Backend: "redlock", Endpoints: addrs, TTL: time.Second, NodeTimeout: time.Second},
	}
}

func TestContract(t *testing.T) {
	servertest.Contract(t, subject(servertest.Addrs(servertest.Redises(t, 5))))
}

func TestLeaks(t *testing.T) {
	servertest.Leaks(t, subject(servertest.Addrs(servertest.Redises(t, 3))))
}
