package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
)

var slowRedlock = Scenario{
	Name:        "slow-redlock",
	About:       "A's links are so slow that acquiring eats more than half of the validity; B waits for what is left of it; then they are slower than the TTL, and A must get nothing",
	Workers:     2,
	Backends:    []string{"redlock"},
	Faults:      []string{"slow"},
	Require:     required,
	NodeTimeout: true,
	Run:         playSlowRedlock,
	Theory: func(c Case) Expectation {
		e := Expectation{Verdicts: held(c), Seen: map[string]Amount{"late_grants": none, "acquires_failed": atLeastOne}}
		// A goes on after its lease, as every holder may that does not look.
		e.Verdicts[checker.Exclusion] = checker.Invalid
		return e
	},
}

func playSlowRedlock(ctx context.Context, s *Stage) error {
	slow := func(share float64) nemesis.Step { // of the TTL, there and back
		return nemesis.Step{Fault: "slow", Target: "w0", Links: nemesis.EveryNode, Way: nemesis.Both, Latency: time.Duration(share / 2 * float64(s.TTL))}
	}
	half, err := s.fault(ctx, slow(0.6))
	if err != nil {
		return err
	}
	ga, err := s.acquire(ctx, a)
	if err != nil {
		return err
	}
	gb, err := s.work(ctx, b)
	if err != nil {
		return err
	}
	half.Heal(ctx)
	for i, g := range []uint64{ga, gb} {
		if err := s.release(ctx, i, g); err != nil {
			return err
		}
	}
	whole, err := s.fault(ctx, slow(1.2))
	if err != nil {
		return err
	}
	d, err := s.try(ctx, a)
	if err != nil {
		return err
	}
	if d.Type == history.OK {
		return fmt.Errorf("worker %d was granted a lock over links that are slower than its TTL", a)
	}
	whole.Heal(ctx)
	if ga, _, err = s.begin(ctx, a); err != nil {
		return err
	}
	return s.farewell(ctx, map[int]uint64{a: ga, b: gb})
}
