package checker

import (
	"cmp"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockcheck/lockcheck/history"
)

// Availability says how well the lock could be had, as docs/results-format.md
// defines it. It is no part of the verdict: a lock that gives nothing to anybody
// is safe, and this shows what that costs. Times are milliseconds.
type Availability struct {
	// Available is the share of the wanted time that was not lost; absent when
	// nobody ever tried.
	Available *float64 `json:"available,omitempty"`
	Wanted    float64  `json:"wanted_ms"` // in which somebody tried, over all keys
	Lost      float64  `json:"lost_ms"`   // of it, in windows without a grant
	Longest   float64  `json:"longest_ms"`
	AtLeast   float64  `json:"window_at_least_ms"` // what counts as a window
	Windows   int      `json:"windows"`
	// Unavailable are the windows in order of their beginnings, the longest
	// maxWindows of them.
	Unavailable []Window            `json:"unavailable_ms"`
	Acquire     Quantiles           `json:"acquire_ms"` // of acquires that were ok
	Recovery    map[string]Recovery `json:"recovery_ms,omitempty"`
	HandOver    *HandOver           `json:"hand_over_ms,omitempty"` // absent when no holder died
	// Fairness is Jain's index of the grants of those workers that asked: 1 when
	// all got as many, 1/n when one got them all; absent without grants.
	Fairness *float64 `json:"fairness,omitempty"`
	Workers  int      `json:"workers"` // that asked
}

// A Window is a stretch in which somebody tried for a key and nobody was
// granted it, although no holder was at work.
type Window struct {
	Key    string  `json:"key"`
	From   float64 `json:"from"`
	To     float64 `json:"to"`
	Faults []int   `json:"faults,omitempty"` // indexes of the events that began the faults in force
}

// Quantiles of what took time, by nearest rank.
type Quantiles struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Recovery is how long the first grant let wait after the heals of one kind of
// fault.
type Recovery struct {
	Quantiles
	Never int `json:"never,omitempty"` // heals after which somebody tried, and nobody was granted anything
}

// HandOver is how long a lock let wait after its holder's death.
type HandOver struct {
	Quantiles
	TTL   float64 `json:"ttl"`
	OfTTL float64 `json:"max_of_ttl"` // the longest, as a multiple of the TTL
	Never int     `json:"never,omitempty"`
}

const (
	// maxWindows is how many windows are kept; their number and sum go on.
	maxWindows = 100
	// A gap between two grants counts as a window from a tenth of the TTL on,
	// and from windowAtLeast: a lock that polls needs some time to change hands,
	// which is its price and no outage.
	windowOfTTL   = 10
	windowAtLeast = int64(100e6)
)

// availability follows a history for the figures of Availability.
type availability struct {
	latency  *hdrhistogram.Histogram
	slowest  int64
	grants   map[history.Process]int // by worker; those that asked
	workers  history.Process         // how many there are; 0 if that is not known
	open     int                     // acquires
	healing  []*heal
	recovery map[string]*waits

	wanted, lost, longest, least int64
	count                        int
	windows                      []outage

	handOver waits
	ofTTL    float64
	ttl      int64
}

// A heal is one after which nobody was granted anything yet.
type heal struct {
	name  string
	since history.Opt[int64] // from then on somebody tried
}

// waits are those after one kind of thing: few enough to keep.
type waits struct {
	took  []int64
	never int
}

type outage struct {
	span
	key string
}

func newAvailability(h *history.Header) availability {
	return availability{
		latency: hdrhistogram.New(latencyFrom, latencyTo, latencyDigits), grants: map[history.Process]int{},
		workers: history.Process(h.Workers()), recovery: map[string]*waits{},
	}
}

// The histogram of latencies is exact to a thousandth, between a microsecond and
// an hour; its size is fixed.
const (
	latencyFrom   = int64(1e3)
	latencyTo     = int64(3600e9)
	latencyDigits = 3
)

// worker gives the worker that a process number belongs to: after an unknown
// outcome it goes on under its number plus the count of workers.
func (a *availability) worker(p history.Process) history.Process {
	if a.workers > 0 {
		return p % a.workers
	}
	return p
}

func (a *availability) begin(k *keyState, p history.Process, at, ttl int64) {
	a.open++
	a.grants[a.worker(p)] += 0
	for _, h := range a.healing {
		if !h.since.Set {
			h.since = history.Some(at)
		}
	}
	k.want.begin(at, ttl)
}

func (a *availability) end(k *keyState, p history.Process, from, at int64, ok bool) {
	a.open--
	k.want.end(at, ok)
	if !ok {
		return
	}
	a.grants[a.worker(p)]++
	took := at - from
	a.slowest = max(a.slowest, took)
	_ = a.latency.RecordValue(min(max(took, latencyFrom), latencyTo)) // it is within the bounds
	for _, h := range a.healing {
		w := a.waitsOf(h.name)
		w.took = append(w.took, at-h.since.Or(at))
	}
	a.healing = a.healing[:0]
}

func (a *availability) waitsOf(name string) *waits {
	w := a.recovery[name]
	if w == nil {
		w = &waits{}
		a.recovery[name] = w
	}
	return w
}

// healed takes the end of a fault.
func (a *availability) healed(name string, at int64) {
	h := &heal{name: name}
	if a.open > 0 {
		h.since = history.Some(at)
	}
	a.healing = append(a.healing, h)
}

// wanting follows the time in which somebody tries for one key: while an acquire
// is open, and from one that was not granted to the next if that comes within
// the TTL.
type wanting struct {
	open    int
	begun   bool
	granted bool // what the last acquire came to after which none was open
	ttl     int64
	current span
	past    []span

	from  int64  // what came before is counted
	busy  []span // holders at work, in the order of their grants
	death *death
}

// A death is that of a holder after which nobody was granted the key yet.
type death struct {
	at   int64
	proc history.Process
}

func (w *wanting) begin(at, ttl int64) {
	w.ttl = max(w.ttl, ttl)
	if w.begun && w.open == 0 && (w.granted || at-w.current.to > w.within()) {
		w.past, w.begun = append(w.past, w.current), false
	}
	if !w.begun {
		w.begun, w.current = true, span{at, at}
	}
	w.open++
}

func (w *wanting) end(at int64, granted bool) {
	w.open--
	if w.open == 0 {
		w.current.to, w.granted = at, granted
	}
}

func (w *wanting) within() int64 {
	if w.ttl > 0 {
		return w.ttl
	}
	return ttlUnknown
}

// least is the shortest window.
func (w *wanting) least() int64 { return max(w.within()/windowOfTTL, windowAtLeast) }

// until gives the wanted time from w.from to t, and goes on from there.
func (w *wanting) until(t int64) []span {
	var out, later []span
	all := w.past
	if w.begun {
		c := w.current
		if w.open > 0 {
			c.to = inf
		}
		all = append(all, c)
	}
	for i, s := range all {
		if cut := (span{max(s.from, w.from), min(s.to, t)}); cut.from < cut.to {
			out = append(out, cut)
		}
		if s.to > t && i < len(w.past) {
			later = append(later, s)
		}
	}
	w.past, w.from = later, max(w.from, t)
	return out
}

// passed counts the time of a key up to t, at which it was granted or the history
// ends: everything that was granted before is final.
func (a *availability) passed(k *keyState, t int64) {
	w := &k.want
	for _, s := range w.until(t) {
		a.wanted += s.to - s.from
		for _, g := range gaps(s, w.busy) {
			if g.to-g.from >= w.least() {
				a.note(outage{g, k.name})
			}
		}
	}
	w.busy = slices.DeleteFunc(w.busy, func(b span) bool { return b.to <= t })
}

func (a *availability) note(w outage) {
	took := func(w outage) int64 { return w.to - w.from }
	a.count++
	a.lost += took(w)
	a.longest = max(a.longest, took(w))
	if len(a.windows) < maxWindows {
		a.windows = append(a.windows, w)
		return
	}
	i := 0
	for n := range a.windows {
		if took(a.windows[n]) < took(a.windows[i]) {
			i = n
		}
	}
	if took(w) > took(a.windows[i]) {
		a.windows[i] = w
	}
}

// available takes a grant whose section is final, in the order of the oks of its
// key.
func (j *Judge) available(g *grant) {
	a, w := &j.avail, &g.key.want
	if d := w.death; d != nil && d.proc != g.proc && d.at <= g.ok {
		a.handedOver(w, w.since(d.at, g.ok), g.ok)
	}
	w.death = nil
	a.passed(g.key, g.ok)
	w.busy = append(w.busy, j.atWork(g)...)
	slices.SortFunc(w.busy, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	if g.end.why == whyKilled || g.end.why == whyCrashed {
		w.death = &death{g.end.at, g.proc}
	}
}

// since gives the first moment from a death on in which the key was wanted; t if
// there was none before.
func (w *wanting) since(death, t int64) int64 {
	for _, s := range w.past {
		if s.to > death {
			return max(s.from, death)
		}
	}
	if w.begun && (w.open > 0 || w.current.to > death) {
		return min(max(w.current.from, death), t)
	}
	return t
}

func (a *availability) handedOver(w *wanting, from, to int64) {
	a.handOver.took = append(a.handOver.took, to-from)
	a.ttl = max(a.ttl, w.within())
	a.ofTTL = max(a.ofTTL, float64(to-from)/float64(w.within()))
}

// atWork gives the parts of g's section in which its process was not paused.
func (j *Judge) atWork(g *grant) []span {
	var stopped []span
	for _, f := range j.faults.all[g.key.calm:] {
		if f.name != pauseFault || f.done == inf || !f.targeted(g.proc) {
			continue
		}
		s := span{f.done, f.healed}
		if f.phaseless {
			s.from = f.asked
		}
		stopped = append(stopped, s)
	}
	slices.SortFunc(stopped, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return gaps(span{g.ok, g.end.at}, stopped)
}

// finishAvailability ends the history and gives the figures.
func (j *Judge) finishAvailability() *Availability {
	a := &j.avail
	for _, h := range a.healing {
		if h.since.Set && h.since.V < j.now {
			a.waitsOf(h.name).never++
		}
	}
	for _, k := range j.order {
		if d := k.want.death; d != nil && k.want.since(d.at, j.now) < j.now {
			a.handOver.never++
			a.ttl = max(a.ttl, k.want.within())
		}
		a.passed(k, j.now)
		a.least = max(a.least, k.want.least())
	}
	out := &Availability{
		Wanted: millis(a.wanted), Lost: millis(a.lost), Longest: millis(a.longest), AtLeast: millis(a.least),
		Windows: a.count, Unavailable: []Window{}, Workers: len(a.grants), Fairness: a.fairness(),
		Acquire: Quantiles{
			Count: int(a.latency.TotalCount()), Max: millis(a.slowest),
			P50: millis(min(a.latency.ValueAtQuantile(50), a.slowest)), P99: millis(min(a.latency.ValueAtQuantile(99), a.slowest)),
		},
	}
	if a.wanted > 0 {
		share := 1 - float64(a.lost)/float64(a.wanted)
		out.Available = &share
	}
	slices.SortFunc(a.windows, func(a, b outage) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.key, b.key)) })
	for _, w := range a.windows {
		out.Unavailable = append(out.Unavailable, Window{w.key, millis(w.from), millis(w.to), j.faults.during(w.from, w.to)})
	}
	if len(a.recovery) > 0 {
		out.Recovery = map[string]Recovery{}
	}
	for name, w := range a.recovery {
		out.Recovery[name] = Recovery{w.quantiles(), w.never}
	}
	if h := &a.handOver; len(h.took)+h.never > 0 {
		out.HandOver = &HandOver{Quantiles: h.quantiles(), TTL: millis(a.ttl), OfTTL: math.Round(a.ofTTL*1e3) / 1e3, Never: h.never}
	}
	return out
}

// fairness is Jain's index, (sum x)^2 / (n sum x^2).
func (a *availability) fairness() *float64 {
	sum, squares := 0.0, 0.0
	for _, n := range a.grants {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return nil
	}
	index := sum * sum / (float64(len(a.grants)) * squares)
	return &index
}

func (w *waits) quantiles() Quantiles {
	n := len(w.took)
	if n == 0 {
		return Quantiles{}
	}
	slices.Sort(w.took)
	rank := func(q float64) float64 { return millis(w.took[max(int(math.Ceil(q*float64(n)))-1, 0)]) }
	return Quantiles{Count: n, P50: rank(0.5), P99: rank(0.99), Max: rank(1)}
}

// millis is ns in ms, to the microsecond.
func millis(ns int64) float64 { return math.Round(float64(ns)/1e3) / 1e3 }
