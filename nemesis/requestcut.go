package nemesis

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
	toxic "github.com/Shopify/toxiproxy/v2/toxics"
)

// Requests at which request-cut ends a connection.
const (
	Children = "children" // of a node: getChildren and getChildren2
	Data     = "data"     // of a node, with a watch or without
)

// zkOps are their numbers in ZooKeeper's protocol
// (https://zookeeper.apache.org/doc/current/zookeeperInternals.html; ZooDefs.OpCode).
var zkOps = map[string][]int{Children: {8, 12}, Data: {4, 0}}

const zookeeper = "zookeeper"

var requestCutEntry = func() Entry {
	e := linkEntry("request-cut",
		"links of workers end when ZooKeeper is asked for a node's children, or its data, and the request is lost; the session lives on",
		[]string{EveryNode, Majority, Leader},
		func(s Step) (string, toxiproxy.Attributes) {
			ops := zkOps[s.Form]
			return requestCutToxic, toxiproxy.Attributes{"op": ops[0], "or": ops[1]}
		}, nil)
	e.Forms = []string{Children, Data}
	e.Possible = func(set Setting, _ string) error {
		if set.Backend != zookeeper {
			return fmt.Errorf("request-cut reads ZooKeeper's protocol: it cannot work on %s", set.Backend)
		}
		return nil
	}
	draw, found := e.Draw, e.New
	e.Draw = func(rng *rand.Rand, cfg Config, s *Step) { draw(rng, cfg, s); s.Way = Requests }
	e.New = func(ctx context.Context, sys System, s Step) (Fault, error) {
		registerRequestCut()
		s.Way = Requests
		if zkOps[s.Form] == nil {
			s.Form = Children
		}
		return found(ctx, sys, s)
	}
	return e
}()

// requestCutToxic is what toxiproxy, which runs in this process, knows it by.
const requestCutToxic = "lockcheck_request_cut"

var registerRequestCut = sync.OnceFunc(func() { toxic.Register(requestCutToxic, new(requestCut)) })

// A requestCut is the toxic: what goes to ZooKeeper passes, until there is a
// request of one of two kinds.
type requestCut struct {
	Op uint32 `json:"op"`
	Or uint32 `json:"or"`
}

// NewState implements toxiproxy's StatefulToxic.
func (*requestCut) NewState() any { return new(requests) }

// Pipe implements toxiproxy's Toxic.
func (t *requestCut) Pipe(stub *toxic.ToxicStub) {
	seen := stub.State.(*requests)
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil || seen.ask(c.Data, t.Op, t.Or) {
				stub.Close()
				return
			}
			stub.Output <- c
		}
	}
}

// requestHead is what a request begins with: its length, which does not count
// itself, its number and its kind. The greeting of a connection has neither of
// these, and 0 in the place of a number, which no request has.
const requestHead = 12

// requests follow what a client says to ZooKeeper, in pieces of any size.
type requests struct {
	head []byte
	left int // of the present request, behind its head
}

// ask reports whether a request of one of the two kinds begins in b.
func (r *requests) ask(b []byte, op, or uint32) bool {
	asked := false
	for len(b) > 0 {
		if n := min(r.left, len(b)); n > 0 {
			r.left, b = r.left-n, b[n:]
			continue
		}
		n := min(requestHead-len(r.head), len(b))
		r.head, b = append(r.head, b[:n]...), b[n:]
		if len(r.head) < requestHead {
			break
		}
		number, kind := binary.BigEndian.Uint32(r.head[4:]), binary.BigEndian.Uint32(r.head[8:])
		asked = asked || number != 0 && (kind == op || kind == or && or != 0)
		r.left = max(0, int(binary.BigEndian.Uint32(r.head))+4-requestHead)
		r.head = r.head[:0]
	}
	return asked
}
