package scenario

import (
	"context"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/runner"
)

// told are stories that the public reports tell; the others of theirs are among
// the planted ones.
var told = []Scenario{
	{
		Name: "payout", Workers: 4, Require: required, Faults: []string{"pause"},
		About: "A reads, and is stopped for up to four TTLs; one to three others take the lock in turn and write; A wakes, writes and releases",
		Run:   playPayout,
	}, {
		Name: "overrun-unlock", Workers: 3, Require: checker.DefaultRequired, Backends: singles,
		About: "A's section outlasts its lease, B takes the lock, A releases; C tries while B holds",
		Run:   story(playOverrunUnlock),
	}, {
		Name: "late-unlock", Workers: 3, Require: checker.DefaultRequired, Faults: []string{"slow"}, Backends: singles,
		About: "A's release leaves in time and arrives after the end of its lease; B takes the lock in between, C tries while B holds",
		Run:   story(playLateUnlock),
	}, {
		Name: "slow-unlock-3", Workers: 3, Require: checker.DefaultRequired, Faults: []string{"slow"}, Backends: singles,
		About: "slow-unlock for a release of three requests: the second of them arrives before the end of A's lease, the third after it",
		Run:   story(func(ctx context.Context, s *Stage) error { return s.slowUnlock(ctx, s.TTL*3/7, 2) }),
	}, {
		Name: "missed-renewal", Workers: 2, Require: append([]string{checker.Exclusion}, checker.DefaultRequired...), Faults: []string{"client-cut"}, Backends: singles,
		About: "A renews in the background; one renewal fails and the next could succeed; A's section goes on for three TTLs, and B tries all the time",
		Run:   story(playMissedRenewal),
	}, {
		Name: "cut-acquiring", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"client-cut"}, Backends: singles,
		About: "A's connection ends when its first request has arrived and before a second one could; A lives; B tries",
		Run:   story(cutAcquiring(0)),
	}, {
		Name: "cut-releasing", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"client-cut"},
		About: "A's release has arrived, B has the lock, and A's connection ends before A hears of it; what A's library makes of that is in the history",
		Run:   story(playCutReleasing),
	}, {
		Name: "write-between", Workers: 2, Require: required, Faults: []string{"pause"},
		About: "A reads and is stopped past its TTL; B takes the lock and reads; A wakes and writes; B writes",
		Run:   playWriteBetween,
	},
}

func playPayout(ctx context.Context, s *Stage) error {
	late, err := s.stopAtWrite(ctx)
	if err != nil {
		return err
	}
	defer late.pause.Heal(ctx)
	length := s.TTL*5/4 + time.Duration(s.Rand.Int64N(int64(s.TTL)*11/4))
	others := 1 + s.Rand.IntN(3)
	grants := map[int]uint64{a: late.grant}
	for i := 1; i <= others; i++ {
		g, err := s.work(ctx, i)
		if err != nil {
			return err
		}
		if i < others || s.Rand.IntN(2) == 0 { // the last one may still hold it when A wakes
			err = s.release(ctx, i, g)
		} else {
			grants[i] = g
		}
		if err != nil {
			return err
		}
	}
	if err := late.wakeAfter(ctx, s, length); err != nil {
		return err
	}
	if err := s.release(ctx, a, late.grant); err != nil {
		return err
	}
	return s.partAll(ctx, grants)
}

// partAll lets each worker release what it has, and ends all sessions.
func (s *Stage) partAll(ctx context.Context, grants map[int]uint64) error {
	for i, g := range grants {
		if err := s.release(ctx, i, g); err != nil {
			return err
		}
	}
	return s.part(ctx)
}

func playOverrunUnlock(ctx context.Context, s *Stage) error {
	ga, err := s.take(ctx, a)
	if err != nil {
		return err
	}
	gb, err := s.take(ctx, b)
	if err != nil {
		return err
	}
	if err := s.unlock(ctx, a, ga); err != nil {
		return err
	}
	return s.intrude(ctx, gb)
}

// playLateUnlock plays its part again if B came only after A's release had arrived.
func playLateUnlock(ctx context.Context, s *Stage) error {
	return s.slowUnlock(ctx, s.TTL*8/5, 0)
}

// slowUnlock slows A's requests down, each by that much, and lets A release. As
// many of them as are to come in time do so before A's lease is over, or the part
// is played again.
func (s *Stage) slowUnlock(ctx context.Context, by time.Duration, inTime int) error {
	return again(func() (late bool, err error) {
		ga, err := s.take(ctx, a)
		if err != nil {
			return false, err
		}
		begun := time.Now()
		slow, err := s.slow(ctx, a, nemesis.Requests, by)
		if err != nil {
			return false, err
		}
		defer slow.Heal(ctx)
		release, err := s.Runner.Worker(a).Begin(runner.Call{F: history.Release, Key: s.Key, Grant: ga})
		if err != nil {
			return false, err
		}
		late = time.Since(begun) > (s.TTL-time.Duration(inTime)*by)*3/4
		gb, err := s.take(ctx, b)
		if err != nil {
			return false, err
		}
		late = late || time.Since(begun) > time.Duration(inTime+1)*by-s.TTL/25 // A's last request is there already
		if _, err := release.Wait(ctx); err != nil {
			return false, err
		}
		return late, s.intrude(ctx, gb)
	})
}

func playMissedRenewal(ctx context.Context, s *Stage) error {
	ga, err := s.take(ctx, a)
	if err != nil {
		return err
	}
	// The renewal at a third of the TTL is lost, the one at two thirds could arrive.
	cut, err := s.fault(ctx, nemesis.Step{Fault: "client-cut", Target: name(a), Links: nemesis.EveryNode, Way: nemesis.Both})
	if err != nil {
		return err
	}
	defer cut.Heal(ctx)
	if err := s.sleep(ctx, s.TTL/2); err != nil {
		return err
	}
	cut.Heal(ctx)
	other, _, err := s.countEarly(ctx, 3*s.TTL)
	if err != nil {
		return err
	}
	if err := s.unlock(ctx, a, ga); err != nil {
		return err
	}
	gb, err := other.wait()
	if err != nil {
		return err
	}
	return s.unlock(ctx, b, gb)
}

// playCutReleasing is for libraries that send a release again by themselves: the
// second one finds nothing, and proves nothing.
func playCutReleasing(ctx context.Context, s *Stage) error {
	return again(func() (late bool, err error) {
		ga, err := s.take(ctx, a)
		if err != nil {
			return false, err
		}
		cut, err := s.unanswered(ctx, a)
		if err != nil {
			return false, err
		}
		defer cut.Heal(ctx)
		begun := time.Now()
		release, err := s.Runner.Worker(a).Begin(runner.Call{F: history.Release, Key: s.Key, Grant: ga})
		if err != nil {
			return false, err
		}
		gb, err := s.take(ctx, b)
		if err != nil {
			return false, err
		}
		late = time.Since(begun) > min(silence, s.TTL/2) // B may have it because A's lease is over
		cut.Heal(ctx)
		if _, err := release.Wait(ctx); err != nil {
			return false, err
		}
		return late, s.unlock(ctx, b, gb)
	})
}

func playWriteBetween(ctx context.Context, s *Stage) error {
	late, err := s.stopAtWrite(ctx)
	if err != nil {
		return err
	}
	defer late.pause.Heal(ctx)
	gb, err := s.acquire(ctx, b)
	if err != nil {
		return err
	}
	seen, err := s.read(ctx, b, gb)
	if err != nil {
		return err
	}
	if err := late.wakeAfter(ctx, s, 0); err != nil {
		return err
	}
	if err := s.write(ctx, b, gb, seen+1); err != nil {
		return err
	}
	return s.partAll(ctx, map[int]uint64{a: late.grant, b: gb})
}
