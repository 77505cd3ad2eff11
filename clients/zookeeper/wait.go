package zookeeper

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockcheck/lockcheck/clients"
)

// await returns nil once nobody is ahead of the grant's node, and the session is
// still that of epoch. After wait it gives up with ErrAhead: whoever is ahead may be a
// contender that gives up, too.
//
// The list of contenders may be stale, but not too stale: a server that knows
// our node knows everybody created before it. It can only show us some who are
// gone already.
func (l *Lock) await(ctx context.Context, epoch uint64, g clients.Grant, wait time.Duration) error {
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		children, err := send(ctx, l.s, func(c *zk.Conn) ([]string, error) {
			children, _, err := c.Children(Dir(g.Key))
			return children, err
		})
		if err != nil {
			return err
		}
		first, err := ahead(children, g.Owner)
		if err != nil {
			return err
		}
		if first == "" {
			return l.s.same(epoch)
		}
		if wait <= 0 {
			return clients.ErrAhead // and no watch is left behind
		}
		if err := l.watch(ctx, epoch, Dir(g.Key)+"/"+first, over.C); err != nil {
			return err
		}
	}
}

// watch returns nil when it is time to look again: the node is gone, or there is
// a new connection. What it leaves behind when it gives up is the watch itself,
// which go-zookeeper cannot take back: a channel with room for its one event.
func (l *Lock) watch(ctx context.Context, epoch uint64, node string, over <-chan time.Time) error {
	type watched struct {
		there bool
		event <-chan zk.Event
	}
	w, err := send(ctx, l.s, func(c *zk.Conn) (watched, error) {
		there, _, event, err := c.ExistsW(node)
		return watched{there, event}, err
	})
	if err != nil || !w.there {
		return err
	}
	for {
		if err := l.s.same(epoch); err != nil {
			return err
		}
		_, _, _, changed := l.s.look()
		select {
		case <-w.event:
			return nil
		case <-over:
			return clients.ErrAhead
		case <-ctx.Done():
			return clients.ErrAhead
		case <-changed:
		}
	}
}
