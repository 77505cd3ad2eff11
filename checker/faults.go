package checker

import (
	"math"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

const inf = math.MaxInt64

// A fault is what the history says of one fault. Only what was done counts.
type fault struct {
	name      string
	targets   []history.Process
	asked     int64
	askedIdx  int
	done      int64 // inf until it was in force
	healed    int64 // inf until it was no longer in force
	tried     bool  // it had targets, so something was done to them
	skipped   bool
	skippedAt int64 // when it was given up
	phaseless bool
	victims   []*grant // held by its targets when it was asked, for kill
	overLease bool     // a pause that outlived the lease of a grant of its target
	overHold  bool     // on servers or the network, and in force during a section
	whileHeld bool     // a failover or a jump of a clock that began in a section
}

// selfHealing faults are over when they are done.
func selfHealing(name string) bool { return name == killFault }

const (
	killFault     = "kill"
	pauseFault    = "pause"
	failoverFault = "failover"
	jumpFault     = "clock-jump"
	strobeFault   = "clock-strobe"
)

// countsWhileHeld are the faults whose meeting a holder is counted by itself.
func countsWhileHeld(name string) bool {
	return name == failoverFault || name == jumpFault || name == strobeFault
}

// faults follows the nemesis.
type faults struct {
	all      []*fault
	byNumber map[int]*fault
	byName   map[string]*fault // the open one of a history without phases

	lastPhaseless int64 // the latest event without a phase
}

// phase files a nemesis event. It gives the fault and the phase that began.
func (fs *faults) phase(o *history.Op) (*fault, string) {
	v, ok := history.FaultOf(o)
	if !ok || v.Phase == "" {
		return fs.withoutPhase(o, v.Processes())
	}
	if fs.byNumber == nil {
		fs.byNumber = map[int]*fault{}
	}
	f := fs.byNumber[v.Fault]
	if f == nil || v.Phase == history.Asked {
		f = &fault{name: o.F, asked: o.Time, askedIdx: o.Index, done: inf, healed: inf}
		fs.byNumber[v.Fault] = f
		fs.all = append(fs.all, f)
	}
	if ps := v.Processes(); len(ps) > 0 {
		f.targets = ps
	}
	f.tried = f.tried || len(v.Targets) > 0
	switch v.Phase {
	case history.Done:
		f.done = o.Time
		if selfHealing(f.name) {
			f.healed = o.Time
		}
	case history.Healed:
		if !selfHealing(f.name) { // that one was over when it was done
			f.healed = o.Time
		}
	case history.Skipped:
		f.skipped, f.skippedAt = true, o.Time
	}
	return f, v.Phase
}

// withoutPhase takes the first event of a name as asked and the second as done:
// other tools write no phases, and a fault of theirs is over with its second
// event.
func (fs *faults) withoutPhase(o *history.Op, targets []history.Process) (*fault, string) {
	if fs.byName == nil {
		fs.byName = map[string]*fault{}
	}
	fs.lastPhaseless = o.Time
	if f := fs.byName[o.F]; f != nil {
		delete(fs.byName, o.F)
		f.done, f.healed = o.Time, o.Time
		return f, history.Done
	}
	f := &fault{name: o.F, asked: o.Time, askedIdx: o.Index, done: inf, healed: inf, targets: targets, phaseless: true}
	fs.byName[o.F] = f
	fs.all = append(fs.all, f)
	return f, history.Asked
}

// over reports whether the fault was past by time t, or never came to be. A
// pause counts as past only when no grant of that time can have been held in it.
func (f *fault) over(t int64) bool {
	return f.skipped || (f.healed < t && f.asked < t)
}

// first is when the first fault was in force; inf if none was.
func (fs *faults) first() int64 {
	for _, f := range fs.all {
		if f.done != inf {
			return f.done
		}
	}
	return inf
}

// during gives the indexes of the faults that were in force at some time
// between from and to.
func (fs *faults) during(from, to int64) []int {
	var idx []int
	for _, f := range fs.all {
		if f.done != inf && f.asked <= to && f.healed >= from {
			idx = append(idx, f.askedIdx)
		}
	}
	return idx
}

// neverInForce names the kinds of faults that were asked for but never came to
// be, so that a run that tested nothing cannot pass.
func (fs *faults) neverInForce() []string {
	asked, done := map[string]bool{}, map[string]bool{}
	for _, f := range fs.all {
		if !f.phaseless {
			asked[f.name] = true
			done[f.name] = done[f.name] || f.done != inf
		}
	}
	var never []string
	for n := range asked {
		if !done[n] {
			never = append(never, n)
		}
	}
	slices.Sort(never)
	return never
}

// A span is a stretch of time.
type span struct{ from, to int64 }

// disturbed gives the spans in which progress cannot be asked for: from a
// fault's beginning to its heal, in order of their beginnings. A fault that was
// tried and gave no evidence may have been in force until it was given up; one
// that found no target was not tried.
func (fs *faults) disturbed() []span {
	var out []span
	for _, f := range fs.all {
		s := span{f.asked, f.healed}
		if f.skipped && f.done == inf {
			if !f.tried {
				continue
			}
			s.to = f.skippedAt
		}
		if f.phaseless && !selfHealing(f.name) {
			// Other tools begin and end a fault under names of their own, so its
			// heal may be any event that follows.
			s.to = fs.lastPhaseless
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b span) int {
		if a.from < b.from {
			return -1
		}
		return 1
	})
	return out
}

// NeverInForce is the reason for a verdict of unknown when a fault was asked for
// and nothing came of it.
func NeverInForce(name string) string {
	return "the fault " + name + " was asked for and was never in force"
}
