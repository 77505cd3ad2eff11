package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/stats"

	"github.com/lockcheck/lockcheck/clients"
)

const (
	// connectWithin is when a member that swallows packets counts as unreachable,
	// so that the next one can be tried within the same operation.
	connectWithin = 500 * time.Millisecond
	// redialWithin is the longest pause between two tries to connect.
	redialWithin = 250 * time.Millisecond
	// unackedWithin ends a connection whose packets nobody acknowledges: gRPC
	// makes it the socket's TCP_USER_TIMEOUT. Its pings, at best one in
	// pingEvery, are too slow to notice that within a TTL of a second.
	unackedWithin = time.Second
	pingEvery     = 10 * time.Second
)

// members are the servers of the cluster, a connection each. Requests go to one
// of them until it fails, then to the next. clientv3's own balancer deals them
// out in turn instead, so that with one member cut off every third request of a
// healthy client hangs.
type members struct {
	clients []*clientv3.Client
	current atomic.Uint32
}

func open(endpoints []string, first int, access *clients.Access) (*members, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("etcd needs the addresses of its members")
	}
	secure, err := access.Config()
	if err != nil {
		return nil, err
	}
	m := &members{}
	m.current.Store(uint32(first) % uint32(len(endpoints)))
	for _, e := range endpoints {
		cfg := settings(e)
		cfg.TLS = secure
		cfg.Username, cfg.Password = access.Login()
		if secure != nil {
			cfg.Endpoints = []string{"https://" + e}
		}
		c, err := clientv3.New(cfg)
		if err != nil {
			m.close()
			return nil, fmt.Errorf("client for %s: %w", e, err)
		}
		m.clients = append(m.clients, c)
	}
	return m, nil
}

// settings switch off what clientv3 does by itself. It retries: up to 100 times
// when a member is unavailable, for Range, LeaseGrant, LeaseRevoke and
// LeaseTimeToLive ("repeatable"); and every unary call, a Txn with puts too, on
// a time-out or cancellation that the server reports before the client's own
// clock does. MaxUnaryRetries counts all tries, so 1 is none besides the first.
// What gRPC itself sends again ("transparently") the server has said it never
// looked at.
func settings(endpoint string) clientv3.Config {
	return clientv3.Config{
		Endpoints:            []string{endpoint},
		Logger:               zap.NewNop(),
		MaxUnaryRetries:      1,
		DialKeepAliveTime:    pingEvery,
		DialKeepAliveTimeout: unackedWithin,
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: redialWithin},
				MinConnectTimeout: connectWithin,
			}),
			grpc.WithStatsHandler(departures{}),
			grpc.WithChainUnaryInterceptor(failFast),
			grpc.WithChainStreamInterceptor(failFastStream),
		},
	}
}

// failFast undoes clientv3's WaitForReady: a member that cannot be reached is an
// error at once, not at the deadline.
func failFast(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
}

func failFastStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(ctx, desc, cc, method, append(opts, grpc.WaitForReady(false))...)
}

func (m *members) close() {
	for _, c := range m.clients {
		c.Close() // says only that its own context was cancelled
	}
}

// do sends one request. Only if it certainly was not looked at does it go to
// another member: it never left, or the member knows no leader, which it says of
// a unary request before it does anything with it. The error is definite if that
// is so for the last member too, or if the cluster refused the request.
func (m *members) do(ctx context.Context, request func(context.Context, *clientv3.Client) error) error {
	var err error
	for range m.clients {
		at := m.current.Load()
		var left atomic.Bool
		// A member without a leader is to say so instead of letting us wait.
		rctx := context.WithValue(clientv3.WithRequireLeader(ctx), departure{}, &left)
		err = request(rctx, m.clients[at])
		switch {
		case err == nil, clients.Definite(err):
			return err
		case refused(err):
			return clients.NotDone(err)
		}
		m.current.CompareAndSwap(at, (at+1)%uint32(len(m.clients)))
		if left.Load() && !errors.Is(err, rpctypes.ErrNoLeader) {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return clients.NotDone(err)
}

// refused reports whether err is the cluster's last word: the request was turned
// down before it was proposed, or when it was applied, and changed nothing.
func refused(err error) bool {
	for _, e := range []error{rpctypes.ErrLeaseNotFound, rpctypes.ErrTooManyRequests, rpctypes.ErrRequestTooLarge, rpctypes.ErrNoSpace} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// departures notes when a request leaves: gRPC reports its header as it hands it
// to the connection. A request without one never left.
type departures struct{}

type departure struct{}

func (departures) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (departures) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (departures) HandleConn(context.Context, stats.ConnStats)                       {}
func (departures) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutHeader); !ok {
		return
	}
	if left, ok := ctx.Value(departure{}).(*atomic.Bool); ok {
		left.Store(true)
	}
}
