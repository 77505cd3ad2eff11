package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
)

// onWallClock reports whether a backend's locks end by the time of day of its
// servers. ZooKeeper's sessions and etcd's leases end by monotonic clocks.
func onWallClock(backend string) bool {
	return backend != cluster.ZooKeeper && backend != cluster.Etcd
}

var clockJump = Scenario{
	Name:     "clock-jump",
	About:    "A takes the lock, of five Redlock servers with all and then with the barest majority; the clock of the server that keeps it (one server of Redlock, all of ZooKeeper and etcd) jumps ahead by twice the TTL, and B asks within the lease",
	Workers:  2,
	Faults:   []string{"clock-jump:server"},
	FaultsOn: map[string][]string{cluster.Redlock: {"client-cut"}},
	Require:  required,
	TTL:      longLease,
	Run:      playClockJump,
	Theory: func(c Case) Expectation {
		e := Expectation{Verdicts: held(c), Seen: map[string]Amount{"stale_writes_applied": none}}
		if onWallClock(c.Backend) { // A's lease is not over, and its write comes after B's
			e = lateWriteOf(c)
			e.Verdicts[checker.Lease] = checker.Invalid
		}
		e.Seen["clock_jumps_while_held"] = atLeastOne
		if c.Backend == cluster.Redlock { // one server of five
			e.Seen["acquires_failed"] = atLeastOne
		}
		return e
	},
}

// expiryLooks is how long a lock is tried for under a clock that does not end it:
// etcd and ZooKeeper look for what has expired several times a second.
const expiryLooks = 2 * time.Second

func playClockJump(ctx context.Context, s *Stage) error {
	if err := s.once(ctx, b); err != nil {
		return err
	}
	if s.Setting.Backend == cluster.Redlock {
		if err := s.jumpInFullQuorum(ctx); err != nil {
			return err
		}
	}
	ga, value, err := s.begin(ctx, a)
	if err != nil {
		return err
	}
	if _, err := s.jump(ctx, s.keepers(), 2*s.TTL); err != nil {
		return err
	}
	if onWallClock(s.Setting.Backend) {
		return s.secondHolder(ctx, ga, value)
	}
	gb, err := s.tryFor(ctx, b, expiryLooks)
	if err != nil {
		return err
	}
	if gb == 0 {
		return s.secondHolder(ctx, ga, value)
	}
	if _, err := s.goOn(ctx, b, gb); err != nil {
		return err
	}
	return s.farewell(ctx, map[int]uint64{a: ga, b: gb})
}

// jumpInFullQuorum has the clock of one server jump while A holds the lock on all
// of them: B gets that one, and no quorum. Then A is left with the barest
// majority, the server of which the clock is to jump among it.
func (s *Stage) jumpInFullQuorum(ctx context.Context) error {
	g, err := s.acquire(ctx, a)
	if err != nil {
		return err
	}
	in, err := s.jump(ctx, s.keepers(), 2*s.TTL)
	if err != nil {
		return err
	}
	d, err := s.try(ctx, b)
	if err != nil {
		return err
	}
	in.Heal(ctx)
	if d.Type == history.OK { // a finding; the story goes on
		if err := s.release(ctx, b, d.Grant); err != nil {
			return err
		}
	}
	if err := s.release(ctx, a, g); err != nil {
		return err
	}
	for _, n := range s.Setting.Data[len(s.Setting.Data)/2+1:] {
		if _, err := s.fault(ctx, nemesis.Step{Fault: "client-cut", Target: "w0", Links: n, Way: nemesis.Both}); err != nil {
			return err
		}
	}
	return nil
}

// keepers are the servers whose clock is to go wrong: the one that decides where
// one does, one server of Redlock, and all where none should matter.
func (s *Stage) keepers() string {
	switch s.Setting.Backend {
	case cluster.Redis, cluster.Sentinel:
		return nemesis.Leader
	case cluster.Redlock:
		return s.Setting.Data[0]
	}
	return nemesis.All
}

var clockBack = Scenario{
	Name:    "clock-back",
	About:   "the clocks of the servers (a majority of Redlock's, the leader of redis, all of ZooKeeper and etcd) are an hour ahead; A takes the lock and dies; the clocks are set right, an hour back, and B tries",
	Workers: 2,
	Faults:  []string{"clock-jump:server", "kill"},
	Require: append([]string{checker.Progress}, required...),
	Run:     playClockBack,
	Theory: func(c Case) Expectation {
		e := Expectation{Verdicts: held(c), Seen: map[string]Amount{"stale_writes_applied": none}}
		e.Verdicts[checker.Progress] = checker.Valid
		if onWallClock(c.Backend) {
			e.Verdicts[checker.Progress] = checker.Invalid
		}
		return e
	},
}

func playClockBack(ctx context.Context, s *Stage) error {
	if err := s.ordinary(ctx); err != nil {
		return err
	}
	who := s.keepers()
	if s.Setting.Backend == cluster.Redlock {
		who = nemesis.Majority
	}
	ahead, err := s.jump(ctx, who, time.Hour)
	if err != nil {
		return err
	}
	g, err := s.take(ctx, a)
	if err != nil {
		return err
	}
	if err := s.count(ctx, a, g); err != nil {
		return err
	}
	if err := s.kill(ctx, a); err != nil {
		return err
	}
	ahead.Heal(ctx)
	if err := s.turn(ctx, b); err != nil && !errors.Is(err, errNobody) {
		return err
	}
	return s.part(ctx)
}
