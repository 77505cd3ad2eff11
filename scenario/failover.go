package scenario

import (
	"context"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
)

// replicatedClient is the one that asks for a replica's word.
const replicatedClient = "redis/set-nx-wait"

var failover = Scenario{
	Name:     "failover",
	About:    "one replica is stopped and the other does not hear its master; A takes the lock; the master dies, the replica is promoted, and B asks. The twin with --client redis/set-nx-wait waits for the replica's word",
	Workers:  2,
	Backends: []string{"redis-sentinel"},
	Faults:   []string{"server-pause", "partition:replicas", "server-kill:lose"},
	Require:  required,
	TTL:      longLease,
	Run:      playFailover,
	Theory: func(c Case) Expectation {
		e := forgotten(c)
		if c.Client == replicatedClient {
			e = Expectation{Verdicts: held(c), Seen: map[string]Amount{"acquires_failed": atLeastOne}}
		}
		return e
	},
}

// longLease outlives what servers need to restart or to elect another leader, on
// a busy machine too: what happens in these stories happens inside a lease.
const longLease = 10 * time.Minute

func playFailover(ctx context.Context, s *Stage) error {
	master, err := s.leader(ctx, "")
	if err != nil {
		return err
	}
	// One replica only, so that the one that is promoted is known. What is sent to
	// a replica that is stopped waits in its socket, and it has the lock when it
	// wakes; the other one's packets are really lost.
	if _, err := s.fault(ctx, nemesis.Step{Fault: "server-pause", Target: s.others(master)[1]}); err != nil {
		return err
	}
	deaf, err := s.fault(ctx, nemesis.Step{Fault: "partition", Form: nemesis.Replicas, Target: nemesis.Leader, Way: nemesis.Out})
	if err != nil {
		return err
	}
	d, err := s.try(ctx, a)
	if err != nil {
		return err
	}
	ga := d.Grant
	if d.Type != history.OK { // the lock waits for the replica: let it hear, and try again
		deaf.Heal(ctx)
		if err := s.once(ctx, b); err != nil {
			return err
		}
		if ga, err = s.acquire(ctx, a); err != nil {
			return err
		}
	}
	value, err := s.goOn(ctx, a, ga)
	if err != nil {
		return err
	}
	if _, err := s.fault(ctx, nemesis.Step{Fault: "server-kill", Form: nemesis.Lose, Target: master}); err != nil {
		return err
	}
	if _, err := s.leader(ctx, master); err != nil {
		return err
	}
	deaf.Heal(ctx)
	return s.secondHolder(ctx, ga, value)
}

// once lets worker i take the lock, work, and give it back, so that there is
// another holder to compare with even where a story grants it nothing later.
func (s *Stage) once(ctx context.Context, i int) error {
	g, _, err := s.begin(ctx, i)
	if err != nil {
		return err
	}
	return s.release(ctx, i, g)
}

// secondHolder goes on where A holds the lock and something has happened to the
// servers: B asks for it, and works if it gets it; A, which knows nothing, goes
// on and writes.
func (s *Stage) secondHolder(ctx context.Context, ga uint64, value int64) error {
	d, err := s.try(ctx, b)
	if err != nil {
		return err
	}
	if d.Type == history.OK {
		if _, err := s.goOn(ctx, b, d.Grant); err != nil {
			return err
		}
	}
	if err := s.write(ctx, a, ga, value+1); err != nil {
		return err
	}
	if err := s.ask(ctx, a, ga); err != nil {
		return err
	}
	grants := map[int]uint64{a: ga}
	if d.Type == history.OK {
		grants[b] = d.Grant
	}
	return s.farewell(ctx, grants)
}
