package scenario

import (
	"context"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/runner"
)

var lateWrite = Scenario{
	Name:    "late-write",
	About:   "A writes, and its network holds the bytes, renewals and all; B takes the lock and writes twice; A's write arrives over the same connection",
	Workers: 2,
	Faults:  []string{"late"},
	Require: required,
	Run:     playLateWrite,
	Theory: func(c Case) Expectation {
		e := lateWriteOf(c)
		e.Seen["faults_over_hold"] = one
		return e
	},
}

func playLateWrite(ctx context.Context, s *Stage) error {
	ga, err := s.acquire(ctx, a)
	if err != nil {
		return err
	}
	if err := s.check(ctx, a, ga); err != nil {
		return err
	}
	value, err := s.read(ctx, a, ga)
	if err != nil {
		return err
	}
	held, err := s.fault(ctx, nemesis.Step{Fault: "late", Target: "w0", Links: nemesis.All, Way: nemesis.Both})
	if err != nil {
		return err
	}
	begun := time.Now()
	late, err := s.Runner.Worker(a).Begin(runner.Call{F: history.Write, Key: s.Key, Grant: ga, Value: value + 1, Timeout: 2 * patience})
	if err != nil {
		return err
	}
	gb, err := s.work(ctx, b)
	if err != nil {
		return err
	}
	if err := s.sleep(ctx, time.Until(begun.Add(s.TTL+s.TTL/4))); err != nil {
		return err
	}
	held.Heal(ctx)
	if _, err := late.Wait(ctx); err != nil {
		return err
	}
	return s.farewell(ctx, map[int]uint64{a: ga, b: gb})
}
