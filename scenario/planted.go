package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/runner"
)

// planted are the stories in which a certain mistake of a lock shows, and in
// which a lock without it comes out clean. They wait for conditions, not for
// luck: where a moment can be missed they play the part again.
var planted = []Scenario{
	{
		Name: "unsafe-unlock", Workers: 3, Require: checker.DefaultRequired, Faults: []string{"pause"},
		About: "A is stopped past its TTL, B takes the lock, A wakes and releases; C tries while B holds",
		Run:   story(playUnsafeUnlock),
	}, {
		Name: "slow-unlock", Workers: 3, Require: checker.DefaultRequired, Faults: []string{"slow"}, Backends: singles,
		About: "what A says arrives late: its release arrives before the end of its lease, a second request of it would arrive after; B takes the lock in between, C tries while B holds",
		Run:   story(playSlowUnlock),
	}, {
		Name: "killed-acquiring", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"client-cut", "kill"}, Backends: singles,
		About: "A is killed when it has taken the lock and has not heard of it; B tries",
		Run:   story(playKilledAcquiring),
	}, {
		Name: "take-turns", Workers: 2, Require: checker.DefaultRequired,
		About:   "A and B take the lock in turn, and by A's clock it is ten seconds later",
		Options: map[string]string{"clock-offsets": "10s,0s"},
		Run:     story(playTakeTurns),
	}, {
		Name: "late-renewal", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"pause"},
		About: "A is stopped past its TTL; it renews while B holds, and again when B has released",
		Run:   story(playLateRenewal),
	}, {
		Name: "split-links", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"client-cut"}, Backends: []string{cluster.Redlock},
		About: "A reaches two servers of five and tries; B reaches all and tries",
		Run:   story(playSplitLinks),
	}, {
		Name: "slow-acquire", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"slow"}, Backends: []string{cluster.Redlock},
		About:       "A's acquire takes more than half of its TTL; B takes the lock when the servers have let A's go",
		NodeTimeout: true,
		Run:         story(playSlowAcquire),
	}, {
		Name: "partial-rounds", Workers: 3, Require: checker.DefaultRequired, Faults: []string{"client-cut"}, Backends: []string{cluster.Redlock},
		About: "A and C each reach two servers of five and try, then B tries; everything is healed, and all go on trying",
		Run:   story(playPartialRounds),
	}, {
		Name: "uneven-counters", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"client-cut"}, Backends: []string{cluster.Redlock},
		About: "A reaches two servers of five and tries five times, then reaches all and is granted; then B reaches the other three and is granted",
		Run:   story(playUnevenCounters),
	}, {
		Name: "etcd-waiter", Workers: 3, Require: checker.DefaultRequired, Backends: []string{cluster.Etcd},
		About: "A holds; B queues up until its lease is over; C queues up; A releases",
		Run:   story(playEtcdWaiter),
	}, {
		Name: "long-section", Workers: 2, Require: append([]string{checker.Exclusion}, checker.DefaultRequired...),
		About: "A's section is several TTLs long, and A writes at its end; B tries all the time and writes when it is granted",
		Run:   story(playLongSection),
	}, {
		Name: "killed-holder", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"kill"},
		About: "A is killed while it holds; B tries",
		Run:   story(playKilledHolder),
	}, {
		Name: "session-lost", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"pause"}, Backends: []string{cluster.ZooKeeper},
		About: "A is stopped past its session, B has its turn; A is told of the loss and releases",
		Run:   story(playSessionLost),
	}, {
		Name: "zk-orphan", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"client-cut"}, Backends: []string{cluster.ZooKeeper},
		About: "A's node is created, and A's connection ends before it hears of it; the session lives on; B tries",
		Run:   story(cutAcquiring(patience)),
	},
}

// singles are the backends whose lock is one key on one server.
var singles = []string{cluster.Redis, cluster.Sentinel}

// c is the third worker's part.
const c = 2

// story puts an ordinary beginning and an orderly end around a play.
func story(play func(context.Context, *Stage) error) func(context.Context, *Stage) error {
	return after((*Stage).ordinary, play)
}

// after puts a beginning and an orderly end around a play.
func after(begin func(*Stage, context.Context) error, play func(context.Context, *Stage) error) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		err := begin(s, ctx)
		if err == nil {
			err = play(ctx, s)
		}
		if err != nil && !errors.Is(err, errNobody) {
			return err
		}
		return s.part(ctx)
	}
}

// overrun lets A take the lock and stops it until B has it.
func (s *Stage) overrun(ctx context.Context) (ga, gb uint64, err error) {
	if ga, err = s.take(ctx, a); err != nil {
		return 0, 0, err
	}
	pause, err := s.pause(ctx, a)
	if err != nil {
		return 0, 0, err
	}
	defer pause.Heal(ctx)
	gb, err = s.take(ctx, b)
	return ga, gb, err
}

// intrude lets C try for a while although B holds, B release, and C have its
// turn in any case.
func (s *Stage) intrude(ctx context.Context, gb uint64) error {
	gc, err := s.tryFor(ctx, c, s.TTL/5)
	if err != nil {
		return err
	}
	if err := s.unlock(ctx, b, gb); err != nil {
		return err
	}
	if gc == 0 {
		return s.turn(ctx, c)
	}
	return s.unlock(ctx, c, gc)
}

func playUnsafeUnlock(ctx context.Context, s *Stage) error {
	ga, gb, err := s.overrun(ctx)
	if err != nil {
		return err
	}
	if err := s.release(ctx, a, ga); err != nil {
		return err
	}
	return s.intrude(ctx, gb)
}

func playSlowUnlock(ctx context.Context, s *Stage) error {
	return s.slowUnlock(ctx, s.TTL*4/7, 1)
}

func playKilledAcquiring(ctx context.Context, s *Stage) error {
	err := again(func() (late bool, err error) {
		u, err := s.unheard(ctx, 0)
		if err != nil {
			return false, err
		}
		defer u.cut.Heal(ctx)
		if u.late {
			u.cut.Heal(ctx)
			return true, s.settleA(ctx, u.acquire)
		}
		return false, s.kill(ctx, a)
	})
	if err != nil {
		return err
	}
	return s.afterwards(ctx)
}

// An unheard acquire of A has reached the servers, and A will not hear of it.
type unheard struct {
	acquire *runner.Open
	cut     *runner.Injection
	begun   time.Time
	late    bool // it may have ended
}

// silence is what every client endures before it gives a connection up: half of
// the shortest time-out here.
const silence = 500 * time.Millisecond

// unheard begins an acquire of A that is not answered. That it has reached the
// servers shows in B's being refused.
func (s *Stage) unheard(ctx context.Context, wait time.Duration) (u unheard, err error) {
	if u.cut, err = s.unanswered(ctx, a); err != nil {
		return u, err
	}
	u.begun = time.Now()
	u.acquire, err = s.Runner.Worker(a).Begin(runner.Call{F: history.Acquire, Key: s.Key, Wait: wait})
	if err == nil {
		err = s.sleep(ctx, silence/4)
	}
	var d runner.Done
	if err == nil {
		d, err = s.attempt(ctx, b, 0)
	}
	if err == nil && d.Type == history.OK {
		u.late = true
		err = s.unlock(ctx, b, d.Grant)
	}
	u.late = u.late || time.Since(u.begun) > min(silence, s.TTL/2)
	if err != nil {
		u.cut.Heal(ctx)
	}
	return u, err
}

// settleA waits for the end of A's acquire and gives back what came of it.
func (s *Stage) settleA(ctx context.Context, acquire *runner.Open) error {
	d, err := acquire.Wait(ctx)
	if err != nil || d.Type != history.OK {
		return err
	}
	return s.unlock(ctx, a, d.Grant)
}

// afterwards lets B try for as long as it takes to call a lock stuck.
func (s *Stage) afterwards(ctx context.Context) error {
	gb, err := s.tryFor(ctx, b, s.stuckFor())
	if err != nil || gb == 0 {
		return err
	}
	return s.unlock(ctx, b, gb)
}

func playTakeTurns(ctx context.Context, s *Stage) error {
	for _, i := range []int{a, b, a} {
		if err := s.turn(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func playLateRenewal(ctx context.Context, s *Stage) error {
	if !s.Runner.Worker(a).Can(wire.CanRenew) {
		return errors.New("this lock cannot be renewed")
	}
	ga, gb, err := s.overrun(ctx)
	if err != nil {
		return err
	}
	renew := runner.Call{F: history.Renew, Key: s.Key, Grant: ga}
	_, err = s.Runner.Worker(a).Do(ctx, renew)
	if err == nil {
		err = s.unlock(ctx, b, gb)
	}
	if err == nil {
		_, err = s.Runner.Worker(a).Do(ctx, renew)
	}
	if err == nil {
		err = s.unlock(ctx, a, ga)
	}
	if err != nil && !errors.Is(err, runner.ErrLost) {
		return fmt.Errorf("renew by worker %d: %w", a, err)
	}
	return s.turn(ctx, b)
}

func playSplitLinks(ctx context.Context, s *Stage) error {
	cut, err := s.cut(ctx, a, nemesis.Majority, 2)
	if err != nil {
		return err
	}
	defer cut.Heal(ctx)
	da, err := s.attempt(ctx, a, 0)
	if err != nil {
		return err
	}
	gb, err := s.tryFor(ctx, b, patience)
	if err != nil {
		return err
	}
	cut.Heal(ctx)
	if da.Type == history.OK {
		if err := s.unlock(ctx, a, da.Grant); err != nil {
			return err
		}
	}
	if err := s.unlock(ctx, b, gb); err != nil {
		return err
	}
	return s.turn(ctx, a)
}

func playSlowAcquire(ctx context.Context, s *Stage) error {
	slow, err := s.slow(ctx, a, nemesis.Replies, s.TTL*3/5)
	if err != nil {
		return err
	}
	defer slow.Heal(ctx)
	ga, err := s.take(ctx, a)
	if err != nil {
		return err
	}
	gb, err := s.take(ctx, b)
	if err != nil {
		return err
	}
	slow.Heal(ctx)
	if err := s.unlock(ctx, a, ga); err != nil {
		return err
	}
	return s.unlock(ctx, b, gb)
}

func playPartialRounds(ctx context.Context, s *Stage) error {
	for range 3 { // a machine that stands still may let the keys end together
		if err := again(func() (bool, error) { return s.seedRounds(ctx) }); err != nil {
			return err
		}
		granted, err := s.race(ctx, 3)
		if err != nil || !granted {
			return err
		}
	}
	return nil
}

// race lets the first n workers try at the same time, until one of them was
// granted the lock or it has to be called stuck.
func (s *Stage) race(ctx context.Context, n int) (granted bool, err error) {
	tctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var won atomic.Bool
	all := make(chan error, n)
	for i := range n {
		go func() {
			g, err := s.tryFor(tctx, i, s.stuckFor())
			if g != 0 {
				won.Store(true)
				err = s.turnOver(ctx, i, g)
				cancel() // one hand-over is enough
			}
			all <- err
		}()
	}
	var errs []error
	for range n {
		if err := <-all; !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	for i := range n { // a try that was given up comes to its end first
		errs = append(errs, s.idle(ctx, i))
	}
	return won.Load(), errors.Join(errs...)
}

// seedRounds leaves a failed round of each worker on servers of its own, a third
// of the TTL apart, so that their keys never end together.
func (s *Stage) seedRounds(ctx context.Context) (late bool, err error) {
	begun := time.Now()
	for n, p := range []struct {
		worker int
		first  uint64
		cut    bool
	}{{a, 2, true}, {c, 4, true}, {b, 0, false}} {
		var in *runner.Injection
		if p.cut {
			if in, err = s.cut(ctx, p.worker, nemesis.Majority, p.first); err != nil {
				return false, err
			}
		}
		if n == 0 {
			begun = time.Now()
		}
		if err := s.sleep(ctx, time.Until(begun.Add(time.Duration(n)*s.TTL/3))); err != nil {
			return false, err
		}
		d, err := s.attempt(ctx, p.worker, 0)
		if in != nil {
			in.Heal(ctx)
		}
		if err != nil {
			return false, err
		}
		if d.Type == history.OK {
			if err := s.turnOver(ctx, p.worker, d.Grant); err != nil {
				return false, err
			}
		}
		late = time.Since(begun) > s.TTL*9/10
	}
	return late, nil
}

// turnOver is a turn of a worker that has the lock already.
func (s *Stage) turnOver(ctx context.Context, i int, grant uint64) error {
	if err := s.count(ctx, i, grant); err != nil {
		return err
	}
	return s.unlock(ctx, i, grant)
}

// idle waits until worker i has nothing open any more, and releases what it got.
func (s *Stage) idle(ctx context.Context, i int) error {
	w := s.Runner.Worker(i)
	if err := s.until(ctx, "the end of a try", func() bool { return !w.Busy() }); err != nil {
		return err
	}
	for _, g := range w.Holds() {
		if err := s.unlock(ctx, i, g); err != nil {
			return err
		}
	}
	return nil
}

func playUnevenCounters(ctx context.Context, s *Stage) error {
	cut, err := s.cut(ctx, a, nemesis.Majority, 2)
	if err != nil {
		return err
	}
	defer cut.Heal(ctx)
	for range 5 {
		if _, err := s.attempt(ctx, a, 0); err != nil {
			return err
		}
	}
	cut.Heal(ctx)
	if err := s.turn(ctx, a); err != nil {
		return err
	}
	if cut, err = s.cut(ctx, b, nemesis.Minority, 0); err != nil {
		return err
	}
	defer cut.Heal(ctx)
	return s.turn(ctx, b)
}

func playEtcdWaiter(ctx context.Context, s *Stage) error {
	ga, err := s.take(ctx, a)
	if err != nil {
		return err
	}
	waiting, err := s.Runner.Worker(b).Begin(runner.Call{F: history.Acquire, Key: s.Key, Wait: patience})
	if err != nil {
		return err
	}
	return s.afterWaiting(ctx, ga, waiting)
}

// afterWaiting goes on where A holds and B's place in the queue is lost: C queues
// up, and A releases.
func (s *Stage) afterWaiting(ctx context.Context, ga uint64, waiting *runner.Open) error {
	if err := s.until(ctx, "the loss of B's lease", waiting.Lost); err != nil {
		return fmt.Errorf("%w: this lock does not wait on a lease, or keeps it alive", err)
	}
	third := s.pursue(ctx, c)
	if err := s.until(ctx, "C's place in the queue", s.Runner.Worker(c).Busy); err != nil {
		return err
	}
	if err := s.sleep(ctx, s.TTL/10); err != nil {
		return err
	}
	if err := s.unlock(ctx, a, ga); err != nil {
		return err
	}
	db, err := waiting.Wait(ctx)
	if err != nil {
		return err
	}
	gc, err := third.wait()
	if err != nil {
		return err
	}
	if db.Type == history.OK {
		if err := s.unlock(ctx, b, db.Grant); err != nil {
			return err
		}
	}
	return s.unlock(ctx, c, gc)
}

// countEarly lets B try from now on, and count up if it is granted within long.
func (s *Stage) countEarly(ctx context.Context, long time.Duration) (other *pursuit, early bool, err error) {
	other = s.pursue(ctx, b)
	early, err = other.within(long)
	if err == nil && early {
		err = s.count(ctx, b, other.grant)
	}
	return other, early, err
}

func playLongSection(ctx context.Context, s *Stage) error {
	ga, err := s.take(ctx, a)
	if err != nil {
		return err
	}
	value, err := s.read(ctx, a, ga)
	if err != nil {
		return err
	}
	other, early, err := s.countEarly(ctx, 3*s.TTL)
	if err != nil {
		return err
	}
	d, err := s.Runner.Worker(a).Do(ctx, runner.Call{F: history.Write, Key: s.Key, Grant: ga, Value: value + 1})
	if err == nil && d.Type != history.Info {
		err = s.unlock(ctx, a, ga)
	}
	if err != nil && !errors.Is(err, runner.ErrLost) {
		return err
	}
	gb, err := other.wait()
	if err != nil {
		return err
	}
	if !early {
		if err := s.count(ctx, b, gb); err != nil {
			return err
		}
	}
	return s.unlock(ctx, b, gb)
}

func playKilledHolder(ctx context.Context, s *Stage) error {
	if _, err := s.take(ctx, a); err != nil {
		return err
	}
	if err := s.kill(ctx, a); err != nil {
		return err
	}
	return s.afterwards(ctx)
}

func playSessionLost(ctx context.Context, s *Stage) error {
	ga, err := s.take(ctx, a)
	if err != nil {
		return err
	}
	pause, err := s.pause(ctx, a)
	if err != nil {
		return err
	}
	defer pause.Heal(ctx)
	if err := s.turn(ctx, b); err != nil {
		return err
	}
	pause.Heal(ctx)
	w := s.Runner.Worker(a)
	if err := s.until(ctx, "the news of the loss", func() bool { return w.Lost(ga) }); err != nil {
		return err
	}
	if err := s.unlock(ctx, a, ga); err != nil {
		return err
	}
	return s.turn(ctx, b)
}

// cutAcquiring ends A's connection before it hears of its acquire; A lives, and B tries.
func cutAcquiring(wait time.Duration) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		err := again(func() (late bool, err error) {
			u, err := s.unheard(ctx, wait)
			if err != nil {
				return false, err
			}
			u.cut.Heal(ctx)
			return u.late, s.settleA(ctx, u.acquire)
		})
		if err != nil {
			return err
		}
		return s.afterwards(ctx)
	}
}
