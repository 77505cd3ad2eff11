package local

import (
	"fmt"

	"github.com/vishvananda/netns"
)

// rules are packet rules in a network namespace that somebody else has made. They
// are put in and taken out through a socket that is opened for the occasion: the
// namespace is not ours to keep alive.
type rules struct{ name, file string }

func newRules(name, file string) cutter { return rules{name, file} }

func (r rules) drop(from []peer) error {
	return r.with(func(h *labHost) error { return h.drop(from) })
}

func (r rules) undrop() error { return r.with((*labHost).undrop) }

func (r rules) dropped() (ds []Dropped, err error) {
	err = r.with(func(h *labHost) error {
		ds, err = h.dropped()
		return err
	})
	return ds, err
}

// with runs f on the namespace as on a lab's.
func (r rules) with(f func(*labHost) error) error {
	root, err := currentNS()
	if err != nil {
		return fmt.Errorf("open this network namespace: %w", err)
	}
	defer root.Close()
	ns, err := netns.GetFromPath(r.file)
	if err != nil {
		return fmt.Errorf("open the network namespace of %s: %w", r.name, err)
	}
	defer ns.Close()
	h := &labHost{b: &bridge{root: root}, name: r.name, ns: ns}
	defer func() {
		if h.nft != nil {
			_ = h.nft.CloseLasting() // nothing is left to be said on it
		}
	}()
	return f(h)
}
