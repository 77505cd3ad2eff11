package servertest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// A Proxy is a wire to a server that can be cut.
type Proxy struct {
	Addr string
	t    testing.TB
	p    *toxiproxy.Proxy
}

// NewProxy stands before the server at upstream until the test ends.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, "test", "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return &Proxy{Addr: p.Listen, t: t, p: p}
}

// Proxies stand before each of the servers.
func Proxies(t testing.TB, servers []*Server) (proxies []*Proxy, addrs []string) {
	t.Helper()
	for _, s := range servers {
		p := NewProxy(t, s.Addr)
		proxies, addrs = append(proxies, p), append(addrs, p.Addr)
	}
	return proxies, addrs
}

// DropReplies swallows what the server says. Connections stay up.
func (p *Proxy) DropReplies() { p.add("timeout", "downstream", `{"timeout":0}`) }

// DropRequests swallows what the client says. Connections stay up.
func (p *Proxy) DropRequests() { p.add("timeout", "upstream", `{"timeout":0}`) }

// DelayReplies holds back what the server says.
func (p *Proxy) DelayReplies(ms int) {
	p.add("latency", "downstream", fmt.Sprintf(`{"latency":%d}`, ms))
}

// Heal removes whatever was added. Connections that had bytes dropped end.
func (p *Proxy) Heal() { p.p.Toxics.ResetToxics(context.Background()) }

// Down ends the connections and refuses new ones until Up.
func (p *Proxy) Down() { p.p.Stop() }

// Up accepts connections again.
func (p *Proxy) Up() {
	p.t.Helper()
	if err := p.p.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *Proxy) add(kind, stream, attributes string) {
	p.t.Helper()
	toxic := fmt.Sprintf(`{"name":"%s-%s","type":%q,"stream":%q,"attributes":%s}`, kind, stream, kind, stream, attributes)
	if _, err := p.p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		p.t.Fatal(err)
	}
}
