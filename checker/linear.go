package checker

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockcheck/lockcheck/checker/linear"
	"github.com/lockcheck/lockcheck/history"
)

const kindNotLinearizable = "not-linearizable"

// linearity follows the lock operations for the linearizability decision.
type linearity struct {
	builder *linear.Builder // nil: nobody wants to know
	illegal *linear.Result  // the first key that has no order
}

func (l *linearity) start(h history.Header) { l.builder = linear.NewBuilder(h) }

func (l *linearity) add(o *history.Op) {
	if l.builder != nil {
		l.builder.Add(o)
	}
}

// finish decides each key. A key that could not be decided makes the property
// unknown; it never hides another key that is illegal.
func (l *linearity) finish(ctx context.Context, j *Judge) {
	if l.builder == nil {
		return
	}
	r := j.results[Linearizable]
	for _, k := range l.builder.Finish(ctx, linear.Options{}) {
		r.Checked += k.Checked
		switch k.Verdict {
		case linear.Illegal:
			if l.illegal == nil {
				l.illegal = &k
			}
			from, to := j.now, int64(0)
			for _, o := range k.Window {
				from = min(from, o.Call)
				to = max(to, min(o.Return, j.now))
			}
			j.report(Linearizable, Anomaly{Kind: kindNotLinearizable, Key: k.Key, Ops: k.Ops, Message: k.Reason}, from, max(from, to))
		case linear.Unknown:
			if r.Verdict == Valid {
				r.Verdict = Unknown
			}
			r.Reason = strings.TrimPrefix(fmt.Sprintf("%s; %s: %s", r.Reason, quoted(k.Key), k.Reason), "; ")
		}
	}
}
