package nemesis

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Forms of a failover.
const (
	HandOver   = "handover" // the leader is asked to let another one lead
	LoseKilled = "kill"     // the leader is killed, and restarted with the heal
	LosePaused = "pause"    // the leader is stopped, and continued with the heal
)

var failoverEntry = Entry{
	Name:  "failover",
	About: "another server leads: the leader hands over (Sentinel promotes a replica, etcd moves its leader), or is killed, or stopped",
	Acts:  OnNodes,
	Aims:  []string{Leader},
	Forms: []string{HandOver, LoseKilled, LosePaused},
	Once:  func(form string) bool { return form == HandOver },
	Possible: func(set Setting, form string) error {
		switch {
		case !set.Elects:
			return fmt.Errorf("failover cannot work on %s: no server takes another's place", set.Backend)
		case form == HandOver && !set.HandsOver:
			return fmt.Errorf("failover:handover cannot work on %s: its leader cannot be asked to step down (use failover:kill or failover:pause)", set.Backend)
		}
		return nil
	},
	New: func(_ context.Context, sys System, s Step) (Fault, error) {
		return Failover{Servers: sys.Servers, Boxes: sys.Boxes, Form: s.Form}, nil
	},
}

// Failover makes another server lead.
type Failover struct {
	Servers Servers
	Boxes   Boxes // of servers in containers; else nil
	Form    string
	// Act replaces what takes the lead away, for the test.
	Act func(context.Context) error
}

// Name is "failover".
func (Failover) Name() string { return failoverEntry.Name }

// Inject takes the lead away from the leader. The evidence is that the servers
// name another one.
func (f Failover) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	old := ts[0]
	act, heal := f.mechanism(old)
	if f.Act != nil {
		act = f.Act
	}
	if err := act(ctx); err != nil {
		return nil, nil, undone(ctx, heal, RestartWithin, fmt.Errorf("failover from %v: %w", old, err))
	}
	for {
		now, err := f.Servers.Leader(ctx)
		if err == nil && now != old.Node {
			return Evidence{"form": f.Form, "from": old.Node, "to": now}, heal, nil
		}
		if ctx.Err() != nil {
			if err == nil {
				err = fmt.Errorf("%s still leads", now)
			}
			return nil, nil, undone(ctx, heal, RestartWithin, fmt.Errorf("failover from %v: %w", old, err))
		}
		wait(ctx, leaderPoll)
	}
}

// mechanism gives what takes the lead away, and what undoes that.
func (f Failover) mechanism(old Target) (act func(context.Context) error, heal Heal) {
	switch f.Form {
	case LoseKilled:
		act = func(ctx context.Context) error {
			return errors.Join(f.Servers.Kill(old.Node), ended(ctx, f.Boxes, old))
		}
		return act, func(ctx context.Context) (Evidence, error) {
			return nil, startAgain(ctx, f.Servers, true, []string{old.Node})
		}
	case LosePaused:
		if f.Boxes != nil {
			act = func(ctx context.Context) error { return f.Boxes.Freeze(ctx, old.Node) }
			return act, func(ctx context.Context) (Evidence, error) { return nil, thawBox(ctx, f.Boxes, old) }
		}
		act = func(context.Context) error { return signalOne(old.OS, syscall.SIGSTOP) }
		return act, func(ctx context.Context) (Evidence, error) {
			return nil, thaw(ctx, old, signalOne, halted)
		}
	}
	return f.Servers.HandOver, nothing
}
