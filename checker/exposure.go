package checker

import (
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// Exposure counts what a history put the lock to. A pass without exposure
// proves nothing.
type Exposure struct {
	AcquiresOK           int            `json:"acquires_ok"`
	AcquiresBeforeFaults int            `json:"acquires_before_faults"` // ok before the first fault
	AcquiresDuringFaults int            `json:"acquires_during_faults"` // ok while one was in force
	AcquiresAfterFaults  int            `json:"acquires_after_faults"`  // ok later, while none was
	AcquiresFailed       int            `json:"acquires_failed"`
	AcquiresRefused      int            `json:"acquires_refused"` // told that somebody holds it
	AcquiresWaited       int            `json:"acquires_waited"`  // ok, and asked for while another held it
	Holders              int            `json:"holders"`          // processes that were granted something
	HandOvers            int            `json:"hand_overs"`       // grants that followed another process's
	ReleasesOK           int            `json:"releases_ok"`
	RenewalsOK           int            `json:"renewals_ok"`
	Faults               map[string]int `json:"faults,omitempty"`         // in force, by evidence
	FaultsSkipped        int            `json:"faults_skipped,omitempty"` // asked for, and nothing came of it
	FaultsOverHold       int            `json:"faults_over_hold"`         // in force while a lock was held: by a target, or by anybody if it was aimed at servers
	FailoversWhileHeld   int            `json:"failovers_while_held"`     // a lock was held when the lead was taken away
	ClockJumpsWhileHeld  int            `json:"clock_jumps_while_held"`   // jumps and strobes of a server's clock while a lock was held, or of its holder's clock
	PausesOverLease      int            `json:"pauses_over_lease"`        // pauses of a holder that outlived its lease
	StaleAccessesSent    int            `json:"stale_accesses_sent"`      // reads and writes sent with a token that had been overtaken
	StaleWritesApplied   int            `json:"stale_writes_applied"`
	WritesRefused        int            `json:"writes_refused"` // by the store's fence
	ReadsRefused         int            `json:"reads_refused"`
	AccessesWithoutToken int            `json:"accesses_without_token"` // applied by the store without a fence
	LateGrants           int            `json:"late_grants"`            // whose lease was over when they arrived
	Operations           int            `json:"operations"`             // completed, of workers
	Info                 int            `json:"info"`                   // operations whose outcome is not known
}

// earned is what a pass needs beside the absence of anomalies.
type earned struct {
	contested    bool // grants of one key to two processes, and an acquire of it that waited or was refused
	tokens       bool
	twoTokens    bool // on one key
	release      bool
	twoAccessors bool // accesses of two grants to one key
	handOver     bool
}

// countGrant takes a grant whose section is final, in the order of the oks of
// its key.
func (j *Judge) countGrant(g *grant) {
	k, e := g.key, &j.exp
	e.AcquiresOK++
	j.results[Exclusion].Checked++
	j.results[Lease].Checked++
	k.procs[g.proc] = true
	for _, h := range k.active {
		if h.proc != g.proc && h.end.at > g.invoke {
			e.AcquiresWaited++
			k.contended = true
			break
		}
	}
	if k.hasLast && k.lastProc != g.proc {
		e.HandOvers++
		j.results[Progress].Checked++
		j.earned.handOver = true
	}
	k.lastProc, k.hasLast = g.proc, true
	if g.promise == timed && g.terms[0].end <= g.ok {
		e.LateGrants++
	}
	j.countFaultsAt(g)
	for _, f := range j.faults.all[k.calm:] {
		f.meet(g)
		if f.name == pauseFault && !f.overLease && f.done != inf && f.targeted(g.proc) &&
			f.done < g.end.at && f.done >= g.ok && f.healed > g.promisedEnd() && g.promise != forever {
			f.overLease = true
		}
	}
}

// meet notes that a fault which is aimed at no worker was in force during g's
// section.
func (f *fault) meet(g *grant) {
	if f.done != inf && !f.phaseless && len(f.targets) == 0 && g.ok <= f.healed && g.end.at >= f.done {
		f.overHold = true
	}
}

func (f *fault) targeted(p history.Process) bool {
	for _, t := range f.targets {
		if t == p {
			return true
		}
	}
	return false
}

// countFaultsAt files a grant as before, during or after the faults.
func (j *Judge) countFaultsAt(g *grant) {
	k := g.key
	for k.calm < len(j.faults.all) && j.faults.all[k.calm].over(g.ok) {
		k.calm++
	}
	during := false
	for _, f := range j.faults.all[k.calm:] {
		during = during || (f.done <= g.ok && g.ok <= f.healed)
	}
	switch {
	case g.ok < j.faults.first():
		j.exp.AcquiresBeforeFaults++
	case during:
		j.exp.AcquiresDuringFaults++
	default:
		j.exp.AcquiresAfterFaults++
	}
}

func (j *Judge) finishExposure() {
	e := &j.exp
	e.Faults = map[string]int{}
	for _, f := range j.faults.all {
		switch {
		case f.done != inf:
			e.Faults[f.name]++
			if len(f.victims) > 0 || f.overHold {
				e.FaultsOverHold++
			}
			switch {
			case !f.whileHeld:
			case f.name == failoverFault:
				e.FailoversWhileHeld++
			default:
				e.ClockJumpsWhileHeld++
			}
			if f.overLease {
				e.PausesOverLease++
			}
		case f.skipped:
			e.FaultsSkipped++
		}
	}
	holders := map[history.Process]bool{}
	for _, k := range j.order {
		j.earned.contested = j.earned.contested || (k.contended && len(k.procs) > 1)
		for p := range k.procs {
			holders[p] = true
		}
	}
	e.Holders = len(holders)
}

// decide turns the absence of anomalies into valid, or into unknown where
// nothing was checked.
func (j *Judge) decide(name string, r *Result) {
	e := &j.earned
	if r.AnomalyCount > 0 {
		r.Verdict = Invalid
		return
	}
	unknown := func(earned bool, reason string) {
		if !earned && r.Verdict == Valid {
			r.Verdict, r.Reason = Unknown, "nothing checked: "+reason
		}
	}
	switch name {
	case Exclusion, Lease, Linearizable:
		unknown(e.contested, "no key was granted to two processes with an acquire that waited or was refused")
	case Fencing:
		if j.exp.AcquiresOK > 0 && !e.tokens {
			r.Verdict, r.Reason = NotApplicable, "this lock gives no tokens: nothing can fence a holder that has lost it"
			return
		}
		unknown(e.twoTokens, "there were no two tokens on one key")
	case Release:
		unknown(e.release, "there was no release")
	case Data:
		if j.store.late {
			r.Verdict, r.Reason = Unknown, "the store's entries stand too far from their own order"
		}
		unknown(e.twoAccessors, "no two grants accessed one key in the store")
	case Progress:
		unknown(e.handOver, "no lock was handed over from one process to another")
	}
}

// nemesis takes a fault's event.
func (j *Judge) nemesis(o *history.Op) {
	f, phase := j.faults.phase(o)
	switch phase {
	case history.Asked:
		for _, t := range f.targets {
			if p := j.procs[t]; p != nil {
				f.victims = append(f.victims, p.held...)
				if f.name == killFault {
					p.dying++
				}
			}
		}
		f.whileHeld = countsWhileHeld(f.name) && (len(f.victims) > 0 || len(f.targets) == 0 && j.anyHeld())
		if f.phaseless && f.name == killFault {
			j.killed(f)
		}
	case history.Done:
		if f.name == killFault && !f.phaseless {
			j.killed(f)
		}
		if f.healed == o.Time { // it is over with that
			j.avail.healed(f.name, o.Time)
		}
	case history.Healed:
		if f.healed == o.Time && f.done != inf {
			j.avail.healed(f.name, o.Time)
		}
	case history.Skipped:
		f.victims = nil
		j.undying(f)
	}
}

// anyHeld reports whether anybody believes to hold a lock at this moment.
func (j *Judge) anyHeld() bool {
	for _, p := range j.procs {
		if len(p.held) > 0 {
			return true
		}
	}
	return false
}

// killed ends the sections of the victims with the stamp at which the kill was
// asked for: from then on nobody can tell whether they still ran.
func (j *Judge) killed(f *fault) {
	victims := slices.Clone(f.victims)
	for _, t := range f.targets {
		if p := j.procs[t]; p != nil {
			victims = append(victims, p.held...) // an ok may still have been on its way
		}
	}
	for _, g := range victims {
		j.endSection(j.procs[g.proc], g, &history.Op{Time: max(f.asked, g.ok), Index: f.askedIdx}, whyKilled)
	}
	j.undying(f)
}

func (j *Judge) undying(f *fault) {
	if f.name != killFault {
		return
	}
	for _, t := range f.targets {
		if p := j.procs[t]; p != nil {
			p.dying = max(0, p.dying-1)
			j.settle(p)
		}
	}
}
