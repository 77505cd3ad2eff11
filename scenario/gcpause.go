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
	late, err := s.stopAtWrite(ctx)
	if err != nil {
		return err
	}
	defer late.pause.Heal(ctx)
	gb, err := s.work(ctx, b)
	if err != nil {
		return err
	}
	// so that the pause outlives the TTL even where B came in earlier
	if err := late.wakeAfter(ctx, s, s.TTL+s.TTL/4); err != nil {
		return err
	}
	return s.farewell(ctx, map[int]uint64{a: late.grant, b: gb})
}

// A belated is a write of A's that was decided on when A was stopped.
type belated struct {
	grant   uint64
	pause   *runner.Injection
	stopped time.Time
	write   *runner.Open
}

// stopAtWrite lets A take the lock, read, look that it has it, and be stopped before
// its write leaves.
func (s *Stage) stopAtWrite(ctx context.Context) (l belated, err error) {
	if l.grant, err = s.acquire(ctx, a); err != nil {
		return l, err
	}
	value, err := s.read(ctx, a, l.grant)
	if err == nil {
		err = s.check(ctx, a, l.grant)
	}
	if err == nil {
		l.pause, err = s.pause(ctx, a)
	}
	if err != nil {
		return l, err
	}
	l.stopped = time.Now()
	// The command waits in the pipe of the stopped process, as a write that a
	// program had decided on waits for the end of the collection.
	l.write, err = s.Runner.Worker(a).Begin(runner.Call{F: history.Write, Key: s.Key, Grant: l.grant, Value: value + 1, Timeout: 2 * patience})
	if err != nil {
		l.pause.Heal(ctx)
	}
	return l, err
}

// wakeAfter lets A go on when it has been stopped for that long, and waits for what
// becomes of its write.
func (l *belated) wakeAfter(ctx context.Context, s *Stage, long time.Duration) error {
	if err := s.sleep(ctx, time.Until(l.stopped.Add(long))); err != nil {
		return err
	}
	l.pause.Heal(ctx)
	_, err := l.write.Wait(ctx)
	return err
}
