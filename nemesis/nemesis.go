// Package nemesis breaks things while workers hold locks. A fault is something
// that was done and can be proved, not something that was asked for: it has
// evidence, read back by another route than the injection, and a heal that can
// be called any number of times.
//
// It knows processes, nodes and links, not locks; what a target holds it is
// told by the System. It draws nothing while a run goes on: the plan does.
package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"

	"github.com/lockcheck/lockcheck/nemesis/skew"
)

// A Target is a worker or a server node that a fault acts on, as it is at this
// moment.
type Target struct {
	Worker  int      // its place, from 0
	Process int64    // its number in the history
	Grants  []uint64 // that it holds

	Node string // of a server; a worker's is empty

	// OS is the leader of a worker's process group, since a worker may have
	// children; a server is one process. It is nil for a server that is down.
	OS *os.Process
}

func (t Target) String() string {
	if t.Node != "" {
		return t.Node
	}
	return fmt.Sprintf("worker %d", t.Worker)
}

// A System is what the faults act on. What is nil cannot be acted on.
type System struct {
	Setting
	Workers Workers
	Servers Servers
	Network Network
	Links   Links
	Boxes   Boxes // nil unless the servers are in containers
	Clocks  Clocks
}

// Workers are the processes under the runner.
type Workers interface {
	// Workers gives the workers that are alive, in order.
	Workers() []Target
}

// Servers are the processes of the nodes.
type Servers interface {
	// Pid is the process of a node, or an error while it is down.
	Pid(node string) (int, error)
	// Leader is the node that leads, as the servers themselves say.
	Leader(ctx context.Context) (string, error)
	Kill(node string) error
	// Restart starts nodes that are down and waits until they serve.
	Restart(ctx context.Context, keepData bool, nodes ...string) error
	// DataID changes when a node's data is lost.
	DataID(node string) (string, error)
	// HandOver asks the leader to let another one lead.
	HandOver(ctx context.Context) error
}

// Network is what lies between the nodes.
type Network interface {
	// Cut makes a node deaf to others: their packets are lost as they arrive.
	Cut(node string, from ...string) error
	// HealCuts ends every cut. It is idempotent.
	HealCuts() error
	// Dropped counts the packets that the cuts at a node have lost, by sender.
	Dropped(node string) (map[string]uint64, error)
}

// Links lie between a worker and each node, and the store: one toxiproxy each.
type Links interface {
	Proxies() *toxiproxy.Client
	ProxyName(worker int, node string) string
}

// Clocks are those of the processes under test.
type Clocks interface {
	// Clock is the control of a target's clock, which stays when its process is
	// replaced; an error if the target was started without one.
	Clock(t Target) (*skew.Control, error)
	// Told is the time of day by a server's own word, and how coarse that is. It
	// is an ErrUntold where the server cannot be asked.
	Told(ctx context.Context, node string) (t time.Time, coarse time.Duration, err error)
}

// ErrUntold says that a server tells nobody what time it is.
var ErrUntold = errors.New("the server does not tell the time")

// Evidence is what was read back, for the history.
type Evidence map[string]any

// Heal undoes a fault. It is idempotent, it may be called although the run was
// cancelled, and it says what it found.
type Heal func(context.Context) (Evidence, error)

// A Fault is one fault, ready to be put in force.
type Fault interface {
	// Name is how the command line and the history call it.
	Name() string
	// Inject puts the fault in force on the targets and proves it. An error
	// means that nothing is in force: what was done halfway has been undone.
	Inject(ctx context.Context, targets []Target) (Evidence, Heal, error)
}

// nothing is the heal of a fault that is over when it is done.
func nothing(context.Context) (Evidence, error) { return nil, nil }

const (
	// provedWithin bounds the wait for a signal to show in /proc, and an undoing.
	provedWithin = 2 * time.Second
	// RestartWithin bounds a heal that starts servers: on a busy machine a Java
	// server takes its time, and a quorum may have to form.
	RestartWithin = time.Minute
)

// undone heals what was done halfway, although ctx may be over, and joins what
// came of that to the reason.
func undone(ctx context.Context, heal Heal, within time.Duration, why error) error {
	hctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	_, err := heal(hctx)
	if err != nil {
		err = fmt.Errorf("and what was done halfway could not be undone: %w", err)
	}
	return errors.Join(why, err)
}

// poll calls f every millisecond until it is true or the time is over.
func poll(ctx context.Context, within time.Duration, f func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		ok, err := f()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// wait is a pause that ends early with ctx.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
