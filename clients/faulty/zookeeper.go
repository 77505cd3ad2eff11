package faulty

import (
	"context"
	"errors"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/zookeeper"
)

// ZKParentToken takes its token from the parent of the contenders' nodes, which
// was created once.
func ZKParentToken(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	r := zookeeper.Recipe()
	r.TokenOf = path.Dir
	return r.New(ctx, cfg)
}

// ZKPersistent queues up with a node that outlives its session.
func ZKPersistent(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	r := zookeeper.Recipe()
	r.Flags &^= zk.FlagEphemeral
	return r.New(ctx, cfg)
}

// ZKIgnoreExpiry takes it for a success when it is told that its node, or its
// session, is gone.
func ZKIgnoreExpiry(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	r := zookeeper.Recipe()
	held := r.Held
	r.Held = func(err error) error {
		if err = held(err); errors.Is(err, clients.ErrNotHeld) {
			return nil
		}
		return err
	}
	return r.New(ctx, cfg)
}

// ZKOrphan takes a creation that got no answer for one that did not happen, and
// leaves the node in the queue.
func ZKOrphan(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	r := zookeeper.Recipe()
	r.Unanswered = func(_ func() (string, error), unknown error) (string, error) { return "", clients.NotDone(unknown) }
	return r.New(ctx, cfg)
}
