package etcd

import (
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/servertest"
)

func subject(addrs []string) servertest.Subject {
	return servertest.Subject{
		New: New, Token: true, Freed: true, Refused: clients.ErrHeld,
		Config: clients.Config{Backend: "etcd", Endpoints: addrs, TTL: time.Second},
	}
}

func TestContract(t *testing.T) {
	servertest.Contract(t, subject(servertest.Addrs(servertest.Etcd(t, 1))))
}

func TestLeaks(t *testing.T) {
	servertest.Leaks(t, subject(servertest.Addrs(servertest.Etcd(t, 1))))
}
