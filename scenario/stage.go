package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/runner"
)

// attempt is one try of worker i for the lock, waiting inside for up to wait if the
// client can.
func (s *Stage) attempt(ctx context.Context, i int, wait time.Duration) (runner.Done, error) {
	w := s.Runner.Worker(i)
	if err := w.Session(ctx); err != nil {
		return runner.Done{}, err
	}
	d, err := w.Do(ctx, runner.Call{F: history.Acquire, Key: s.Key, Wait: wait})
	if err != nil {
		return d, fmt.Errorf("acquire by worker %d: %w", i, err)
	}
	return d, nil
}

// tryFor lets worker i try for the lock until it has it, or for that long. No
// grant is 0. A worker that waits inside is refused once in every TTL, so that
// nobody can say that it had given up.
func (s *Stage) tryFor(ctx context.Context, i int, long time.Duration) (uint64, error) {
	for end := time.Now().Add(long); time.Now().Before(end); {
		d, err := s.attempt(ctx, i, min(s.TTL, time.Until(end)))
		if err != nil {
			return 0, err
		}
		if d.Type == history.OK {
			return d.Grant, nil
		}
		if err := s.sleep(ctx, s.Retry); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// stuckFor is longer than a lock that nobody can have any more has to be tried
// for until that is a finding: 4 TTLs and at least 2 s after its lease is over.
func (s *Stage) stuckFor() time.Duration {
	return max(4*s.TTL, 2*time.Second) + 2*s.TTL
}

// errNobody ends a story: the lock is stuck, and there is nothing more to tell.
var errNobody = errors.New("nobody can have the lock any more")

// take lets worker i try until it has the lock. A lock that cannot be had for
// much longer than it takes to call it stuck is a finding.
func (s *Stage) take(ctx context.Context, i int) (uint64, error) {
	g, err := s.tryFor(ctx, i, max(s.stuckFor(), takeWithin))
	if err == nil && g == 0 {
		err = errNobody
	}
	return g, err
}

// takeWithin leaves room for slow servers, and for a violation to show in half a
// minute.
const takeWithin = 15 * time.Second

// A pursuit is a worker that tries for the lock while others go on.
type pursuit struct {
	grant uint64
	err   error
	over  chan struct{}
}

// pursue lets worker i try until it has the lock.
func (s *Stage) pursue(ctx context.Context, i int) *pursuit {
	p := &pursuit{over: make(chan struct{})}
	go func() {
		defer close(p.over)
		p.grant, p.err = s.take(ctx, i)
	}()
	return p
}

// within waits for the grant. It is false if it did not come in time.
func (p *pursuit) within(d time.Duration) (bool, error) {
	select {
	case <-p.over:
		return p.err == nil, p.err
	case <-time.After(d):
		return false, nil
	}
}

// wait waits for the grant.
func (p *pursuit) wait() (uint64, error) {
	<-p.over
	return p.grant, p.err
}

// count lets worker i read under its grant and write one more. It does not look
// whether it still has the lock. A fence may refuse either.
func (s *Stage) count(ctx context.Context, i int, grant uint64) error {
	w := s.Runner.Worker(i)
	d, err := w.Do(ctx, runner.Call{F: history.Read, Key: s.Key, Grant: grant})
	if err == nil && d.Type == history.OK {
		err = s.write(ctx, i, grant, d.Value+1)
	}
	if err != nil && !errors.Is(err, runner.ErrLost) {
		return fmt.Errorf("read and write by worker %d: %w", i, err)
	}
	return nil
}

// unlock lets worker i release, also what it was told is lost, whatever comes of
// it: that is for the judge.
func (s *Stage) unlock(ctx context.Context, i int, grant uint64) error {
	_, err := s.Runner.Worker(i).Do(ctx, runner.Call{F: history.Release, Key: s.Key, Grant: grant})
	if err != nil && !errors.Is(err, runner.ErrRetired) { // that one has no session to release in
		return fmt.Errorf("release by worker %d: %w", i, err)
	}
	return nil
}

// turn is an ordinary section of worker i.
func (s *Stage) turn(ctx context.Context, i int) error {
	g, err := s.take(ctx, i)
	if err == nil {
		err = s.count(ctx, i, g)
	}
	if err == nil {
		err = s.unlock(ctx, i, g)
	}
	return err
}

// ordinary is what every story begins with, so that a pass has been earned: a
// lock that is held, somebody who is refused, a release, and a hand-over.
func (s *Stage) ordinary(ctx context.Context) error {
	g, err := s.take(ctx, a)
	if err != nil {
		return err
	}
	d, err := s.attempt(ctx, b, 0)
	if err != nil {
		return err
	}
	if d.Type == history.OK { // a finding; the story goes on
		if err := s.unlock(ctx, b, d.Grant); err != nil {
			return err
		}
	}
	if err := s.count(ctx, a, g); err != nil {
		return err
	}
	if err := s.unlock(ctx, a, g); err != nil {
		return err
	}
	return s.turn(ctx, b)
}

// slow delays what worker i says to the servers, or hears from them.
func (s *Stage) slow(ctx context.Context, i int, way string, by time.Duration) (*runner.Injection, error) {
	return s.fault(ctx, nemesis.Step{Fault: "slow", Target: name(i), Links: nemesis.EveryNode, Way: way, Latency: by})
}

// unanswered drops what the servers say to worker i. The connections end with
// the heal.
func (s *Stage) unanswered(ctx context.Context, i int) (*runner.Injection, error) {
	return s.fault(ctx, nemesis.Step{Fault: "client-cut", Target: name(i), Links: nemesis.EveryNode, Way: nemesis.Replies})
}

// cut takes some of the servers from worker i: a majority of them, or the rest,
// counted from the one at place first.
func (s *Stage) cut(ctx context.Context, i int, links string, first uint64) (*runner.Injection, error) {
	return s.fault(ctx, nemesis.Step{Fault: "client-cut", Target: name(i), Links: links, Way: nemesis.Both, Pick: first})
}

func name(i int) string { return fmt.Sprintf("w%d", i) }

// jump moves the clocks of servers.
func (s *Stage) jump(ctx context.Context, servers string, by time.Duration) (*runner.Injection, error) {
	return s.fault(ctx, nemesis.Step{Fault: "clock-jump", Form: nemesis.OfServers, Target: servers, Offset: by})
}

// kill ends worker i. It fails if the death could not be proved.
func (s *Stage) kill(ctx context.Context, i int) error {
	in, err := s.fault(ctx, nemesis.Step{Fault: "kill", Target: name(i)})
	if err == nil {
		in.Heal(ctx) // it is over
	}
	return err
}

// part ends the sessions of those workers that have one.
func (s *Stage) part(ctx context.Context) error {
	s.look(ctx)
	for i := range s.Runner.Count() {
		_, err := s.Runner.Worker(i).Do(ctx, runner.Call{F: history.Close})
		if err != nil && !errors.Is(err, runner.ErrRetired) {
			return fmt.Errorf("close by worker %d: %w", i, err)
		}
	}
	return nil
}

// again plays a part anew while it says that it came too late: a machine that
// stands still for a moment is no finding.
func again(part func() (late bool, err error)) error {
	for range 5 {
		late, err := part()
		if err != nil || !late {
			return err
		}
	}
	return errors.New("this machine is too slow for the story: five times its moment had passed")
}
