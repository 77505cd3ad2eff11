package scenario

import (
	"context"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/runner"
)

var gcPause = Scenario{
	Name:    "gc-pause",
	About:   "A is stopped between its check and its write for longer than the TTL; B takes the lock and writes twice; A wakes and its write goes out",
	Workers: 2,
	Require: required,
	Run:     playGCPause,
	Theory: func(c Case) Expectation {
		e := lateWriteOf(c)
		e.Seen["pauses_over_lease"] = atLeastOne
		return e
	},
}

func playGCPause(ctx context.Context, s *Stage) error {
	ga, err := s.acquire(ctx, a)
	if err != nil {
		return err
	}
	value, err := s.read(ctx, a, ga)
	if err != nil {
		return err
	}
	if err := s.check(ctx, a, ga); err != nil {
		return err
	}
	pause, err := s.pause(ctx, a)
	if err != nil {
		return err
	}
	defer pause.Heal(ctx)
	stopped := time.Now()
	// The command waits in the pipe of the stopped process, as a write that a
	// program had decided on waits for the end of the collection.
	late, err := s.Runner.Worker(a).Begin(runner.Call{F: history.Write, Key: s.Key, Grant: ga, Value: value + 1, Timeout: 2 * patience})
	if err != nil {
		return err
	}
	gb, err := s.work(ctx, b)
	if err != nil {
		return err
	}
	select { // so that the pause outlives the TTL even where B came in earlier
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(stopped.Add(s.TTL + s.TTL/4))):
	}
	pause.Heal(ctx)
	if _, err := late.Wait(ctx); err != nil {
		return err
	}
	return s.farewell(ctx, map[int]uint64{a: ga, b: gb})
}
