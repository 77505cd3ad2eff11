package nemesis

import (
	"context"
	"os"
	"syscall"
)

var serverPauseEntry = Entry{
	Name:  "server-pause",
	About: "stop servers (SIGSTOP) and continue them later; what was sent to them waits in their sockets",
	Acts:  OnNodes,
	Aims:  nodeAims,
	New: func(_ context.Context, sys System, _ Step) (Fault, error) {
		return ServerPause{Boxes: sys.Boxes}, nil
	},
}

// nodeAims are the targets of a fault on server processes.
var nodeAims = []string{Leader, Random, Majority, Minority, All}

// ServerPause stops server processes with SIGSTOP; the heal is SIGCONT. They
// keep their connections, and what is sent to them is answered later.
type ServerPause struct {
	Boxes Boxes // of servers in containers, which are stopped as a whole; else nil
	// Stop replaces the signal that stops, for the test.
	Stop func(*os.Process) error
}

// Name is "server-pause".
func (ServerPause) Name() string { return serverPauseEntry.Name }

// Inject stops the targets. The evidence is the state that the kernel shows for
// every thread of each server: T.
func (p ServerPause) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	if p.Boxes != nil {
		return freezeBoxes(ctx, p.Boxes, ts, nil)
	}
	return freeze(ctx, ts, p.Stop, signalOne, halted)
}

// signalOne sends sig to one process: a server is no group's leader.
func signalOne(p *os.Process, sig syscall.Signal) error { return p.Signal(sig) }
