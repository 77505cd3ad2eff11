package local

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	toxiserver "github.com/Shopify/toxiproxy/v2"
	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	zerologlog "github.com/rs/zerolog/log"
)

const (
	toxiproxyModule = "github.com/Shopify/toxiproxy/v2"
	storeName       = "store"
)

// An upstream is what a proxy leads to.
type upstream struct {
	name string // of the node, or "store"
	addr string
}

// proxies is a toxiproxy in this process, with its HTTP API on a port of its own.
type proxies struct {
	server *toxiserver.ApiServer
	http   *http.Server
	client *toxiproxy.Client
}

// startProxies serves the API on a listener of ours: toxiproxy's own Listen does
// not say when it is ready.
func startProxies() (*proxies, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for toxiproxy: %w", err)
	}
	silence()
	srv := toxiserver.NewServer(toxiserver.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := &proxies{
		server: srv,
		http:   &http.Server{Handler: srv.Routes(), ReadHeaderTimeout: 10 * time.Second},
		client: toxiproxy.NewClient(ln.Addr().String()),
	}
	go func() {
		// Ends when close does; anything else shows in the client's errors.
		_ = p.http.Serve(ln)
	}()
	return p, nil
}

// silence stops toxics that do not use the server's logger, such as bandwidth,
// from writing to standard error: they know only that of the process.
var silence = sync.OnceFunc(func() { zerologlog.Logger = zerolog.Nop() })

// proxyName has no slash, which toxiproxy's routes would not accept.
func proxyName(worker int, node string) string { return fmt.Sprintf("w%d-%s", worker, node) }

// close ends a toxiproxy of this process; one that is elsewhere goes with its place.
func (p *proxies) close() error {
	if p.server == nil {
		return nil
	}
	return errors.Join(p.http.Close(), p.server.Collection.Clear())
}

// toxiproxyVersion is that of the module which is built in.
func toxiproxyVersion() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, d := range bi.Deps {
			if d.Path == toxiproxyModule {
				return d.Version
			}
		}
	}
	return "unknown"
}
