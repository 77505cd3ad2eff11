package nemesis

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	toxiserver "github.com/Shopify/toxiproxy/v2"
	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// links are the proxies of two workers to one echoing server and to a store.
type links struct{ client *toxiproxy.Client }

func (l links) Proxies() *toxiproxy.Client               { return l.client }
func (l links) ProxyName(worker int, node string) string { return fmt.Sprintf("w%d-%s", worker, node) }

func listen(t *testing.T) net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func newLinks(t *testing.T) links {
	echo := listen(t)
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	api := listen(t)
	srv := toxiserver.NewServer(toxiserver.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	h := &http.Server{Handler: srv.Routes()}
	go h.Serve(api)
	t.Cleanup(func() { h.Close(); srv.Collection.Clear() })
	l := links{toxiproxy.NewClient(api.Addr().String())}
	for w := range 2 {
		for _, n := range []string{"n1", Store} {
			if _, err := l.client.CreateProxy(l.ProxyName(w, n), "127.0.0.1:0", echo.Addr().String()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// clean is an error if anything is left on the links.
func (l links) clean() error {
	ps, err := l.client.Proxies()
	if err != nil {
		return err
	}
	for name, p := range ps {
		if !p.Enabled || len(p.ActiveToxics) > 0 {
			return fmt.Errorf("%s: enabled %v, %v", name, p.Enabled, p.ActiveToxics)
		}
	}
	return nil
}

var linkSetting = Setting{Backend: "redis", Workers: 2, Leads: true, Nodes: []string{"n1"}, Data: []string{"n1"}}

func linkFaults() []Step {
	return []Step{
		{Fault: "client-cut", Way: Both}, {Fault: "client-cut", Way: Requests}, {Fault: "client-cut", Way: Replies},
		{Fault: "late", Way: Both, Links: All}, {Fault: "slow", Latency: 20 * time.Millisecond, Links: Store},
		{Fault: "jitter", Latency: 10 * time.Millisecond, Jitter: 10 * time.Millisecond}, {Fault: "bandwidth", Rate: 4},
		{Fault: "slicer", Slice: 1, Latency: time.Millisecond}, {Fault: "slicer", Slice: 32}, {Fault: "reset"}, {Fault: "down", Links: All},
	}
}

// Each fault on links is in force on the links that were meant and no others,
// and its heal takes it away, also the second time and after the run.
func TestLinks(t *testing.T) {
	for _, s := range linkFaults() {
		t.Run(s.Fault+s.Way, func(t *testing.T) {
			t.Parallel()
			l := newLinks(t)
			f, err := Make(t.Context(), System{Setting: linkSetting, Links: l}, s)
			if err != nil {
				t.Fatal(err)
			}
			ev, heal, err := f.Inject(t.Context(), []Target{{Worker: 1}})
			if err != nil || len(ev) == 0 || f.Name() != s.Fault {
				t.Fatal(f.Name(), ev, err)
			}
			ps, err := l.client.Proxies()
			if err != nil {
				t.Fatal(err)
			}
			for name, p := range ps {
				on := !p.Enabled || len(p.ActiveToxics) > 0
				meant := name == "w1-n1" && s.Links != Store || name == "w1-store" && (s.Links == Store || s.Links == All)
				if on != meant {
					t.Errorf("%s is disturbed: %v", name, on)
				}
			}
			over, cancel := context.WithCancel(t.Context())
			cancel()
			for range 2 {
				if _, err := heal(context.WithoutCancel(over)); err != nil {
					t.Error(err)
				}
			}
			if err := l.clean(); err != nil {
				t.Error(err)
			}
			c := dialLink(t, l, "w1-n1")
			say(t, c, "still there")
			hear(t, c, "still there")
		})
	}
}

// A toxic or a disabling that does nothing is not believed, and what was done
// halfway is undone.
func TestLinksWithoutEffect(t *testing.T) {
	for _, s := range linkFaults() {
		t.Run(s.Fault+s.Way, func(t *testing.T) {
			t.Parallel()
			l := newLinks(t)
			f, err := Make(t.Context(), System{Setting: linkSetting, Links: l}, s)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			switch d := f.(type) {
			case Link:
				d.Add = func(p *toxiproxy.Proxy, x toxiproxy.Toxic) error {
					if n++; n > 1 {
						return nil
					}
					_, err := p.AddToxic(x.Name, x.Type, x.Stream, x.Toxicity, x.Attributes)
					return err
				}
				f = d
			case Down:
				d.Disable = func(p *toxiproxy.Proxy) error {
					if n++; n > 1 {
						return nil
					}
					return p.Disable()
				}
				f = d
			}
			if ev, _, err := f.Inject(t.Context(), []Target{{Worker: 0}, {Worker: 1}}); err == nil {
				t.Errorf("what did not happen was believed: %v", ev)
			}
			if err := l.clean(); err != nil {
				t.Errorf("what was done halfway: %v", err)
			}
		})
	}
}

// A toxic that is not the one that was asked for is no evidence either.
func TestLinkOtherThanAsked(t *testing.T) {
	l := newLinks(t)
	f := Link{Fault: "slow", Links: l, To: []string{"n1"}, Type: "latency", Attributes: toxiproxy.Attributes{"latency": 500}}
	f.Add = func(p *toxiproxy.Proxy, x toxiproxy.Toxic) error {
		_, err := p.AddToxic(x.Name, x.Type, x.Stream, x.Toxicity, toxiproxy.Attributes{"latency": 1})
		return err
	}
	if ev, _, err := f.Inject(t.Context(), []Target{{Worker: 0}}); err == nil {
		t.Error(ev)
	}
	if err := l.clean(); err != nil {
		t.Error(err)
	}
	for _, f := range []Fault{Link{Fault: "slow"}, Down{}, Link{Fault: "slow", Links: l, To: []string{"n9"}, Type: "latency"}, Down{Links: l, To: []string{"n9"}}} {
		if ev, _, err := f.Inject(t.Context(), []Target{{Worker: 0}}); err == nil {
			t.Errorf("%v without proxies: %v", f, ev)
		}
	}
}

// An injection that is given up in the middle of a request leaves nothing behind,
// although the request still acts after that.
func TestGivenUpRequestIsUndone(t *testing.T) {
	l := newLinks(t)
	var giveUp context.CancelFunc
	var acted atomic.Int32
	late := func() { // the request is on its way when nobody waits for it any more
		giveUp()
		time.Sleep(50 * time.Millisecond)
		acted.Add(1)
	}
	down := Down{Links: l, To: []string{"n1", Store}, Disable: func(p *toxiproxy.Proxy) error {
		late()
		return p.Disable()
	}}
	slow := Link{Fault: "slow", Links: l, To: []string{"n1", Store}, Type: "latency", Attributes: toxiproxy.Attributes{"latency": 1}}
	slow.Add = func(p *toxiproxy.Proxy, x toxiproxy.Toxic) error {
		late()
		_, err := p.AddToxic(x.Name, x.Type, x.Stream, x.Toxicity, x.Attributes)
		return err
	}
	for i, f := range []Fault{down, slow} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		giveUp = cancel
		if ev, _, err := f.Inject(ctx, []Target{{Worker: 0}}); err == nil {
			t.Errorf("%s: %v", f.Name(), ev)
		}
		if n := acted.Load(); n != int32(i+1) {
			t.Errorf("%s: %d requests acted by then", f.Name(), n)
		}
		if err := l.clean(); err != nil {
			t.Error(f.Name(), err)
		}
	}
}

// What late holds arrives after the heal, over the same connection; what
// client-cut drops does not, and its connections end.
func TestLateAndCut(t *testing.T) {
	for fault, arrives := range map[string]bool{"late": true, "client-cut": false} {
		l := newLinks(t)
		c := dialLink(t, l, "w0-n1")
		say(t, c, "before")
		hear(t, c, "before")
		f, err := Make(t.Context(), System{Setting: linkSetting, Links: l}, Step{Fault: fault, Way: Both})
		if err != nil {
			t.Fatal(err)
		}
		_, heal, err := f.Inject(t.Context(), []Target{{Worker: 0}})
		if err != nil {
			t.Fatal(err)
		}
		say(t, c, "meanwhile")
		c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: %d bytes came through", fault, n)
		}
		if _, err := heal(t.Context()); err != nil {
			t.Fatal(err)
		}
		if arrives {
			hear(t, c, "meanwhile")
			continue
		}
		c.SetReadDeadline(time.Now().Add(patience))
		if n, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: after the heal %d bytes, %v", fault, n, err)
		}
	}
}

// patience is the deadline of what must come.
const patience = 30 * time.Second

func dialLink(t *testing.T, l links, name string) net.Conn {
	t.Helper()
	p, err := l.client.Proxy(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", p.Listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, s string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, len(s))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != s {
		t.Errorf("heard %q, %v", b, err)
	}
}

func TestLinksOf(t *testing.T) {
	_, sys := sentinelLab()
	for links, want := range map[string][]string{
		EveryNode: sys.Nodes, Store: {Store}, All: append(slices.Clone(sys.Nodes), Store),
		Leader: {"n2"}, Majority: {"n2", "n3"}, Minority: {"n2"}, "s1": {"s1"},
	} {
		got, err := linksOf(t.Context(), sys, Step{Links: links, Pick: 1})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", links, got, err)
		}
	}
	if got, err := linksOf(t.Context(), sys, Step{Links: "n9"}); err == nil {
		t.Error(got)
	}
}
