package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/runner"
)

var minorityLeader = Scenario{
	Name:     "minority-leader",
	About:    "the leader is cut off from the other servers with the holder A on its side; the others elect another, B takes the lock there and writes; A, told nothing, writes",
	Workers:  2,
	Backends: []string{"zookeeper", "etcd"},
	Faults:   []string{"down", "partition:leader"},
	Require:  required,
	TTL:      2 * time.Second,
	Run:      playMinorityLeader,
	Theory: func(c Case) Expectation {
		e := lateWriteOf(c)
		// Without a fence A's write is applied, which the token shows.
		if !c.Fence {
			e.Verdicts[checker.Fencing] = checker.Invalid
		}
		return e
	},
}

func playMinorityLeader(ctx context.Context, s *Stage) error {
	leader, err := s.leader(ctx, "")
	if err != nil {
		return err
	}
	for _, n := range s.others(leader) { // A reaches the leader only, B all but the leader
		if _, err := s.fault(ctx, nemesis.Step{Fault: "down", Target: "w0", Links: n}); err != nil {
			return err
		}
	}
	if _, err := s.fault(ctx, nemesis.Step{Fault: "down", Target: "w1", Links: leader}); err != nil {
		return err
	}
	ga, value, err := s.begin(ctx, a)
	if err != nil {
		return err
	}
	if _, err := s.fault(ctx, nemesis.Step{Fault: "partition", Form: nemesis.Alone, Target: leader, Way: nemesis.Both}); err != nil {
		return err
	}
	gb, err := s.work(ctx, b)
	if err != nil {
		return err
	}
	// A client that was told that the lock is lost writes nothing, and is right.
	if err := s.write(ctx, a, ga, value+1); err != nil && !errors.Is(err, runner.ErrLost) {
		return err
	}
	s.heal(ctx)
	return s.farewell(ctx, map[int]uint64{a: ga, b: gb})
}
