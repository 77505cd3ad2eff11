package scenario

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/runner"
)

// goStories are those of the reports about libraries in Go. They can be told of
// any lock on their backends.
var goStories = []Scenario{
	{
		Name: "quorum-forgets", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"down", "server-kill"}, Backends: []string{cluster.Redlock}, TTL: longLease,
		About: "A reaches no more than three servers of five and takes the lock; one of them is killed and comes back at once, without its data unless that outlives it; B tries",
		Run:   story(playQuorumForgets),
	}, {
		Name: "quorum-waits", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"down", "server-kill"}, Backends: []string{cluster.Redlock},
		About: "as quorum-forgets, and the server that was killed is kept away for one TTL",
		Run:   story(playQuorumWaits),
	}, {
		Name: "waiter-stopped", Workers: 3, Require: checker.DefaultRequired, Faults: []string{"pause"}, Backends: []string{cluster.Etcd},
		About: "A holds; B queues up and is stopped until its lease is over; C queues up; A releases",
		Run:   story(playWaiterStopped),
	}, {
		Name: "waiter-overtaken", Workers: 3, Require: checker.DefaultRequired, Faults: []string{"pause"}, Backends: []string{cluster.Etcd, cluster.ZooKeeper},
		About: "A holds; B queues up, then C; B is stopped, A releases, and C has the lock when B's lease or session is over; B goes on",
		Run:   after((*Stage).handOver, playWaiterOvertaken),
	}, {
		Name: "cut-children", Workers: 2, Require: checker.DefaultRequired, Faults: []string{"request-cut"}, Backends: []string{cluster.ZooKeeper},
		About: "A's node is created, and A's connection ends when it asks who else is in the queue; the session lives on; B tries",
		Run:   after((*Stage).handOver, playCutChildren),
	}, {
		Name: "cut-waiting", Workers: 3, Require: checker.DefaultRequired, Faults: []string{"request-cut"}, Backends: []string{cluster.ZooKeeper},
		About: "C holds; A queues up, and its connection ends when it asks for whom to wait; the session lives on; C releases, B tries",
		Run:   after((*Stage).handOver, playCutWaiting),
	},
}

// handOver is an ordinary beginning for a lock that nobody is refused by: B waits
// while A holds.
func (s *Stage) handOver(ctx context.Context) error {
	ga, err := s.take(ctx, a)
	if err != nil {
		return err
	}
	next := s.pursue(ctx, b)
	if err := s.until(ctx, "B's try", s.Runner.Worker(b).Busy); err != nil {
		return err
	}
	if err := s.turnOver(ctx, a, ga); err != nil {
		return err
	}
	gb, err := next.wait()
	if err != nil {
		return err
	}
	return s.turnOver(ctx, b, gb)
}

// bare lets A take the lock where it reaches no more than a bare majority. It gives
// the last server of that.
func (s *Stage) bare(ctx context.Context) (ga uint64, last string, err error) {
	servers := s.Setting.Data
	quorum := len(servers)/2 + 1
	for _, n := range servers[quorum:] {
		down, err := s.fault(ctx, nemesis.Step{Fault: "down", Target: name(a), Links: n})
		if err != nil {
			return 0, "", err
		}
		defer down.Heal(ctx)
	}
	ga, err = s.take(ctx, a)
	return ga, servers[quorum-1], err
}

// bareForgets lets A take the lock on a bare majority, and kills a server of that.
func (s *Stage) bareForgets(ctx context.Context) (ga uint64, killed *runner.Injection, err error) {
	ga, last, err := s.bare(ctx)
	if err == nil {
		killed, err = s.killServer(ctx, last)
	}
	return ga, killed, err
}

// killServer kills a server; the heal brings it back, with its data if that
// outlives it.
func (s *Stage) killServer(ctx context.Context, node string) (*runner.Injection, error) {
	form := nemesis.Lose
	if s.Setting.Durable {
		form = nemesis.Keep
	}
	return s.fault(ctx, nemesis.Step{Fault: "server-kill", Form: form, Target: node})
}

func playQuorumForgets(ctx context.Context, s *Stage) error {
	ga, killed, err := s.bareForgets(ctx)
	if err != nil {
		return err
	}
	killed.Heal(ctx)
	gb, err := s.tryFor(ctx, b, s.Retry*20)
	if err != nil {
		return err
	}
	if gb != 0 {
		if err := s.count(ctx, b, gb); err != nil {
			return err
		}
	}
	if err := s.count(ctx, a, ga); err != nil {
		return err
	}
	if err := s.unlock(ctx, a, ga); err != nil {
		return err
	}
	if gb != 0 {
		return s.unlock(ctx, b, gb)
	}
	return s.turn(ctx, b)
}

func playQuorumWaits(ctx context.Context, s *Stage) error {
	ga, killed, err := s.bareForgets(ctx)
	if err != nil {
		return err
	}
	defer killed.Heal(ctx)
	gb, err := s.tryFor(ctx, b, s.TTL/2) // a finding, if it is granted
	if err == nil {
		err = s.count(ctx, a, ga)
	}
	if err == nil {
		err = s.unlock(ctx, a, ga)
	}
	if err == nil && gb != 0 {
		err = s.unlock(ctx, b, gb)
	}
	if err == nil {
		err = s.sleep(ctx, s.TTL)
	}
	if err != nil {
		return err
	}
	killed.Heal(ctx)
	return s.turn(ctx, b)
}

// errNoWaiter says that a lock does not wait, so that its waiter cannot be stopped.
var errNoWaiter = errors.New("the try of B was over before it could be stopped: this lock does not wait inside")

// holderAndWaiter has A take the lock and B begin to wait for it, and gives B the
// time to be in the queue.
func (s *Stage) holderAndWaiter(ctx context.Context) (ga uint64, waiting *runner.Open, err error) {
	if ga, err = s.take(ctx, a); err != nil {
		return 0, nil, err
	}
	waiting, err = s.Runner.Worker(b).Begin(runner.Call{F: history.Acquire, Key: s.Key, Wait: patience})
	if err == nil {
		err = s.sleep(ctx, s.TTL/2)
	}
	return ga, waiting, err
}

func playWaiterStopped(ctx context.Context, s *Stage) error {
	ga, waiting, err := s.holderAndWaiter(ctx)
	if err != nil {
		return err
	}
	if !s.Runner.Worker(b).Busy() {
		return errNoWaiter
	}
	pause, err := s.pause(ctx, b)
	if err != nil {
		return err
	}
	defer pause.Heal(ctx)
	if err := s.sleep(ctx, 3*s.TTL); err != nil {
		return err
	}
	pause.Heal(ctx)
	return s.afterWaiting(ctx, ga, waiting)
}

func playWaiterOvertaken(ctx context.Context, s *Stage) error {
	ga, waiting, err := s.holderAndWaiter(ctx)
	if err != nil {
		return err
	}
	third, err := s.Runner.Worker(c).Begin(runner.Call{F: history.Acquire, Key: s.Key, Wait: patience})
	if err == nil {
		err = s.sleep(ctx, s.TTL/2)
	}
	if err != nil {
		return err
	}
	if !s.Runner.Worker(b).Busy() {
		return errNoWaiter
	}
	pause, err := s.pause(ctx, b)
	if err != nil {
		return err
	}
	defer pause.Heal(ctx)
	if err := s.unlock(ctx, a, ga); err != nil {
		return err
	}
	dc, err := third.Wait(ctx)
	if err == nil && dc.Type == history.OK {
		err = s.count(ctx, c, dc.Grant)
	}
	if err != nil {
		return err
	}
	pause.Heal(ctx)
	db, err := waiting.Wait(ctx)
	if err == nil && db.Type == history.OK {
		err = s.count(ctx, b, db.Grant)
	}
	if err == nil && dc.Type == history.OK {
		err = s.unlock(ctx, c, dc.Grant)
	}
	if err == nil && db.Type == history.OK {
		err = s.unlock(ctx, b, db.Grant)
	}
	return err
}

// cutAt is a connection of worker i that ends at a request.
func (s *Stage) cutAt(ctx context.Context, i int, request string) (*runner.Injection, error) {
	return s.fault(ctx, nemesis.Step{Fault: "request-cut", Form: request, Target: name(i), Links: nemesis.EveryNode})
}

func playCutChildren(ctx context.Context, s *Stage) error {
	cut, err := s.cutAt(ctx, a, nemesis.Children)
	if err != nil {
		return err
	}
	defer cut.Heal(ctx)
	d, err := s.attempt(ctx, a, s.TTL)
	if err != nil {
		return err
	}
	cut.Heal(ctx)
	if d.Type == history.OK {
		return fmt.Errorf("grant %d: the lock was had without a look at who else is in the queue", d.Grant)
	}
	return s.afterwards(ctx)
}

func playCutWaiting(ctx context.Context, s *Stage) error {
	gc, err := s.take(ctx, c)
	if err != nil {
		return err
	}
	cut, err := s.cutAt(ctx, a, nemesis.Data)
	if err != nil {
		return err
	}
	defer cut.Heal(ctx)
	if _, err := s.attempt(ctx, a, s.TTL); err != nil {
		return err
	}
	cut.Heal(ctx)
	if err := s.unlock(ctx, c, gc); err != nil {
		return err
	}
	return s.afterwards(ctx)
}
