package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// What a server that is killed finds when it is started again.
const (
	Keep = "keep" // its data
	Lose = "lose" // nothing
)

var serverKillEntry = Entry{
	Name:  "server-kill",
	About: "kill servers (SIGKILL) and start them again later, with their data (keep) or without (lose)",
	Acts:  OnNodes,
	Aims:  nodeAims,
	Forms: []string{Keep, Lose},
	Possible: func(set Setting, form string) error {
		if form == Keep && !set.Durable {
			return fmt.Errorf("server-kill:keep cannot work on %s as it is: a server that is restarted has lost its data (use --persistence aof, or server-kill:lose)", set.Backend)
		}
		return nil
	},
	New: func(_ context.Context, sys System, s Step) (Fault, error) {
		return ServerKill{Servers: sys.Servers, Boxes: sys.Boxes, Keep: s.Form != Lose}, nil
	},
}

// ServerKill ends server processes with SIGKILL. The heal starts them again, all
// at once, since one alone may wait for the others.
type ServerKill struct {
	Servers Servers
	Boxes   Boxes // of servers in containers; else nil
	Keep    bool
	// Kill replaces what kills, for the test.
	Kill func(node string) error
}

// Name is "server-kill".
func (ServerKill) Name() string { return serverKillEntry.Name }

// A before is what a server was when it was killed.
type before struct {
	t    Target
	data string
}

// Inject kills the targets. The evidence is that the kernel no longer takes a
// signal for them. What became of the data shows when they are back.
func (k ServerKill) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	kill := k.Kill
	if kill == nil {
		kill = k.Servers.Kill
	}
	var killed []before
	heal := func(hctx context.Context) (Evidence, error) { return k.restart(hctx, killed) }
	for _, t := range ts {
		data, err := k.Servers.DataID(t.Node)
		if err == nil {
			killed = append(killed, before{t, data})
			err = kill(t.Node)
		}
		if err == nil {
			err = ended(ctx, k.Boxes, t)
		}
		if err != nil {
			return nil, nil, undone(ctx, heal, RestartWithin, fmt.Errorf("kill %v: %w", t, err))
		}
	}
	form := Lose
	if k.Keep {
		form = Keep
	}
	return Evidence{"gone": true, "pids": pids(ts), "form": form}, heal, nil
}

// restart starts what is down again, and says what came of the data.
func (k ServerKill) restart(ctx context.Context, killed []before) (Evidence, error) {
	var nodes []string
	for _, b := range killed {
		nodes = append(nodes, b.t.Node)
	}
	if err := startAgain(ctx, k.Servers, k.Keep, nodes); err != nil {
		return nil, err
	}
	ev := Evidence{}
	var errs []error
	for _, b := range killed {
		pid, err := k.Servers.Pid(b.t.Node)
		var data string
		if err == nil {
			data, err = k.Servers.DataID(b.t.Node)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%v after its restart: %w", b.t, err))
			continue
		}
		kept := Keep
		if data != b.data {
			kept = Lose
		}
		if pid != b.t.OS.Pid && (kept == Keep) != k.Keep {
			errs = append(errs, fmt.Errorf("%v was to %s its data and did not", b.t, map[bool]string{true: Keep, false: Lose}[k.Keep]))
		}
		ev[b.t.Node] = Evidence{"pid_before": b.t.OS.Pid, "pid_after": pid, "data": kept}
	}
	return ev, errors.Join(errs...)
}

// startAgain starts those of the nodes that are down.
func startAgain(ctx context.Context, servers Servers, keep bool, nodes []string) error {
	down := slices.DeleteFunc(nodes, func(n string) bool {
		_, err := servers.Pid(n)
		return err == nil
	})
	if len(down) == 0 {
		return nil
	}
	return servers.Restart(ctx, keep, down...)
}
