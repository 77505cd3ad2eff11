package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
)

// Ways in which a link is disturbed, besides Both.
const (
	Requests = "requests" // only from the worker
	Replies  = "replies"  // only to the worker
)

// Streams of a link, as toxiproxy calls them.
const (
	upstream   = "upstream"
	downstream = "downstream"
)

// EveryNode are a worker's links to all nodes; All are these and the store's.
const EveryNode = "nodes"

// linkAims are the links that a fault can be on, besides those to a named node.
var linkAims = []string{EveryNode, Store, All, Majority, Minority, Leader}

// workerAims are the targets of a fault on workers or on their links.
var workerAims = []string{Holder, Random, Majority, Minority, All}

// A Link is a fault that is made of one toxic on links of workers. Every fault
// but down is one, with a toxic of its own.
type Link struct {
	Fault      string
	Links      Links
	To         []string // nodes, and Store
	Way        string
	Type       string // of the toxic
	Attributes toxiproxy.Attributes
	// Add replaces what puts the toxic on, for the test.
	Add func(p *toxiproxy.Proxy, t toxiproxy.Toxic) error
}

// Name is that of the kind of fault.
func (l Link) Name() string { return l.Fault }

// toxics numbers the toxics of this process: two faults may be on one link.
var toxics atomic.Int64

// Inject puts the toxic on. The evidence is what toxiproxy then lists: the toxic
// itself, on every link and in every direction that was meant.
func (l Link) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	want, err := l.wanted()
	if err != nil {
		return nil, nil, err
	}
	proxies := proxyNames(l.Links, ts, l.To)
	var c calls
	heal := func(hctx context.Context) (Evidence, error) {
		return nil, c.within(hctx, func(context.Context) error { return l.remove(proxies, want) })
	}
	err = c.within(ctx, func(ctx context.Context) error { return l.add(ctx, proxies, want) })
	var ev Evidence
	if err == nil {
		err = c.within(ctx, func(context.Context) (err error) {
			ev, err = l.listed(proxies, want)
			return err
		})
	}
	if err != nil {
		return nil, nil, undone(ctx, heal, provedWithin, fmt.Errorf("%s: %w", l.Fault, err))
	}
	return ev, heal, nil
}

// wanted gives the toxics of each link. A toxic acts on one direction, so there
// is one for each.
func (l Link) wanted() ([]toxiproxy.Toxic, error) {
	streams := map[string][]string{"": {upstream, downstream}, Both: {upstream, downstream}, Requests: {upstream}, Replies: {downstream}}[l.Way]
	if streams == nil {
		return nil, fmt.Errorf("%s: a link is not disturbed the way %q", l.Fault, l.Way)
	}
	if l.Links == nil || l.Links.Proxies() == nil {
		return nil, fmt.Errorf("%s: the links lead through no proxy", l.Fault)
	}
	number := toxics.Add(1)
	var want []toxiproxy.Toxic
	for _, s := range streams {
		want = append(want, toxiproxy.Toxic{Name: fmt.Sprintf("%s-%d-%s", l.Fault, number, s), Type: l.Type, Stream: s, Toxicity: 1, Attributes: l.Attributes})
	}
	return want, nil
}

func (l Link) add(ctx context.Context, proxies []string, want []toxiproxy.Toxic) error {
	add := l.Add
	if add == nil {
		add = func(p *toxiproxy.Proxy, t toxiproxy.Toxic) error {
			_, err := p.AddToxic(t.Name, t.Type, t.Stream, t.Toxicity, t.Attributes)
			return err
		}
	}
	ps, err := l.Links.Proxies().Proxies()
	if err != nil {
		return err
	}
	for _, name := range proxies {
		if ps[name] == nil {
			return fmt.Errorf("there is no link %s", name)
		}
		for _, t := range want {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := add(ps[name], t); err != nil {
				return fmt.Errorf("toxic %s on %s: %w", t.Type, name, err)
			}
		}
	}
	return nil
}

// listed compares what toxiproxy lists with what it was asked for.
func (l Link) listed(proxies []string, want []toxiproxy.Toxic) (Evidence, error) {
	ps, err := l.Links.Proxies().Proxies()
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, name := range proxies {
		for _, t := range want {
			i := -1
			if p := ps[name]; p != nil {
				i = slices.IndexFunc(p.ActiveToxics, func(is toxiproxy.Toxic) bool { return is.Name == t.Name })
			}
			if i < 0 {
				return nil, fmt.Errorf("no toxic %s on %s", t.Name, name)
			}
			is := ps[name].ActiveToxics[i]
			text := toxicText(is)
			if text != toxicText(t) || is.Toxicity != t.Toxicity {
				return nil, fmt.Errorf("on %s is %s, not %s", name, text, toxicText(t))
			}
			found[name] = append(found[name], text)
		}
	}
	return Evidence{"toxics": found}, nil
}

// toxicText says a toxic for people, and for comparison: numbers come back from
// the API as other types than they went.
func toxicText(t toxiproxy.Toxic) string {
	var as []string
	for k, v := range t.Attributes {
		if n, ok := v.(float64); ok {
			v = int64(n)
		}
		if fmt.Sprint(v) != "0" { // toxiproxy lists what was left out as 0
			as = append(as, fmt.Sprintf(" %s=%v", k, v))
		}
	}
	slices.Sort(as)
	return t.Type + " " + t.Stream + strings.Join(as, "")
}

// remove takes the toxics off and looks whether they are gone.
func (l Link) remove(proxies []string, want []toxiproxy.Toxic) error {
	client := l.Links.Proxies()
	ours := func(t toxiproxy.Toxic) bool {
		return slices.ContainsFunc(want, func(w toxiproxy.Toxic) bool { return w.Name == t.Name })
	}
	ps, err := client.Proxies()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range proxies {
		if ps[name] == nil {
			continue
		}
		for _, t := range ps[name].ActiveToxics {
			if ours(t) {
				errs = append(errs, ps[name].RemoveToxic(t.Name))
			}
		}
	}
	if ps, err = client.Proxies(); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, name := range proxies {
		if ps[name] != nil && slices.ContainsFunc(ps[name].ActiveToxics, ours) {
			errs = append(errs, fmt.Errorf("a toxic stays on %s", name))
		}
	}
	return errors.Join(errs...)
}

func proxyNames(links Links, ts []Target, to []string) []string {
	var names []string
	for _, t := range ts {
		for _, n := range to {
			names = append(names, links.ProxyName(t.Worker, n))
		}
	}
	return names
}

// calls are requests to toxiproxy, whose client knows no context. They come one
// after the other: what was given up may still act, and whoever heals has to come
// after it.
type calls struct {
	mu     sync.Mutex
	latest chan struct{} // closed when the latest one is over
}

// within runs f after those before it, and does not wait for it longer than ctx
// allows. f is told to leave out what it has not done yet by the end of its ctx.
func (c *calls) within(ctx context.Context, f func(ctx context.Context) error) error {
	over, done := make(chan struct{}), make(chan error, 1)
	c.mu.Lock()
	before := c.latest
	c.latest = over
	c.mu.Unlock()
	go func() {
		defer close(over)
		if before != nil {
			<-before
		}
		done <- f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// linksOf gives the far ends of the links that a step is about.
func linksOf(ctx context.Context, sys System, s Step) ([]string, error) {
	switch s.Links {
	case EveryNode, "":
		return sys.Nodes, nil
	case Store:
		return []string{Store}, nil
	case All:
		return append(slices.Clone(sys.Nodes), Store), nil
	case Leader:
		for {
			l, err := sys.Servers.Leader(ctx)
			if err == nil {
				return []string{l}, nil
			}
			if ctx.Err() != nil {
				return nil, fmt.Errorf("%s on the links to the leader: %w", s.Fault, err)
			}
			wait(ctx, leaderPoll)
		}
	case Majority, Minority:
		n := len(sys.Data)
		first := int(s.Pick % uint64(n))
		take := n/2 + 1
		if s.Links == Minority {
			take = (n - 1) / 2
		}
		return slices.Concat(sys.Data[first:], sys.Data[:first])[:take], nil
	}
	if slices.Contains(sys.Nodes, s.Links) {
		return []string{s.Links}, nil
	}
	return nil, fmt.Errorf("%s: no links %q", s.Fault, s.Links)
}

// linkEntry is what faults on links have in common. toxic gives the toxic of a
// step; on are the links that the plan draws from.
func linkEntry(name, about string, on []string, toxic func(Step) (string, toxiproxy.Attributes), draw func(*rand.Rand, Config, *Step)) Entry {
	return Entry{
		Name: name, About: about, Acts: OnLinks, Aims: workerAims,
		Draw: func(rng *rand.Rand, cfg Config, s *Step) {
			s.Links, s.Way = drawLinks(rng, cfg.Setting, on), Both
			if draw != nil {
				draw(rng, cfg, s)
			}
		},
		New: func(ctx context.Context, sys System, s Step) (Fault, error) {
			to, err := linksOf(ctx, sys, s)
			if err != nil {
				return nil, err
			}
			l := Link{Fault: name, Links: sys.Links, To: to, Way: s.Way}
			l.Type, l.Attributes = toxic(s)
			return l, nil
		},
	}
}

// drawLinks picks one of the choices that make sense: of a single server there
// is no majority, and where nobody leads there is no leader.
func drawLinks(rng *rand.Rand, set Setting, on []string) string {
	on = slices.DeleteFunc(slices.Clone(on), func(l string) bool {
		several := len(set.Data) > 2
		if set.External && (l == Store || l == All) {
			return true // the store is on this machine, and no toxiproxy before it
		}
		return (l == Majority || l == Minority) && !several || l == Leader && !(several && set.Leads)
	})
	return on[rng.IntN(len(on))]
}

// drawWay lets one direction go on now and then: requests that arrive and are
// never answered leave locks that nobody knows of.
func drawWay(rng *rand.Rand, _ Config, s *Step) {
	s.Way = []string{Both, Both, Requests, Replies}[rng.IntN(4)]
}
