package zookeeper

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// pace is the least time between two tries to connect. go-zookeeper has no pause
// of its own between single servers, and a whole second after a round of them.
const pace = 20 * time.Millisecond

const (
	// leastHandshake keeps a client with a short session from giving up on
	// servers that are only slow.
	leastHandshake = 200 * time.Millisecond
	// firstHandshake is for the first session, when there is none to lose yet.
	firstHandshake = time.Second
)

// servers is go-zookeeper's HostProvider: in turn, from first on. It never says
// that a round is over, which would cost the second, until the client closes:
// only then go-zookeeper looks whether it should stop trying.
type servers struct {
	addrs  []string
	next   atomic.Uint64
	closed atomic.Bool
}

func (s *servers) Init([]string) error { return nil } // shuffled; ours are in order
func (s *servers) Len() int            { return len(s.addrs) }
func (s *servers) Connected()          {}
func (s *servers) Next() (string, bool) {
	n := s.next.Add(1) - 1
	return s.addrs[n%uint64(len(s.addrs))], s.closed.Load()
}

// A dialer makes go-zookeeper's connections. It bounds the handshake, for which
// go-zookeeper would wait ten times two thirds of the session time-out, and
// reads the negotiated time-out from it, which go-zookeeper keeps to itself.
type dialer struct {
	ctx        context.Context // ends with the client
	within     time.Duration   // to connect and get the session: an equal part of it for each server, as in the Java client
	negotiated atomic.Int64    // session time-out, in ns
	last       time.Time       // used by go-zookeeper's one connecting goroutine
}

func (d *dialer) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	select {
	case <-time.After(time.Until(d.last.Add(pace))):
	case <-d.ctx.Done():
		return nil, d.ctx.Err()
	}
	d.last = time.Now()
	within := d.within
	if d.negotiated.Load() == 0 {
		within = max(within, firstHandshake)
	}
	ctx, cancel := context.WithTimeout(d.ctx, within)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	h := &handshake{Conn: c, until: d.last.Add(within), negotiated: &d.negotiated}
	context.AfterFunc(d.ctx, func() { c.Close() }) // a server that says nothing cannot keep us from closing
	return h, nil
}

// A handshake is a connection whose first reply, the ConnectResponse, must come
// before until. It is 4 bytes of length, 4 of protocol version, 4 of session
// time-out in milliseconds, 8 of session id, and more.
type handshake struct {
	net.Conn
	until      time.Time
	head       []byte
	negotiated *atomic.Int64
}

const headLen = 20

func (h *handshake) SetReadDeadline(t time.Time) error {
	if len(h.head) < headLen {
		t = h.until
	}
	return h.Conn.SetReadDeadline(t)
}

func (h *handshake) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	if len(h.head) < headLen {
		h.head = append(h.head, b[:n]...)
		h.parse()
	}
	return n, err
}

func (h *handshake) parse() {
	if len(h.head) < headLen {
		return
	}
	if session := binary.BigEndian.Uint64(h.head[12:]); session != 0 { // 0: expired
		ms := int32(binary.BigEndian.Uint32(h.head[8:]))
		h.negotiated.Store(int64(ms) * int64(time.Millisecond))
	}
}
