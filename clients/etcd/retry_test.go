package etcd

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockcheck/lockcheck/clients"
)

// A stub is an etcd that fails everything in one way, and counts.
func stub(t *testing.T, failure error) (addr string, calls *atomic.Int32) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	calls = &atomic.Int32{}
	s := grpc.NewServer(
		grpc.UnaryInterceptor(func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
			calls.Add(1)
			return nil, failure
		}),
		grpc.StreamInterceptor(func(_ any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
			calls.Add(1)
			stream.RecvMsg(&etcdserverpb.LeaseKeepAliveRequest{})
			return failure
		}))
	etcdserverpb.RegisterKVServer(s, etcdserverpb.UnimplementedKVServer{})
	etcdserverpb.RegisterLeaseServer(s, etcdserverpb.UnimplementedLeaseServer{})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String(), calls
}

// However the server fails, a request is sent once. clientv3 as it comes sends
// most of these again.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{
		status.Error(codes.Unavailable, "etcdserver: request timed out"),
		status.Error(codes.Unavailable, "etcdserver: leader changed"),
		status.Error(codes.Unavailable, "there is no connection available"),
		status.Error(codes.DeadlineExceeded, "etcdserver: context deadline exceeded"),
		status.Error(codes.Canceled, "etcdserver: request canceled"),
		status.Error(codes.Internal, "broken"),
	} {
		addr, calls := stub(t, failure)
		m, err := open([]string{addr}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		for name, request := range map[string]func() error{
			"grant":     func() error { _, _, err := m.grant(ctx, time.Second); return err },
			"create":    func() error { _, err := m.create(ctx, "k", "o", 1); return err },
			"created":   func() error { _, err := m.created(ctx, "k"); return err },
			"remove":    func() error { return m.remove(ctx, "k", 1) },
			"keepAlive": func() error { _, err := m.keepAlive(ctx, 1); return err },
			"gone":      func() error { _, err := m.gone(ctx, 1); return err },
		} {
			before := calls.Load()
			err := request()
			for tries := 0; tries < 20 && clients.Definite(err) && calls.Load() == before; tries++ {
				err = request() // on a busy machine there may be no connection in time
			}
			if n := calls.Load() - before; n != 1 || err == nil || clients.Definite(err) {
				t.Errorf("%s, when the server says %v: sent %d times, %v", name, failure, n, err)
			}
		}
		cancel()
		m.close()
	}
}

// Without a leader a member says so before it does anything, so another may be
// asked; but not about a stream, which this may also end in the middle.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	failure := status.Error(codes.Unavailable, "etcdserver: no leader")
	one, first := stub(t, failure)
	two, second := stub(t, failure)
	m, err := open([]string{one, two}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := m.create(ctx, "k", "o", 1); !clients.Definite(err) || first.Load() != 1 || second.Load() != 1 {
		t.Errorf("transaction: %v after %d and %d", err, first.Load(), second.Load())
	}
	if _, err := m.keepAlive(ctx, 1); err == nil || clients.Definite(err) || first.Load()+second.Load() != 3 {
		t.Errorf("keep-alive: %v after %d and %d", err, first.Load(), second.Load())
	}
}
