package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/clients"
)

// maxLine is the longest command that a worker takes.
const maxLine = 1 << 20

// Serve is the worker's side: it answers commands from in on out until in ends.
// find gives the constructor for the name of a client. A Go program that offers
// its own lock calls this with its own find.
func Serve(ctx context.Context, in io.Reader, out io.Writer, find func(name string) (clients.New, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{find: find, out: bufio.NewWriter(out), marks: map[uint64]chan struct{}{}}
	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 4096), maxLine)
	for sc.Scan() {
		var c Command
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			s.send(Message{Log: fmt.Sprintf("a command that is not JSON: %v", err)})
			continue
		}
		if c.Op == Ack {
			s.acknowledged(c.Mark)
			continue
		}
		s.dispatch(ctx, c)
	}
	s.settle()
	s.endSession()
	if err := sc.Err(); err != nil {
		return fmt.Errorf("read commands: %w", err)
	}
	return nil
}

// settleWithin is what commands that are under way get when no more can come.
const settleWithin = 500 * time.Millisecond

// settle lets what is under way come to its end, so that a script that pipes
// its commands in sees the answers.
func (s *server) settle() {
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(settleWithin):
	}
}

type server struct {
	find func(string) (clients.New, error)

	outMu   sync.Mutex
	out     *bufio.Writer
	running sync.WaitGroup // commands

	mu      sync.Mutex
	marks   map[uint64]chan struct{}
	nextID  uint64
	current *session
}

// A session is what one init began. A command of an earlier session that still
// hangs keeps its own; it cannot touch the new one.
type session struct {
	srv    *server
	ctx    context.Context
	cancel context.CancelFunc
	lock   clients.Lock
	store  *StoreClient
	prefix string // of the locks' names on the servers
	mu     sync.Mutex
	grants map[uint64]clients.Grant
}

func (s *server) send(m Message) {
	b, err := json.Marshal(m)
	if err != nil {
		b = fmt.Appendf(nil, `{"log":%q}`, err.Error())
	}
	s.outMu.Lock()
	defer s.outMu.Unlock()
	s.out.Write(append(b, '\n'))
	s.out.Flush() // an error here means that the runner is gone, and so are our commands
}

func (s *server) dispatch(ctx context.Context, c Command) {
	if c.Op == Init {
		s.running.Go(func() { s.init(ctx, c) })
		return
	}
	s.mu.Lock()
	cur := s.current
	s.mu.Unlock()
	if cur == nil {
		s.send(Message{ID: c.ID, Type: Fail, Error: "no session: init comes first"})
		return
	}
	s.running.Go(func() {
		octx, cancel := cur.ctx, context.CancelFunc(func() {})
		if c.Timeout > 0 {
			octx, cancel = context.WithTimeout(cur.ctx, time.Duration(c.Timeout))
		}
		defer cancel()
		m := cur.do(octx, c)
		m.ID = c.ID
		s.send(m)
	})
}

func (s *server) init(ctx context.Context, c Command) {
	s.endSession()
	if c.Init == nil {
		s.send(Message{ID: c.ID, Type: Fail, Error: "init without its settings"})
		return
	}
	m, err := s.begin(ctx, *c.Init)
	if err != nil {
		m = Message{Type: Fail, Error: err.Error()}
	}
	m.ID = c.ID
	s.send(m)
}

func (s *server) begin(ctx context.Context, set Setup) (Message, error) {
	if set.Protocol != Version {
		return Message{}, fmt.Errorf("the runner speaks protocol %d, this worker %d", set.Protocol, Version)
	}
	newLock, err := s.find(set.Client)
	if err != nil {
		return Message{}, err
	}
	sctx, cancel := context.WithCancel(ctx)
	ses := &session{srv: s, ctx: sctx, cancel: cancel, store: NewStoreClient(set.Store), prefix: set.Prefix, grants: map[uint64]clients.Grant{}}
	lock, err := newLock(sctx, clients.Config{
		Backend: set.Backend, Endpoints: set.Endpoints, Routes: set.Routes, Access: set.Access, Master: set.Master,
		TTL: time.Duration(set.TTL), RetryDelay: time.Duration(set.RetryDelay), NodeTimeout: time.Duration(set.NodeTimeout),
		Renew: set.Renew, Worker: set.Worker, Seed: set.Seed, Observer: ses, Options: set.Options,
	})
	if err != nil {
		cancel()
		return Message{}, fmt.Errorf("client %s: %w", set.Client, err)
	}
	ses.lock = lock
	s.mu.Lock()
	s.current = ses
	s.mu.Unlock()
	return Message{Type: OK, Can: abilities(lock)}, nil
}

func abilities(l clients.Lock) []string {
	var can []string
	if _, ok := l.(clients.Renewer); ok {
		can = append(can, CanRenew)
	}
	if _, ok := l.(clients.Checker); ok {
		can = append(can, CanCheck)
	}
	return can
}

// closeWithin bounds the farewell of a session whose servers may be gone.
const closeWithin = 2 * time.Second

func (s *server) endSession() {
	s.mu.Lock()
	old := s.current
	s.current = nil
	s.mu.Unlock()
	if old == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(old.ctx), closeWithin)
	defer cancel()
	old.lock.Close(ctx) // a retired session may be closed or not: nothing depends on it
	old.cancel()
	old.store.Close()
}

// do carries out one command and says how it ended.
func (s *session) do(ctx context.Context, c Command) Message {
	switch c.Op {
	case Acquire:
		g, err := s.lock.Acquire(ctx, clients.Request{Key: s.prefix + c.Key, ID: c.Grant, TTL: time.Duration(c.TTL), Wait: time.Duration(c.Wait)})
		if err != nil {
			return failed(err)
		}
		g.ID, g.Key = c.Grant, s.prefix+c.Key
		s.keep(g)
		return granted(g)
	case Renew, Check:
		return s.again(ctx, c)
	case Release:
		err := s.lock.Release(ctx, s.grant(c))
		if err != nil {
			return failed(err)
		}
		s.forget(c.Grant)
		return Message{Type: OK}
	case Read, Write:
		return s.store.Do(ctx, c)
	case Close:
		if err := s.lock.Close(ctx); err != nil {
			return failed(err)
		}
		return Message{Type: OK}
	}
	return Message{Type: Fail, Error: fmt.Sprintf("command %q is not known", c.Op)}
}

func (s *session) again(ctx context.Context, c Command) Message {
	var f func(context.Context, clients.Grant) (clients.Grant, error)
	if r, ok := s.lock.(clients.Renewer); ok && c.Op == Renew {
		f = r.Renew
	}
	if r, ok := s.lock.(clients.Checker); ok && c.Op == Check {
		f = r.Check
	}
	if f == nil {
		return Message{Type: Fail, Error: fmt.Sprintf("this client cannot %s", c.Op)}
	}
	g, err := f(ctx, s.grant(c))
	if err != nil {
		return failed(err)
	}
	if c.Op == Renew {
		s.keep(g)
	}
	m := granted(g)
	m.Token = nil // only an acquire hands out a token
	return m
}

func (s *session) keep(g clients.Grant) {
	s.mu.Lock()
	s.grants[g.ID] = g
	s.mu.Unlock()
}

func (s *session) forget(id uint64) {
	s.mu.Lock()
	delete(s.grants, id)
	s.mu.Unlock()
}

// grant gives what the acquire got; a grant that is not known here is passed on
// by its number alone, for a client that can make something of it.
func (s *session) grant(c Command) clients.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g, ok := s.grants[c.Grant]; ok {
		return g
	}
	return clients.Grant{ID: c.Grant, Key: s.prefix + c.Key}
}

func granted(g clients.Grant) Message {
	m := Message{Type: OK, Valid: valid(g.Valid), Session: g.Session, Mark: g.Mark}
	if g.HasToken {
		m.Token = &g.Token
	}
	return m
}

// valid leaves out a validity that there is none of.
func valid(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	n := d.Nanoseconds()
	return &n
}

// failed says what an error proves: the words of SEMANTICS for what the servers
// said, the text for everything else.
func failed(err error) Message {
	for _, known := range []error{clients.ErrHeld, clients.ErrNotHeld, clients.ErrNoQuorum, clients.ErrAhead} {
		if errors.Is(err, known) {
			return Message{Type: Fail, Error: known.Error()}
		}
	}
	if clients.Definite(err) {
		return Message{Type: Fail, Error: err.Error()}
	}
	return Message{Type: Info, Error: err.Error()}
}

// Mark implements clients.Observer: it waits for the runner's stamp.
func (s *session) Mark(ctx context.Context, key string, grant uint64) (uint64, error) {
	id, acked := s.srv.newMark()
	defer s.srv.dropMark(id)
	s.srv.send(Message{Event: MarkEvent, Mark: id, Key: strings.TrimPrefix(key, s.prefix), Grant: grant})
	select {
	case <-acked:
		return id, nil
	case <-ctx.Done():
		return 0, clients.NotDone(fmt.Errorf("mark %d was not acknowledged: %w", id, ctx.Err()))
	case <-s.ctx.Done():
		return 0, clients.NotDone(fmt.Errorf("mark %d: the session has ended", id))
	}
}

// Tell implements clients.Observer.
func (s *session) Tell(e clients.Event) {
	if s.ctx.Err() != nil {
		return // an ended session has nothing to say
	}
	m := Message{Event: e.F, Key: strings.TrimPrefix(e.Key, s.prefix), Grant: e.Grant, Valid: valid(e.Valid), Session: e.Session, Mark: e.Mark}
	if e.Err != nil {
		m.Error = e.Err.Error()
	}
	s.srv.send(m)
}

func (s *server) newMark() (uint64, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID++
	ch := make(chan struct{})
	s.marks[s.nextID] = ch
	return s.nextID, ch
}

func (s *server) dropMark(id uint64) {
	s.mu.Lock()
	delete(s.marks, id)
	s.mu.Unlock()
}

func (s *server) acknowledged(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.marks[id]; ch != nil {
		close(ch)
		delete(s.marks, id)
	}
}
