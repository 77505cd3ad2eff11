package nemesis

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A Step is one planned fault. Times are nanoseconds in JSON.
type Step struct {
	At       time.Duration `json:"at"` // from the start of the workload
	Fault    string        `json:"fault"`
	Form     string        `json:"form,omitempty"`
	Target   string        `json:"target"`         // one of Aims, or a name: n1, w2
	Duration time.Duration `json:"duration"`       // until the heal; 0 for a fault that heals by itself
	Pick     uint64        `json:"pick,omitempty"` // which of several candidates

	Way     string        `json:"way,omitempty"`     // partition: both, in, out; links: both, requests, replies
	Links   string        `json:"links,omitempty"`   // which links of a worker
	Latency time.Duration `json:"latency,omitempty"` // slow, jitter
	Jitter  time.Duration `json:"jitter,omitempty"`  // around the latency
	Rate    int64         `json:"rate,omitempty"`    // bandwidth, KB/s
	Slice   int           `json:"slice,omitempty"`   // slicer, bytes
	Offset  time.Duration `json:"offset,omitempty"`  // clock-jump, clock-strobe: how far ahead; behind if it is negative
	Period  time.Duration `json:"period,omitempty"`  // clock-strobe: from one jump to the next
	Drift   int64         `json:"drift,omitempty"`   // clock-drift, in parts per million
}

// Config is what a plan is made from.
type Config struct {
	Faults   []string // names, or names with a form
	Target   string   // "" for each fault's own choice
	Interval time.Duration
	Duration time.Duration // of the workload
	Quiet    time.Duration // at its end, without faults, so that progress can be judged
	TTL      time.Duration
	AtOnce   int // faults at a time; never two that act on the same kind of thing
	Setting  Setting
}

// Plan draws the faults of a run: pure, so that a seed gives one plan. The kinds
// come in rounds, so that each is in force soon and about as often as the others.
// Some last longer than the TTL and some do not, because both are of interest.
//
// Faults at a time come from lanes of their own. What acts on one kind of thing
// is in one lane, so that no fault meets its own kind: two partitions would heal
// each other, and a server that is stopped cannot be restarted.
func Plan(rng *rand.Rand, cfg Config) []Step {
	var steps []Step
	if cfg.Interval <= 0 {
		return steps
	}
	for _, faults := range lanes(cfg) {
		steps = append(steps, lane(rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())), cfg, faults)...)
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return int(a.At - b.At) })
	return steps
}

// lanes deals the faults out, by what they act on.
func lanes(cfg Config) [][]string {
	var families []Acts
	of := map[Acts][]string{}
	for _, f := range cfg.Faults {
		e, _, err := Parse(f)
		if err != nil {
			continue // Refuse says so before
		}
		if of[e.Acts] == nil {
			families = append(families, e.Acts)
		}
		of[e.Acts] = append(of[e.Acts], f)
	}
	out := make([][]string, min(max(1, cfg.AtOnce), len(families)))
	for i, a := range families {
		out[i%len(out)] = append(out[i%len(out)], of[a]...)
	}
	return out
}

// lane draws faults that come one after the other.
func lane(rng *rand.Rand, cfg Config, faults []string) []Step {
	var steps []Step
	var round []string
	for at := time.Duration(0); ; {
		if len(round) == 0 {
			round = slices.Clone(faults)
			rng.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		}
		at += cfg.Interval/2 + time.Duration(rng.Int64N(int64(cfg.Interval)+1))
		s := Step{At: at, Pick: rng.Uint64()}
		s.Duration = around(rng, cfg.TTL).Round(time.Millisecond)
		// What a fault draws for itself does not shift the others.
		drawStep(rand.New(rand.NewPCG(rng.Uint64(), 0)), cfg, round[0], &s)
		left := cfg.Duration - cfg.Quiet - at
		// A short run still sees each fault once, if only for as short as it is ever drawn.
		if len(steps) < len(faults) && s.Duration > left && left >= cfg.TTL/2 {
			s.Duration = left.Truncate(time.Millisecond)
		}
		if s.Duration > left {
			return steps
		}
		steps, round = append(steps, s), round[1:]
		at += s.Duration
	}
}

// around is half to two and a half times d: some faults outlive a lease.
func around(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration((0.5 + 2*rng.Float64()) * float64(d))
}

// drawStep decides what kind of fault a step is in full.
func drawStep(rng *rand.Rand, cfg Config, fault string, s *Step) {
	e, form, err := Parse(fault)
	if err != nil {
		return
	}
	s.Fault, s.Form = e.Name, form
	if can, err := e.forms(cfg.Setting); form == "" && err == nil {
		s.Form = can[rng.IntN(len(can))]
	}
	s.Target = e.aim(cfg.Setting, s.Form, cfg.Target)
	if e.Draw != nil {
		e.Draw(rng, cfg, s)
	}
	if e.Once != nil && e.Once(s.Form) {
		s.Duration = 0
	}
}

// A PlanFile is how a plan is saved and given back.
type PlanFile struct {
	Seed  uint64 `json:"seed"`
	Steps []Step `json:"steps"`
}

// ReadPlan reads a saved plan. Whether it can be carried out in a run is for
// Step.Check to say.
func ReadPlan(b []byte) (PlanFile, error) {
	var p PlanFile
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("plan: %w", err)
	}
	for i, s := range p.Steps {
		e, err := Find(s.Fault)
		switch {
		case err != nil:
		case s.Form != "" || len(e.AllForms()) > 0:
			_, _, err = Parse(s.Fault + ":" + s.Form)
		}
		if err == nil {
			err = s.sizes()
		}
		if err != nil {
			return p, fmt.Errorf("plan, step %d: %w", i, err)
		}
	}
	return p, nil
}

// sizes refuses numbers that make no sense.
func (s Step) sizes() error {
	if s.At < 0 || s.Duration < 0 || s.Latency < 0 || s.Jitter < 0 {
		return fmt.Errorf("a time below zero")
	}
	if s.Rate < 0 || s.Slice < 0 {
		return fmt.Errorf("a rate or a slice below zero")
	}
	return s.clock()
}

// String says a step for people.
func (s Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %v %s", s.At.Round(time.Millisecond), s.Fault)
	if s.Form != "" {
		fmt.Fprintf(&b, ":%s", s.Form)
	}
	fmt.Fprintf(&b, " %s", s.Target)
	if s.Links != "" {
		fmt.Fprintf(&b, " (links: %s)", s.Links)
	}
	if s.Way != "" && s.Way != Both {
		fmt.Fprintf(&b, " %s only", s.Way)
	}
	for _, size := range []struct {
		of   string
		is   any
		zero bool
	}{
		{"latency", s.Latency, s.Latency == 0}, {"jitter", s.Jitter, s.Jitter == 0},
		{"KB/s", s.Rate, s.Rate == 0}, {"bytes", s.Slice, s.Slice == 0},
		{"by", s.Offset, s.Offset == 0}, {"every", s.Period, s.Period == 0}, {"ppm", s.Drift, s.Drift == 0},
	} {
		if !size.zero {
			fmt.Fprintf(&b, " %s %v", size.of, size.is)
		}
	}
	if s.Duration > 0 {
		fmt.Fprintf(&b, " for %v", s.Duration.Round(time.Millisecond))
	}
	return b.String()
}
