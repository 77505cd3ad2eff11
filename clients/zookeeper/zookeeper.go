// Package zookeeper is the lock of ZooKeeper's recipes page
// (https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks): an
// ephemeral sequential node for each contender, each watching the one ahead of
// it. A lock is held while the session lives, which may end unannounced. The
// token is the czxid of the contender's own node.
//
// It waits inside, up to Request.Wait. It never repeats a request whose outcome
// is unknown, but looks whether its node is there. After an acquire with an
// unknown outcome the client has to be closed, as the runner does: a node of its
// session may stand in the queue. A Request's TTL is ignored, since the session's
// is fixed when the client is made.
package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/internal/hold"
)

const (
	// opWithin bounds an operation whose caller did not, besides its waiting.
	opWithin = 5 * time.Second
	// leaveWithin is kept back from an acquire's time so that it can take its
	// node out of the queue when it gives up.
	leaveWithin = 500 * time.Millisecond
)

// Rules are what the algorithm decides. A lock that is broken on purpose has one
// that differs.
type Rules struct {
	// Flags are those of a contender's node.
	Flags int32
	// TokenOf names the node whose czxid is the token of a contender's node.
	TokenOf func(node string) string
	// Unanswered decides what became of a creation that got no answer: find looks
	// for the node.
	Unanswered func(find func() (node string, err error), unknown error) (node string, err error)
	// Held reads what a server said to a request about the node of a grant.
	Held func(error) error
}

// Recipe are the rules of the recipes page.
func Recipe() Rules {
	return Rules{
		Flags: zk.FlagEphemeral | zk.FlagSequence,
		// The czxid is the transaction that created the contender's own node, so a
		// later contender's is higher. (That of the parent would be the same for
		// everybody.)
		TokenOf:    func(node string) string { return node },
		Unanswered: func(find func() (string, error), _ error) (string, error) { return find() },
		Held:       heldNo,
	}
}

// A Lock is one process's view of the locks, and one session.
type Lock struct {
	rules Rules
	s     *session
	cfg   clients.Config
	obs   clients.Observer
	holds hold.Table[held]
}

// held is a grant, and the session that it belongs to.
type held struct {
	epoch    uint64
	renewals *hold.Renewals
}

// New makes zookeeper/ephemeral. It fails if the servers allow only a shorter
// session than TTL: they cap it at maxSessionTimeout, by default 20 ticks.
func New(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	return Recipe().New(ctx, cfg)
}

// New makes the lock by these rules.
func (r Rules) New(ctx context.Context, cfg clients.Config) (clients.Lock, error) {
	l := &Lock{rules: r, cfg: cfg, obs: hold.Observer(cfg.Observer)}
	if cfg.TTL < time.Millisecond {
		return nil, fmt.Errorf("a session of %v cannot be had", cfg.TTL)
	}
	var err error
	if l.s, err = open(cfg, l.obs); err != nil {
		return nil, err
	}
	ctx, cancel := hold.Deadline(ctx, opWithin)
	defer cancel()
	if _, err := l.s.ready(ctx); err != nil {
		l.s.close(ctx)
		return nil, fmt.Errorf("reach zookeeper at %v: %w", cfg.Endpoints, err)
	}
	if got := l.SessionTimeout(); got < cfg.TTL.Truncate(time.Millisecond) {
		l.s.close(ctx)
		return nil, fmt.Errorf("zookeeper allows sessions of %v, not %v: raise maxSessionTimeout (default: 20 ticks)", got, cfg.TTL)
	}
	return l, nil
}

// SessionTimeout is what the servers granted. It is more than was asked for if
// that was less than minSessionTimeout, by default 2 ticks.
func (l *Lock) SessionTimeout() time.Duration { return time.Duration(l.s.dialer.negotiated.Load()) }

// Acquire queues up and waits for its turn.
func (l *Lock) Acquire(ctx context.Context, r clients.Request) (clients.Grant, error) {
	ctx, cancel := hold.Deadline(ctx, r.Wait+opWithin)
	defer cancel()
	g, err := l.acquire(ctx, r)
	if err != nil {
		return clients.Grant{}, clients.Fault("acquire", r.Key, err)
	}
	return g, nil
}

func (l *Lock) acquire(ctx context.Context, r clients.Request) (clients.Grant, error) {
	epoch, err := l.s.ready(ctx)
	if err != nil {
		return clients.Grant{}, err
	}
	// The session may be a new one, begun after this operation was invoked and
	// the old one lost. The mark says that the grant is none of the old one's.
	mark, err := l.obs.Mark(ctx, r.Key, r.ID)
	if err != nil {
		return clients.Grant{}, clients.NotDone(err)
	}
	queueing, cancel := reserve(ctx, leaveWithin)
	defer cancel()
	node, err := l.enqueue(queueing, epoch, r.Key)
	if err != nil {
		return clients.Grant{}, err
	}
	g := clients.Grant{Key: r.Key, ID: r.ID, Session: true, Mark: mark, HasToken: true, Owner: node}
	if g.Token, err = l.czxid(queueing, g); err == nil {
		err = l.await(queueing, epoch, g, r.Wait)
	}
	if err != nil {
		return clients.Grant{}, l.leave(ctx, g, err)
	}
	return l.keep(g, epoch)
}

// reserve gives a context that ends earlier, by as much as d but not more than a
// quarter of what is left.
func reserve(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	until, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, until.Add(-min(d, time.Until(until)/4)))
}

// enqueue creates the contender's node and gives its name.
func (l *Lock) enqueue(ctx context.Context, epoch uint64, name string) (string, error) {
	owner := hold.NewOwner()
	create := func(c *zk.Conn) (string, error) {
		return c.Create(Dir(name)+"/"+prefix(owner), []byte(owner), l.rules.Flags, l.s.acl)
	}
	node, err := send(ctx, l.s, create)
	if errors.Is(err, zk.ErrNoNode) { // the first contender ever
		if err := l.parents(ctx, name); err != nil {
			return "", clients.NotDone(err) // no contender's node was asked for
		}
		node, err = send(ctx, l.s, create)
	}
	if err != nil && !clients.Definite(err) {
		unknown := err
		node, err = l.rules.Unanswered(func() (string, error) { return l.find(ctx, name, owner, unknown) }, unknown)
	}
	if err != nil {
		return "", err
	}
	node = path.Base(node)
	if err := l.s.same(epoch); err != nil {
		// Created in the old session, and gone with it; or queued in
		// go-zookeeper and created in the new one.
		return "", l.leave(ctx, clients.Grant{Key: name, Owner: node}, err)
	}
	return node, nil
}

// find looks for a node whose creation got no answer. The sync makes sure that
// the server we ask has caught up with the leader, so that a creation that was
// accepted is seen; but it may still be on its way, so that not to find it
// leaves the outcome open.
func (l *Lock) find(ctx context.Context, name, owner string, unknown error) (string, error) {
	children, err := send(ctx, l.s, func(c *zk.Conn) ([]string, error) {
		if _, err := c.Sync(Dir(name)); err != nil {
			return nil, err
		}
		children, _, err := c.Children(Dir(name))
		return children, err
	})
	if err != nil {
		return "", fmt.Errorf("%w; looking for the node: %v", unknown, err)
	}
	for _, c := range children {
		if strings.HasPrefix(c, prefix(owner)) {
			return c, nil
		}
	}
	return "", fmt.Errorf("%w; the node is not there yet", unknown)
}

// parents creates the persistent nodes above the contenders. That others do so
// at the same time, or that it happens twice, does no harm.
func (l *Lock) parents(ctx context.Context, name string) error {
	for _, p := range []string{root, Dir(name)} {
		_, err := send(ctx, l.s, func(c *zk.Conn) (string, error) {
			return c.Create(p, nil, zk.FlagPersistent, l.s.acl)
		})
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return fmt.Errorf("create %s: %w", p, err)
		}
	}
	return nil
}

func nodePath(g clients.Grant) string { return Dir(g.Key) + "/" + g.Owner }

// czxid is the transaction that created a node.
func (l *Lock) czxid(ctx context.Context, g clients.Grant) (uint64, error) {
	stat, err := send(ctx, l.s, func(c *zk.Conn) (*zk.Stat, error) {
		_, stat, err := c.Get(l.rules.TokenOf(nodePath(g)))
		return stat, err
	})
	if err != nil {
		return 0, err
	}
	return uint64(stat.Czxid), nil
}

// leave takes the node out of the queue. Only if it is certainly gone is the
// acquire's outcome definite; a node that stays behind would be granted the lock
// one day, with nobody to know of it.
func (l *Lock) leave(ctx context.Context, g clients.Grant, why error) error {
	_, err := send(ctx, l.s, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.Delete(nodePath(g), -1)
	})
	if err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrSessionExpired) {
		return clients.NotDone(why)
	}
	return fmt.Errorf("%v; leaving the queue: %v", why, err) // proves nothing, whatever why did
}

// keep remembers the grant and writes to its node in the background.
func (l *Lock) keep(g clients.Grant, epoch uint64) (clients.Grant, error) {
	var renewals *hold.Renewals
	if l.cfg.Renew {
		renewals = hold.Renew(l.obs, g, l.SessionTimeout()/3, func(ctx context.Context) (clients.Grant, error) {
			return l.prove(ctx, "renew", g)
		})
	}
	if !l.holds.Put(g.Owner, held{epoch, renewals}) {
		renewals.Stop()
		return clients.Grant{}, hold.ErrClosed
	}
	return g, nil
}

// Renew and Check both write to the grant's node: a write goes through a quorum,
// where a read may be answered by a server that does not know yet that the
// session is over.
func (l *Lock) Renew(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	return l.prove(ctx, "renew", g)
}

func (l *Lock) Check(ctx context.Context, g clients.Grant) (clients.Grant, error) {
	return l.prove(ctx, "check", g)
}

func (l *Lock) prove(ctx context.Context, act string, g clients.Grant) (clients.Grant, error) {
	if g.Owner == "" {
		return clients.Grant{}, hold.Unknown(act, g)
	}
	ctx, cancel := hold.Deadline(ctx, opWithin)
	defer cancel()
	h, known := l.holds.Get(g.Owner)
	node, owner := nodePath(g), []byte(g.Owner) // send may leave its goroutine behind
	err := l.inSession(ctx, h, known, func(c *zk.Conn) error {
		_, err := c.Set(node, owner, -1)
		return err
	})
	g.Session, g.Mark = true, 0
	return g, clients.Fault(act, g.Key, l.rules.Held(err))
}

// inSession sends a request about a grant, in the session that it belongs to. A
// server that says that a session has expired says nothing of its nodes: during
// an election they may stand for a while, and the next session could write to
// them, or delete them, as if the lock were still held.
func (l *Lock) inSession(ctx context.Context, h held, known bool, request func(*zk.Conn) error) error {
	if _, err := l.s.ready(ctx); err != nil {
		return err
	}
	if known && l.s.same(h.epoch) != nil {
		return clients.NotDone(zk.ErrSessionExpired)
	}
	_, err := send(ctx, l.s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, request(c) })
	if err == nil && known {
		return l.s.same(h.epoch) // go-zookeeper may have sent it in the next session
	}
	return err
}

// Release deletes the grant's node.
func (l *Lock) Release(ctx context.Context, g clients.Grant) error {
	if g.Owner == "" {
		return hold.Unknown("release", g)
	}
	h, known := l.holds.Take(g.Owner)
	if known {
		h.renewals.Stop()
	}
	ctx, cancel := hold.Deadline(ctx, opWithin)
	defer cancel()
	err := l.inSession(ctx, h, known, func(c *zk.Conn) error { return c.Delete(nodePath(g), -1) })
	return clients.Fault("release", g.Key, l.rules.Held(err))
}

// heldNo reads "not held" out of what the server said: that the node is gone, or
// the session and with it the node. A release's own success cannot look like
// that, since no request is sent twice.
func heldNo(err error) error {
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrSessionExpired) {
		return fmt.Errorf("%w: %v", clients.ErrNotHeld, err)
	}
	return err
}

// Close ends the session, and with it what is held.
func (l *Lock) Close(ctx context.Context) error {
	for _, h := range l.holds.Close() {
		h.renewals.Stop()
	}
	return l.s.close(ctx)
}
