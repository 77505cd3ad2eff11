package scenario

import (
	"context"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/nemesis"
)

var restartEmpty = Scenario{
	Name:     "restart-empty",
	About:    "A takes the lock, of five Redlock servers with the barest majority; a server that has it is restarted without its data, and B asks within the lease. The twin with --persistence aof keeps the data",
	Workers:  2,
	Backends: []string{"redis", "redlock"},
	Faults:   []string{"client-cut", "server-kill"},
	Require:  required,
	TTL:      longLease,
	Run:      playRestartEmpty,
	Theory: func(c Case) Expectation {
		if c.Durable {
			return Expectation{Verdicts: held(c), Seen: map[string]Amount{"stale_writes_applied": none}}
		}
		e := forgotten(c)
		if c.Fence { // the counter went back with the data: the fence takes B, the rightful holder, for a stale one
			e.Verdicts[checker.Data] = checker.Valid
			e.Seen = map[string]Amount{"stale_writes_applied": none, "reads_refused": atLeastOne}
		}
		return e
	},
}

func playRestartEmpty(ctx context.Context, s *Stage) error {
	servers := s.Setting.Data
	quorum := len(servers)/2 + 1
	for _, n := range servers[quorum:] { // A reaches no more than a majority
		if _, err := s.fault(ctx, nemesis.Step{Fault: "client-cut", Target: "w0", Links: n, Way: nemesis.Both}); err != nil {
			return err
		}
	}
	if err := s.once(ctx, b); err != nil {
		return err
	}
	ga, value, err := s.begin(ctx, a)
	if err != nil {
		return err
	}
	form := nemesis.Lose
	if s.Setting.Durable {
		form = nemesis.Keep
	}
	down, err := s.fault(ctx, nemesis.Step{Fault: "server-kill", Form: form, Target: servers[quorum-1]})
	if err != nil {
		return err
	}
	down.Heal(ctx)
	return s.secondHolder(ctx, ga, value)
}
