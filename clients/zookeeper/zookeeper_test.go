package zookeeper

import (
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/servertest"
)

func subject(addrs []string) servertest.Subject {
	return servertest.Subject{
		New: New, Token: true, Session: true, Freed: true, Refused: clients.ErrAhead,
		Config: clients.Config{Backend: "zookeeper", Endpoints: addrs, TTL: time.Second},
	}
}

func TestLeaks(t *testing.T) {
	servertest.Leaks(t, subject(servertest.Addrs(servertest.ZooKeeper(t, 1))))
}
