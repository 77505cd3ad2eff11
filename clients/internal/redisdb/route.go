package redisdb

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"

	"github.com/lockcheck/lockcheck/clients"
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// routed connects to where an address is to be reached; nil for go-redis's own way
// when there are no routes. The given addresses are reached as they are.
func routed(given []string, routes map[string]string, secure *tls.Config) dialer {
	if len(routes) == 0 {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if to, ok := routes[addr]; ok {
			addr = to
		} else if !slices.Contains(given, addr) {
			return nil, fmt.Errorf("no route to %s, which a sentinel told of", addr)
		}
		d := &net.Dialer{Timeout: dialWithin}
		if secure != nil {
			return (&tls.Dialer{NetDialer: d, Config: secure}).DialContext(ctx, network, addr)
		}
		return d.DialContext(ctx, network, addr)
	}
}

// Auth is what a server asks of a client. The zero value is for one that asks for
// nothing.
type Auth struct {
	User, Password string
	TLS            *tls.Config
}

// AuthOf reads what clients are given.
func AuthOf(a *clients.Access) (Auth, error) {
	secure, err := a.Config()
	user, password := a.Login()
	return Auth{user, password, secure}, err
}
