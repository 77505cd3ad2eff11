package history

import "fmt"

// order refuses histories in which events do not pair up: the rules under
// "Malformed histories" in docs/history.md.
type order struct {
	last  int64
	procs map[Process]*procOrder
	// recent are some of procs, by the last bits of their numbers.
	recent [64]*procOrder
}

type procOrder struct {
	id       Process
	open     string // f of the open invocation
	openLine int
	ended    int // line of the info completion that retired the process
}

func newOrder() order { return order{last: -1 << 63, procs: map[Process]*procOrder{}} }

// accept gives the reason why o cannot come next, or "". timed is false for
// formats whose times are advisory.
func (r *order) accept(o *Op, line int, timed bool) string {
	if timed && o.Time < r.last {
		return fmt.Sprintf("time runs backwards: %d ns after %d ns", o.Time, r.last)
	}
	r.last = max(r.last, o.Time)
	if !o.Process.Worker() || (o.Type == Info && Single(o.F)) {
		return ""
	}
	p := r.process(o.Process)
	if o.Type == Invoke {
		switch {
		case p.ended > 0:
			return fmt.Sprintf("process %d invokes %s although its operation of line %d ended as info: a retired process may not be used again", o.Process, o.F, p.ended)
		case p.open != "":
			return fmt.Sprintf("process %d invokes %s while its %s of line %d is still open", o.Process, o.F, p.open, p.openLine)
		}
		p.open, p.openLine = o.F, line
		return ""
	}
	switch {
	case p.open == "":
		return fmt.Sprintf("completion without an invocation: process %d has no open %s", o.Process, o.F)
	case p.open != o.F:
		return fmt.Sprintf("completion without an invocation: process %d completes %s while its open operation is %s (line %d)", o.Process, o.F, p.open, p.openLine)
	}
	p.open = ""
	if o.Type == Info {
		p.ended = line
	}
	return ""
}

func (r *order) process(id Process) *procOrder {
	slot := &r.recent[uint64(id)%uint64(len(r.recent))]
	if p := *slot; p != nil && p.id == id {
		return p
	}
	p := r.procs[id]
	if p == nil {
		p = &procOrder{id: id}
		r.procs[id] = p
	}
	*slot = p
	return p
}
