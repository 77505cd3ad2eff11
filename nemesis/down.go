package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
)

var downEntry = Entry{
	Name:  "down",
	About: "links of workers are down: connections end, and new ones are refused, as if the servers had crashed",
	Acts:  OnLinks,
	Aims:  workerAims,
	Draw: func(rng *rand.Rand, cfg Config, s *Step) {
		s.Links, s.Way = drawLinks(rng, cfg.Setting, []string{EveryNode, Majority, Minority, Leader, Store}), Both
	},
	New: func(ctx context.Context, sys System, s Step) (Fault, error) {
		to, err := linksOf(ctx, sys, s)
		return Down{Links: sys.Links, To: to}, err
	},
}

// Down disables the proxies of links: what a crash looks like, not a partition.
type Down struct {
	Links Links
	To    []string // nodes, and Store
	// Disable replaces what takes a proxy down, for the test.
	Disable func(*toxiproxy.Proxy) error
}

// Name is "down".
func (Down) Name() string { return downEntry.Name }

// Inject disables the proxies. The evidence is that each of them refuses a
// connection, and is listed as disabled.
func (d Down) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	if d.Links == nil || d.Links.Proxies() == nil {
		return nil, nil, errors.New("down: the links lead through no proxy")
	}
	disable := d.Disable
	if disable == nil {
		disable = (*toxiproxy.Proxy).Disable
	}
	names := proxyNames(d.Links, ts, d.To)
	var c calls
	heal := func(hctx context.Context) (Evidence, error) {
		return nil, c.within(hctx, func(context.Context) error { return d.enable(names) })
	}
	var ev Evidence
	err := c.within(ctx, func(ctx context.Context) error {
		ps, err := d.Links.Proxies().Proxies()
		if err != nil {
			return err
		}
		for _, n := range names {
			if ps[n] == nil {
				return fmt.Errorf("there is no link %s", n)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := disable(ps[n]); err != nil {
				return fmt.Errorf("link %s: %w", n, err)
			}
		}
		ev, err = d.refused(names)
		return err
	})
	if err != nil {
		return nil, nil, undone(ctx, heal, provedWithin, fmt.Errorf("down: %w", err))
	}
	return ev, heal, nil
}

// refused tries to connect, as a worker does.
func (d Down) refused(names []string) (Evidence, error) {
	ps, err := d.Links.Proxies().Proxies()
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		p := ps[n]
		if p == nil || p.Enabled {
			return nil, fmt.Errorf("link %s is not disabled", n)
		}
		c, err := net.DialTimeout("tcp", p.Listen, time.Second)
		if err == nil {
			c.Close()
			return nil, fmt.Errorf("link %s still takes connections", n)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("link %s: %w", n, err)
		}
	}
	return Evidence{"refused": names}, nil
}

func (d Down) enable(names []string) error {
	ps, err := d.Links.Proxies().Proxies()
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range names {
		if p := ps[n]; p != nil && !p.Enabled {
			errs = append(errs, p.Enable())
		}
	}
	if ps, err = d.Links.Proxies().Proxies(); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, n := range names {
		if p := ps[n]; p != nil && !p.Enabled {
			errs = append(errs, fmt.Errorf("link %s stays down", n))
		}
	}
	return errors.Join(errs...)
}
