package nemesis

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A Step is one planned fault. Times are nanoseconds in JSON.
type Step struct {
	At       time.Duration `json:"at"` // from the start of the workload
	Fault    string        `json:"fault"`
	Target   string        `json:"target"`         // holder, random or all
	Duration time.Duration `json:"duration"`       // until the heal; 0 for a fault that heals by itself
	Pick     uint64        `json:"pick,omitempty"` // which of several candidates
}

// Config is what a plan is made from.
type Config struct {
	Faults   []string
	Target   string
	Interval time.Duration // mean time between the beginnings of two faults
	Duration time.Duration // of the workload
	Quiet    time.Duration // at its end, without faults, so that progress can be judged
	TTL      time.Duration
}

// Plan draws the faults of a run: pure, so that a seed gives one plan. The kinds
// come in rounds, so that each is in force soon and about as often as the others.
// Some last longer than the TTL and some do not, because both are of interest.
func Plan(rng *rand.Rand, cfg Config) []Step {
	var steps []Step
	if len(cfg.Faults) == 0 || cfg.Interval <= 0 {
		return steps
	}
	at := time.Duration(0)
	var round []string
	for {
		if len(round) == 0 {
			round = slices.Clone(cfg.Faults)
			rng.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		}
		at += cfg.Interval/2 + time.Duration(rng.Int64N(int64(cfg.Interval)+1))
		s := Step{At: at, Fault: round[0], Target: cfg.Target, Pick: rng.Uint64()}
		s.Duration = time.Duration((0.5 + 2*rng.Float64()) * float64(cfg.TTL))
		if s.Fault == (Kill{}).Name() {
			s.Duration = 0
		}
		if at+s.Duration > cfg.Duration-cfg.Quiet {
			return steps
		}
		steps, round = append(steps, s), round[1:]
		at += s.Duration
	}
}

// A PlanFile is how a plan is saved and given back.
type PlanFile struct {
	Seed  uint64 `json:"seed"`
	Steps []Step `json:"steps"`
}

// ReadPlan reads a saved plan and checks that it can be carried out.
func ReadPlan(b []byte) (PlanFile, error) {
	var p PlanFile
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("plan: %w", err)
	}
	for i, s := range p.Steps {
		if _, err := Find(s.Fault); err != nil {
			return p, fmt.Errorf("plan, step %d: %w", i, err)
		}
		if !slices.Contains(Aims, s.Target) {
			return p, fmt.Errorf("plan, step %d: target %q is none of %v", i, s.Target, Aims)
		}
		if s.At < 0 || s.Duration < 0 {
			return p, fmt.Errorf("plan, step %d: a time below zero", i)
		}
	}
	return p, nil
}

// String says a step for people.
func (s Step) String() string {
	d := ""
	if s.Duration > 0 {
		d = " for " + s.Duration.Round(time.Millisecond).String()
	}
	return fmt.Sprintf("at %v %s %s%s", s.At.Round(time.Millisecond), s.Fault, s.Target, d)
}
