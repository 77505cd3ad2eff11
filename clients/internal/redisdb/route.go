package redisdb

import (
	"context"
	"fmt"
	"net"
	"slices"
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// routed connects to where an address is to be reached; nil for go-redis's own way
// when there are no routes. The given addresses are reached as they are.
func routed(given []string, routes map[string]string) dialer {
	if len(routes) == 0 {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if to, ok := routes[addr]; ok {
			addr = to
		} else if !slices.Contains(given, addr) {
			return nil, fmt.Errorf("no route to %s, which a sentinel told of", addr)
		}
		d := net.Dialer{Timeout: dialWithin}
		return d.DialContext(ctx, network, addr)
	}
}
