package checker

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lockcheck/lockcheck/history"
)

const testTTL = int64(1e9)

// A story draws a history in which processes ask, hold, give up, are paused and
// die.
type story struct {
	t     *rapid.T
	ops   []history.Op
	now   int64
	grant uint64
	fault int

	open   map[history.Process]*history.Op
	dead   map[history.Process]bool
	held   map[history.Process]map[string]uint64
	procs  []history.Process
	paused map[int]history.Process
}

const storyWorkers = 3

func drawStory(t *rapid.T) *story {
	s := &story{
		t: t, open: map[history.Process]*history.Op{}, dead: map[history.Process]bool{},
		held: map[history.Process]map[string]uint64{}, paused: map[int]history.Process{},
	}
	for w := range history.Process(storyWorkers) {
		s.procs = append(s.procs, w)
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		s.step()
	}
	return s
}

func (s *story) event(o history.Op) {
	s.now += rapid.SampledFrom([]int64{2e3, 2e6, 60e6, 150e6, 700e6, 1400e6}).Draw(s.t, "later")
	o.Time, o.Index = s.now, len(s.ops)
	s.ops = append(s.ops, o)
}

func (s *story) step() {
	w := rapid.IntRange(0, storyWorkers-1).Draw(s.t, "worker")
	p := s.procs[w]
	key := rapid.SampledFrom([]string{"a", "b"}).Draw(s.t, "key")
	op := s.open[p]
	switch what := rapid.IntRange(0, 9).Draw(s.t, "what"); {
	case what == 0:
		s.nemesis(w, rapid.Bool().Draw(s.t, "kill"))
	case s.dead[p] && op == nil:
		s.dead[p] = false
		s.procs[w] += storyWorkers
	case op != nil:
		s.complete(w, op)
	case what < 6:
		s.invoke(p, history.Op{F: history.Acquire, Key: key, TTL: history.Some(testTTL)})
	default:
		if g, ok := s.held[p][key]; ok {
			delete(s.held[p], key)
			s.invoke(p, history.Op{F: history.Release, Key: key, Grant: history.Some(g)})
		}
	}
}

func (s *story) invoke(p history.Process, o history.Op) {
	o.Process, o.Type = p, history.Invoke
	s.open[p] = &o
	s.event(o)
}

func (s *story) complete(w int, op *history.Op) {
	p := s.procs[w]
	o := history.Op{Process: p, F: op.F, Key: op.Key, Grant: op.Grant}
	o.Type = rapid.SampledFrom([]history.Type{history.OK, history.OK, history.Fail, history.Info}).Draw(s.t, "type")
	if s.dead[p] {
		o.Type, o.Error = history.Info, history.ErrCrashed
	}
	switch {
	case o.Type == history.OK && op.F == history.Acquire:
		s.grant++
		o.Grant, o.Valid = history.Some(s.grant), history.Some(testTTL)
		if s.held[p] == nil {
			s.held[p] = map[string]uint64{}
		}
		s.held[p][op.Key] = s.grant
	case o.Type == history.Info:
		s.procs[w] += storyWorkers
		s.dead[p] = false
	}
	delete(s.open, p)
	s.event(o)
}

// nemesis kills a worker, pauses it, or ends a pause.
func (s *story) nemesis(w int, kill bool) {
	p := s.procs[w]
	for n, q := range s.paused {
		if !kill && q == p {
			delete(s.paused, n)
			s.fate(pauseFault, n, history.Healed, p)
			return
		}
	}
	n := s.fault
	s.fault++
	if !kill {
		s.paused[n] = p
		s.fate(pauseFault, n, history.Asked, p)
		s.fate(pauseFault, n, history.Done, p)
		return
	}
	if s.dead[p] {
		return
	}
	s.dead[p] = true
	s.fate(killFault, n, history.Asked, p)
	s.fate(killFault, n, history.Done, p)
}

func (s *story) fate(name string, n int, phase string, p history.Process) {
	v, _ := json.Marshal(map[string]any{"fault": n, "phase": phase, "targets": []history.Process{p}})
	s.event(history.Op{Process: history.Nemesis, Type: history.Info, F: name, Value: v})
}

// The figures are those that come out when each moment is looked at by itself.
func TestAvailabilityAgreesWithOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		h := history.Header{Params: json.RawMessage(fmt.Sprintf(`{"workers":%d}`, storyWorkers))}
		got := Check(context.Background(), s.ops, h).Availability
		want := (&oracle{ops: s.ops, end: s.now}).figures()
		if diff := differs(got, want); diff != "" {
			var b strings.Builder
			for i := range s.ops {
				b.Write(history.AppendJSON(nil, &s.ops[i]))
				b.WriteByte('\n')
			}
			t.Fatalf("%s\n%s", diff, b.String())
		}
	})
}

func differs(got, want *Availability) string {
	near := func(a, b float64) bool { return math.Abs(a-b) <= 0.002+0.002*math.Abs(b) }
	shares := func(p *float64) float64 {
		if p == nil {
			return -1
		}
		return *p
	}
	for _, c := range []struct {
		what string
		a, b float64
	}{
		{"available", shares(got.Available), shares(want.Available)}, {"wanted", got.Wanted, want.Wanted}, {"lost", got.Lost, want.Lost},
		{"longest", got.Longest, want.Longest}, {"windows", float64(got.Windows), float64(want.Windows)},
		{"fairness", shares(got.Fairness), shares(want.Fairness)}, {"workers", float64(got.Workers), float64(want.Workers)},
		{"acquires", float64(got.Acquire.Count), float64(want.Acquire.Count)}, {"p50", got.Acquire.P50, want.Acquire.P50},
		{"p99", got.Acquire.P99, want.Acquire.P99}, {"max", got.Acquire.Max, want.Acquire.Max},
	} {
		if !near(c.a, c.b) {
			return fmt.Sprintf("%s is %v, and %v for the oracle", c.what, c.a, c.b)
		}
	}
	for i := range min(len(got.Unavailable), len(want.Unavailable)) {
		a, b := got.Unavailable[i], want.Unavailable[i]
		if a.Key != b.Key || a.From != b.From || a.To != b.To {
			return fmt.Sprintf("window %d is %v, and %v for the oracle", i, a, b)
		}
	}
	if a, b := fmt.Sprint(got.Recovery), fmt.Sprint(want.Recovery); a != b {
		return fmt.Sprintf("recoveries are %s, and %s for the oracle", a, b)
	}
	var a, b HandOver
	if got.HandOver != nil {
		a = *got.HandOver
	}
	if want.HandOver != nil {
		b = *want.HandOver
	}
	if a != b {
		return fmt.Sprintf("hand-overs are %v, and %v for the oracle", a, b)
	}
	return ""
}

// An oracle computes the same from whole lists, one moment at a time.
type oracle struct {
	ops []history.Op
	end int64
}

type try struct {
	proc     history.Process
	key      string
	grant    history.Opt[uint64]
	from, to int64
	ok       bool
	end      int64 // of the section
	died     bool
}

func (o *oracle) tries() []*try {
	var all []*try
	for i := range o.ops {
		e := &o.ops[i]
		if e.F != history.Acquire || e.Type != history.Invoke {
			continue
		}
		y := &try{proc: e.Process, key: e.Key, from: e.Time, to: math.MaxInt64, end: math.MaxInt64}
		for k := i + 1; k < len(o.ops); k++ {
			if c := &o.ops[k]; c.Process == e.Process {
				y.to, y.ok, y.grant = c.Time, c.Type == history.OK, c.Grant
				if y.ok {
					o.section(y, k)
				}
				break
			}
		}
		all = append(all, y)
	}
	return all
}

// section looks for the first that ends what was granted with event n. The end
// of a worker says something only if nothing else told before, or of a release
// that it may never have sent.
func (o *oracle) section(y *try, n int) {
	heard, told := int64(0), false
	end := func(at int64, died bool) {
		if at = max(at, y.to); at < y.end {
			y.end, y.died = at, died
		}
	}
	for i := range o.ops {
		e := &o.ops[i]
		v, _ := history.FaultOf(e)
		switch {
		case e.Process == history.Nemesis:
			if e.F == killFault && v.Phase == history.Asked && slices.Contains(v.Processes(), y.proc) {
				end(e.Time, true)
				told = told || i > n
			}
		case e.Process != y.proc:
		case i > n && e.Type == history.Invoke && e.Key == y.key:
			end(e.Time, false)
			told = told || e.F == history.Acquire
		case i > n && e.Type == history.Info:
			if e.Error != "" && (!told || e.F == history.Release && e.Grant == y.grant) {
				end(heard, true)
			} else {
				end(e.Time, false)
			}
		}
		if e.Process == y.proc && e.Type != history.Invoke {
			heard = e.Time
		}
	}
}

func (o *oracle) paused(p history.Process, t int64) bool {
	by := map[int]bool{}
	for i := range o.ops {
		e := &o.ops[i]
		v, _ := history.FaultOf(e)
		if e.Time < t && e.F == pauseFault && slices.Contains(v.Processes(), p) {
			by[v.Fault] = v.Phase == history.Done
		}
	}
	for _, on := range by {
		if on {
			return true
		}
	}
	return false
}

// wanted reports whether somebody tries for the key at t, at which nothing
// happens.
func wanted(all []*try, key string, t int64) bool {
	last, next := (*try)(nil), int64(math.MaxInt64)
	for _, y := range all {
		switch {
		case y.key != key:
		case y.from < t && t < y.to:
			return true
		case y.to < t && (last == nil || y.to > last.to):
			last = y
		case y.from > t:
			next = min(next, y.from)
		}
	}
	return last != nil && !last.ok && next != math.MaxInt64 && next-last.to <= testTTL
}

func (o *oracle) figures() *Availability {
	all := o.tries()
	out := &Availability{Recovery: map[string]Recovery{}}
	o.windows(all, out)
	o.grants(all, out)
	o.recoveries(all, out)
	o.handOvers(all, out)
	if len(out.Recovery) == 0 {
		out.Recovery = nil
	}
	return out
}

func (o *oracle) windows(all []*try, out *Availability) {
	var total, lost, longest int64
	for _, key := range []string{"a", "b"} {
		var stretch *span
		close := func() {
			if stretch != nil && stretch.to-stretch.from >= 100e6 {
				out.Windows++
				lost += stretch.to - stretch.from
				longest = max(longest, stretch.to-stretch.from)
				out.Unavailable = append(out.Unavailable, Window{Key: key, From: millis(stretch.from), To: millis(stretch.to)})
			}
			stretch = nil
		}
		for i := 1; i < len(o.ops); i++ {
			from, to := o.ops[i-1].Time, o.ops[i].Time
			if e := &o.ops[i-1]; e.F == history.Acquire && e.Type == history.OK && e.Key == key {
				close()
			}
			m := from + 1
			free := wanted(all, key, m)
			if free {
				total += to - from
			}
			for _, y := range all {
				if y.key == key && y.ok && y.to < m && m < y.end && !o.paused(y.proc, m) {
					free = false
				}
			}
			switch {
			case !free:
				close()
			case stretch == nil:
				stretch = &span{from, to}
			default:
				stretch.to = to
			}
		}
		close()
	}
	slices.SortFunc(out.Unavailable, func(a, b Window) int {
		if a.From != b.From {
			return int(math.Copysign(1, a.From-b.From))
		}
		return strings.Compare(a.Key, b.Key)
	})
	out.Wanted, out.Lost, out.Longest = millis(total), millis(lost), millis(longest)
	if total > 0 {
		share := 1 - float64(lost)/float64(total)
		out.Available = &share
	}
}

func (o *oracle) grants(all []*try, out *Availability) {
	var took waits
	by := map[history.Process]int{}
	for _, y := range all {
		by[y.proc%storyWorkers] += 0
		if y.ok {
			by[y.proc%storyWorkers]++
			took.took = append(took.took, y.to-y.from)
		}
	}
	out.Acquire, out.Workers = took.quantiles(), len(by)
	sum, squares := 0.0, 0.0
	for _, n := range by {
		sum, squares = sum+float64(n), squares+float64(n*n)
	}
	if squares > 0 {
		f := sum * sum / squares / float64(len(by))
		out.Fairness = &f
	}
}

func (o *oracle) recoveries(all []*try, out *Availability) {
	took, never := map[string]*waits{}, map[string]int{}
	for i := range o.ops {
		e := &o.ops[i]
		v, _ := history.FaultOf(e)
		if e.Process != history.Nemesis || v.Phase != history.Healed && (v.Phase != history.Done || e.F != killFault) {
			continue
		}
		since, ok := int64(math.MaxInt64), int64(math.MaxInt64)
		for _, y := range all {
			if y.to > e.Time {
				since = min(since, max(y.from, e.Time))
				if y.ok {
					ok = min(ok, y.to)
				}
			}
		}
		switch {
		case ok != math.MaxInt64:
			if took[e.F] == nil {
				took[e.F] = &waits{}
			}
			took[e.F].took = append(took[e.F].took, ok-since)
		case since < o.end:
			never[e.F]++
		}
	}
	for _, name := range []string{killFault, pauseFault} {
		if took[name] != nil || never[name] > 0 {
			r := Recovery{Never: never[name]}
			if took[name] != nil {
				r.Quantiles = took[name].quantiles()
			}
			out.Recovery[name] = r
		}
	}
}

func (o *oracle) handOvers(all []*try, out *Availability) {
	var h HandOver
	var took waits
	for _, y := range all {
		if !y.ok || !y.died {
			continue
		}
		var next *try
		for _, z := range all {
			if z.key == y.key && z.ok && z.to > y.to && (next == nil || z.to < next.to) {
				next = z
			}
		}
		until := o.end
		if next != nil {
			until = next.to
		}
		since := until
		for i := len(o.ops) - 2; i >= 0 && o.ops[i].Time >= y.end; i-- {
			if o.ops[i].Time < until && wanted(all, y.key, o.ops[i].Time+1) {
				since = o.ops[i].Time
			}
		}
		switch {
		case next == nil && since < until:
			h.Never++
		case next != nil && next.to >= y.end && next.proc != y.proc:
			took.took = append(took.took, until-since)
		}
	}
	if len(took.took)+h.Never == 0 {
		return
	}
	h.Quantiles, h.TTL = took.quantiles(), millis(testTTL)
	h.OfTTL = math.Round(h.Max*1e6/float64(testTTL)*1e3) / 1e3
	out.HandOver = &h
}
