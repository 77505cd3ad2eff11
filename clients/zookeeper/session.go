package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockcheck/lockcheck/clients"
)

// A session is the client's connection and what its listener has said.
// go-zookeeper connects again by itself, and begins a new session after one has
// expired: an epoch is the life of one.
type session struct {
	conn   *zk.Conn
	acl    []zk.ACL // of what is created
	hosts  *servers
	dialer *dialer
	cut    context.CancelFunc // ends the dialer and its connections
	obs    clients.Observer

	mu        sync.Mutex
	connected bool
	closed    bool
	epoch     uint64
	changed   chan struct{} // closed and replaced when one of the above changes
}

func open(cfg clients.Config, obs clients.Observer) (*session, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("zookeeper needs the addresses of its servers")
	}
	ctx, cut := context.WithCancel(context.Background())
	s := &session{obs: obs, cut: cut, changed: make(chan struct{})}
	s.hosts = &servers{addrs: zk.FormatServers(append([]string(nil), cfg.Endpoints...))}
	s.hosts.next.Store(uint64(cfg.Worker)) // spread the workers over the servers
	s.dialer = &dialer{ctx: ctx, within: max(cfg.TTL/time.Duration(len(cfg.Endpoints)), leastHandshake)}
	conn, _, err := zk.Connect(cfg.Endpoints, cfg.TTL, zk.WithHostProvider(s.hosts), zk.WithDialer(s.dialer.dial),
		zk.WithEventCallback(s.listen), zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		cut()
		return nil, err
	}
	s.conn, s.acl = conn, zk.WorldACL(zk.PermAll)
	if user, password := cfg.Access.Login(); user != "" {
		s.acl = zk.AuthACL(zk.PermAll)
		// The library keeps it, and repeats it in each new session.
		go func() { _ = conn.AddAuth("digest", []byte(user+":"+password)) }()
	}
	return s, nil
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// listen is called by go-zookeeper, one event after the other; the channel of
// events that Connect returns drops some when nobody hurries to read it. It
// tells only what is new. The lock is held while it tells, so that whoever sees
// the new epoch can be sure that "lost" was told before.
func (s *session) listen(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	switch {
	case e.State == zk.StateHasSession && !s.connected:
		s.connected = true
		s.obs.Tell(clients.Event{F: clients.Connected})
	case e.State == zk.StateDisconnected && s.connected:
		s.connected = false
		s.obs.Tell(clients.Event{F: clients.Suspended})
	case e.State == zk.StateExpired:
		s.connected = false
		s.epoch++
		s.obs.Tell(clients.Event{F: clients.Lost, Err: zk.ErrSessionExpired})
	default:
		return
	}
	s.wake()
}

func (s *session) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *session) look() (epoch uint64, connected, closed bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch, s.connected, s.closed, s.changed
}

// ready waits until there is a session. go-zookeeper would take a request
// without one and send it who knows when, perhaps in the next session.
func (s *session) ready(ctx context.Context) (epoch uint64, err error) {
	for {
		epoch, connected, closed, changed := s.look()
		switch {
		case closed:
			return 0, clients.NotDone(zk.ErrClosing)
		case connected:
			return epoch, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, clients.NotDone(fmt.Errorf("no session: %w", ctx.Err()))
		}
	}
}

// errOtherSession says that the session in which something began has expired.
var errOtherSession = errors.New("the session expired meanwhile")

// same fails unless the session is still that of epoch.
func (s *session) same(epoch uint64) error {
	if now, _, _, _ := s.look(); now != epoch {
		return errOtherSession
	}
	return nil
}

// send waits for a session, sends one request and waits for its answer, or for
// ctx to end. go-zookeeper takes no context: what is left behind then is a
// goroutine that ends with the answer, the connection or the client, and a
// request that may still be carried out. go-zookeeper never sends a request
// twice: those sent fail with ErrConnectionClosed when the connection ends, only
// those that were still queued go out on the next one.
func send[T any](ctx context.Context, s *session, request func(*zk.Conn) (T, error)) (T, error) {
	var none T
	if _, err := s.ready(ctx); err != nil {
		return none, err
	}
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := request(s.conn)
		answers <- answer{v, err}
	}()
	select {
	case a := <-answers:
		return a.v, meaning(a.err)
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// meaning says what an error proves. A server's refusal is definite; so is an
// expired session, of which only a server can speak. ErrConnectionClosed and
// what the network says leave everything open.
func meaning(err error) error {
	for _, refusal := range []error{
		zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty, zk.ErrNoAuth, zk.ErrInvalidACL,
		zk.ErrNoChildrenForEphemerals, zk.ErrSessionExpired, zk.ErrSessionMoved,
	} {
		if errors.Is(err, refusal) {
			return clients.NotDone(err)
		}
	}
	return err
}

// farewell is how long the servers have to answer that the session is closed.
const farewell = 500 * time.Millisecond

// close ends the session. If no server says so in time it is left to expire, and
// the error says that.
func (s *session) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	s.mu.Lock()
	was, again := s.connected, s.closed
	s.connected, s.closed = false, true
	s.wake()
	s.mu.Unlock()
	if again {
		return nil
	}
	s.hosts.closed.Store(true)
	defer s.cut()
	done := make(chan struct{})
	go func() {
		s.conn.Close()
		close(done)
	}()
	if !was {
		return errors.New("close: not connected; the session ends with its time-out")
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close: %w; the session ends with its time-out", ctx.Err())
	}
}
