package local

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Offsets of the addresses in an IPv4 header.
const (
	offSource = 12
	offDest   = 16
)

// A redirect sends connections to one address to another.
type redirect struct {
	ip     netip.Addr
	port   uint16
	toIP   netip.Addr
	toPort uint16
}

// redirectTable holds what is set once, before a worker's first packet, cutTable
// what faults put in and take out.
var (
	redirectTable = &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "redirect"}
	cutTable      = &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "cut"}
)

// batch runs f over the host's nftables connection and sends what it collected
// as one transaction. The socket is opened inside the namespace and stays there.
func (h *labHost) batch(f func(*nftables.Conn)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, err := h.nftConn()
	if err != nil {
		return err
	}
	f(c)
	return c.Flush()
}

// nftConn must be called with h.mu held.
func (h *labHost) nftConn() (*nftables.Conn, error) {
	if h.nft != nil {
		return h.nft, nil
	}
	if !h.ns.IsOpen() {
		return nil, errClosed
	}
	err := h.do(func() (err error) {
		h.nft, err = nftables.New(nftables.AsLasting())
		return err
	})
	if err != nil {
		h.nft = nil
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	return h.nft, nil
}

// redirect sends the host's own connections elsewhere, by destination NAT.
func (h *labHost) redirect(rs []redirect) error {
	err := h.batch(func(c *nftables.Conn) {
		t := c.AddTable(redirectTable)
		ch := c.AddChain(&nftables.Chain{
			Name: "output", Table: t, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
		})
		for _, r := range rs {
			c.AddRule(&nftables.Rule{Table: t, Chain: ch, Exprs: r.exprs()})
		}
	})
	if err != nil {
		return fmt.Errorf("redirect the links of %s: %w", h.name, err)
	}
	return nil
}

func (r redirect) exprs() []expr.Any {
	be := binaryutil.BigEndian
	return append(matchAddr(offDest, r.ip),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: be.PutUint16(r.port)},
		&expr.Counter{},
		&expr.Immediate{Register: 1, Data: r.toIP.AsSlice()},
		&expr.Immediate{Register: 2, Data: be.PutUint16(r.toPort)},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
	)
}

func matchAddr(offset uint32, ip netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ip.AsSlice()},
	}
}

// drop loses every packet from the peers as it arrives. The receiver's side is
// the place: a drop on the way out is an error that the sender sees.
func (h *labHost) drop(from []peer) error {
	return h.batch(func(c *nftables.Conn) {
		t := c.AddTable(cutTable)
		ch := c.AddChain(cutChain())
		for _, p := range from {
			e := append(matchAddr(offSource, p.ip), &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})
			c.AddRule(&nftables.Rule{Table: t, Chain: ch, Exprs: e, UserData: []byte(p.name)})
		}
	})
}

func cutChain() *nftables.Chain {
	return &nftables.Chain{
		Name: "input", Table: cutTable, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter,
	}
}

// undrop removes what drop did; it is idempotent.
func (h *labHost) undrop() error {
	err := h.batch(func(c *nftables.Conn) { c.DelTable(cutTable) })
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// dropped reads the counters of the drop rules back from the kernel.
func (h *labHost) dropped() ([]Dropped, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, err := h.nftConn()
	if err != nil {
		return nil, err
	}
	rules, err := c.GetRules(cutTable, cutChain())
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Dropped
	for _, r := range rules {
		for _, e := range r.Exprs {
			if k, ok := e.(*expr.Counter); ok {
				out = append(out, Dropped{Node: h.name, From: string(r.UserData), Packets: k.Packets, Bytes: k.Bytes})
			}
		}
	}
	return out, nil
}
