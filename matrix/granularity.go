package matrix

import (
	"math"
	"slices"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

// Orders says how a stream of orders got through the locks that cut it up.
type Orders struct {
	Keys      string          `json:"keys"`       // coarse, user, order, or a number
	Locks     int             `json:"locks"`      // different keys that were taken
	Done      int             `json:"orders"`     // that were granted their lock
	PerSecond float64         `json:"per_second"` // of them
	P50       time.Duration   `json:"wait_p50_ns"`
	P99       time.Duration   `json:"wait_p99_ns"`
	Max       time.Duration   `json:"wait_max_ns"`
	Contended float64         `json:"contended"`         // share of the orders that found their lock taken
	Refused   float64         `json:"refused_per_order"` // tries that were refused
	Anomalies int             `json:"anomalies"`         // of the required properties
	Verdict   checker.Verdict `json:"verdict"`
	Dir       string          `json:"dir"`
}

// waiting is an order that has not been granted its lock yet.
type waiting struct {
	since     int64
	contended bool
}

// MeasureOrders reads from a history how long orders waited for their locks: from
// the first try to the grant. lasted is how long the workload went on.
func MeasureOrders(keys string, ops []history.Op, lasted time.Duration) Orders {
	o := Orders{Keys: keys}
	waits := map[history.Process]*waiting{}
	holds := map[string]map[history.Process]bool{}
	var times []time.Duration
	refused, contended := 0, 0
	for i := range ops {
		op := &ops[i]
		if op.Process < 0 {
			continue
		}
		if holds[op.Key] == nil {
			holds[op.Key] = map[history.Process]bool{}
		}
		w := waits[op.Process]
		switch {
		case op.F == history.Acquire && op.Type == history.Invoke:
			if w == nil {
				w = &waiting{since: op.Time, contended: len(holds[op.Key]) > 0}
				waits[op.Process] = w
			}
		case op.F == history.Acquire && op.Type == history.OK && w != nil:
			times = append(times, time.Duration(op.Time-w.since))
			if w.contended {
				contended++
			}
			delete(waits, op.Process)
			holds[op.Key][op.Process] = true
		case op.F == history.Acquire && op.Type == history.Fail && w != nil:
			if op.Error == history.ErrHeld || op.Error == history.ErrNoQuorum {
				w.contended = true
				refused++
			}
		case op.F == history.Release && op.Type != history.Invoke, op.Type == history.Info:
			delete(holds[op.Key], op.Process)
		}
	}
	for k := range holds {
		if k != "" {
			o.Locks++
		}
	}
	o.Done = len(times)
	if o.Done == 0 {
		return o
	}
	slices.Sort(times)
	o.P50, o.P99, o.Max = quantile(times, 0.5), quantile(times, 0.99), times[len(times)-1]
	o.Contended, o.Refused = float64(contended)/float64(o.Done), float64(refused)/float64(o.Done)
	if lasted > 0 {
		o.PerSecond = float64(o.Done) / lasted.Seconds()
	}
	return o
}

// quantile of sorted times: the smallest that a share q of them does not exceed.
func quantile(times []time.Duration, q float64) time.Duration {
	i := int(math.Ceil(q*float64(len(times)))) - 1
	return times[min(max(i, 0), len(times)-1)]
}
