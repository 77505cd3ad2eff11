package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/lockcheck/lockcheck/clients"
)

// seen is what a client's requests and their answers show from outside: what its
// leases count from, how often it sent something, what a deletion deleted.
type seen struct {
	obs     clients.Observer
	writes  atomic.Int64 // requests to the KV service that went out
	deleted atomic.Int64 // by the latest deletion that was answered

	mu     sync.Mutex
	proofs map[int64]proof  // by lease
	held   map[uint64]holds // by grant
}

// A proof is an answer that a lease has so long to live, from a mark on.
type proof struct {
	valid time.Duration
	mark  uint64
}

type holds struct {
	lease int64
	key   string
}

func newSeen(obs clients.Observer) *seen {
	return &seen{obs: obs, proofs: map[int64]proof{}, held: map[uint64]holds{}}
}

// watch gives a function that reports whether no more than one writing request has
// gone out since. (clientv3 repeats what a server says it has not done, and on some
// answers that do not say so.)
func (s *seen) watch() (once func() bool) {
	before := s.writes.Load()
	return func() bool { return s.writes.Load() <= before+1 }
}

// hold gives what the lease of a new grant is known to last, and tells of its
// renewals from now on.
func (s *seen) hold(lease int64, key string, grant uint64) (time.Duration, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[grant] = holds{lease, key}
	return s.proofs[lease].valid, s.proofs[lease].mark
}

func (s *seen) drop(grant uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, grant)
}

func (s *seen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.held)
}

// unary sees every single try: clientv3's repetitions are made outside of it.
func (s *seen) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var mark uint64
	switch req.(type) {
	case *pb.LeaseGrantRequest:
		var err error
		if mark, err = s.obs.Mark(ctx, "", 0); err != nil {
			return err
		}
	case *pb.TxnRequest, *pb.DeleteRangeRequest:
		s.writes.Add(1)
	}
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return err
	}
	switch r := reply.(type) {
	case *pb.LeaseGrantResponse:
		s.proved(r.ID, proof{time.Duration(r.TTL) * time.Second, mark})
	case *pb.DeleteRangeResponse:
		s.deleted.Store(r.Deleted)
	}
	return nil
}

// proved notes that a lease lives, and tells it of the grants that hang on it.
func (s *seen) proved(lease int64, p proof) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proofs[lease] = p
	for grant, h := range s.held {
		if h.lease == lease {
			s.obs.Tell(clients.Event{F: clients.Renewed, Key: h.key, Grant: grant, Valid: p.valid, Mark: p.mark})
		}
	}
}

func (s *seen) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	inner, err := open(ctx, desc, cc, method, opts...)
	if err != nil || method != pb.Lease_LeaseKeepAlive_FullMethodName {
		return inner, err
	}
	return &keepAlives{ClientStream: inner, seen: s}, nil
}

// keepAlives is one stream of keep-alives. The server answers them in their order.
type keepAlives struct {
	grpc.ClientStream
	seen  *seen
	mu    sync.Mutex
	marks []uint64 // of the requests that are not answered
}

func (k *keepAlives) SendMsg(m any) error {
	mark, err := k.seen.obs.Mark(k.Context(), "", 0)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.marks = append(k.marks, mark)
	k.mu.Unlock()
	return k.ClientStream.SendMsg(m)
}

func (k *keepAlives) RecvMsg(m any) error {
	if err := k.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	k.mu.Lock()
	mark := k.marks[0]
	k.marks = k.marks[1:]
	k.mu.Unlock()
	if r, ok := m.(*pb.LeaseKeepAliveResponse); ok && r.TTL > 0 {
		k.seen.proved(r.ID, proof{time.Duration(r.TTL) * time.Second, mark})
	}
	return nil
}

// A watch asks the servers, over a connection of its own, whether the lease of a
// session is still there. What the library believes plays no part in it.
type watch struct {
	cancel context.CancelFunc
	grants atomic.Int64 // changes with each grant
}

func watchLease(endpoints []string, s *concurrency.Session, obs clients.Observer, every time.Duration) *watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{cancel: cancel}
	go w.loop(ctx, endpoints, s.Lease(), obs, every)
	return w
}

func (w *watch) stop() { w.cancel() }

// granted is called when the library has given a lock out.
func (w *watch) granted() { w.grants.Add(1) }

func (w *watch) loop(ctx context.Context, endpoints []string, lease clientv3.LeaseID, obs clients.Observer, every time.Duration) {
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		return // without a watcher a loss is only told by the library's own answers
	}
	defer c.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		before := w.grants.Load()
		tctx, cancel := context.WithTimeout(ctx, 2*every)
		resp, err := c.TimeToLive(tctx, lease)
		cancel()
		// What was granted while we asked may still be on its way to its user, and
		// the loss must not overtake it: that is left to the next question.
		if err == nil && resp.TTL == -1 && resp.GrantedTTL == 0 && w.grants.Load() == before && ctx.Err() == nil {
			obs.Tell(clients.Event{F: clients.Lost})
			return
		}
	}
}
