package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockcheck/lockcheck/clients"
)

// grant makes a lease. Its TTL may be longer than was asked for: the server has
// a least one. The lease alone locks nothing, so one whose answer was lost is
// left to end by itself.
func (m *members) grant(ctx context.Context, ttl time.Duration) (id clientv3.LeaseID, valid time.Duration, err error) {
	seconds := int64((ttl + time.Second - 1) / time.Second) // etcd knows no less
	err = m.do(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Grant(ctx, max(seconds, 1))
		if err == nil {
			id, valid = resp.ID, time.Duration(resp.TTL)*time.Second
		}
		return err
	})
	return id, valid, err
}

// keepAlive renews a lease and says for how long, counted from before the
// request. clientv3's KeepAliveOnce is not used: it repeats a request whose
// outcome is unknown, and "not found" on the second says nothing of the first.
func (m *members) keepAlive(ctx context.Context, id clientv3.LeaseID) (valid time.Duration, err error) {
	err = m.do(ctx, func(ctx context.Context, c *clientv3.Client) error {
		ctx, cancel := context.WithCancel(ctx) // ends the stream
		defer cancel()
		stream, err := etcdserverpb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx)
		if err != nil {
			return clientv3.ContextError(ctx, err)
		}
		if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
			return err
		}
		resp, err := stream.Recv()
		if err != nil {
			// Not turned into clientv3's errors: "no leader" may end a stream in
			// the middle, so here it is no proof.
			return err
		}
		valid = time.Duration(resp.TTL) * time.Second
		return nil
	})
	if err == nil && valid <= 0 { // the leader knows no such lease, and its keys went with it
		err = clients.ErrNotHeld
	}
	return valid, err
}

// gone asks whether the server has let the lease go. An expired lease that is
// not revoked yet still holds its key; that one has a granted TTL.
func (m *members) gone(ctx context.Context, id clientv3.LeaseID) (gone bool, err error) {
	err = m.do(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.TimeToLive(ctx, id)
		if err == nil {
			gone = resp.TTL == -1 && resp.GrantedTTL == 0
		}
		return err
	})
	return gone, err
}

// revoke ends a lease. Nothing depends on the answer: the lease would end by
// itself.
func (m *members) revoke(ctx context.Context, id clientv3.LeaseID) {
	m.do(ctx, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Revoke(ctx, id)
		return err
	})
}
