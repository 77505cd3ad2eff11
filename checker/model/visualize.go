package model

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

const (
	drawn     = 100             // operations on a page beside the one that nothing explains
	drawTime  = 5 * time.Second // of the search for partial orders
	drawSteps = 200_000         // and a bound on its memory
)

// A part is what a page shows of a key that is illegal: the operations up to the one
// that nothing explains. The first ones of a long history are left out, and what
// the lock or register may have been after them stands for them.
type part struct {
	ops   []op
	start []state
	cut   bool
}

// part gives what to draw of a key in which nothing explains the operation bad.
func (b *Judge) part(ops []op, bad *op) *part {
	es := events(ops)
	end := slices.IndexFunc(es, func(e event) bool { return &ops[e.op] == bad && e.ret })
	p := &part{start: []state{{}}}
	from := 0
	if end > 2*drawn {
		from = quiet(ops, es, end)
		s := b.sweep(context.Background(), ops) // which has come this far before
		s.run(es[:from])
		p.start, p.cut = s.states(), true
	}
	var unknown []op
	for _, o := range ops {
		switch {
		case o.call > es[end].at || o.ret < es[from].at:
		case o.ret == never:
			unknown = append(unknown, o)
		default:
			p.ops = append(p.ops, o)
		}
	}
	// Any of them may still take effect, but a page is for reading.
	p.ops = append(p.ops, unknown[max(0, len(unknown)-drawn/2):]...)
	slices.SortStableFunc(p.ops, func(x, y op) int { return x.call - y.call })
	return p
}

// quiet finds the latest event before the end, but not right before it, at which no
// operation is open; in a history that is never quiet, it takes what fits the page.
func quiet(ops []op, es []event, end int) int {
	const near = drawn / 4
	from, open := end-drawn, 0
	for i, e := range es[:end-near] {
		if open == 0 && i >= end-2*drawn {
			from = i
		}
		switch {
		case ops[e.op].ret == never:
		case e.ret:
			open--
		default:
			open++
		}
	}
	return from
}

// states are those that the lock or register may be in.
func (s *sweep) states() []state {
	var all []state
	for i := range s.now.list {
		if x := &s.now.list[i]; s.now.alive(x) && !slices.Contains(all, x.state) {
			all = append(all, x.state)
		}
	}
	return all
}

// WriteLinear writes porcupine's page of the first key that has no order: of all of
// its operations up to the one that nothing explains, or in a long history of the
// last ones. It reports whether there is one. The page begins with what the lock or
// register may be, so that there is something to point from when the very first
// operation is the one that is illegal.
func (r *Result) WriteLinear(w io.Writer) (bool, error) {
	i := slices.IndexFunc(r.Keys, func(k KeyResult) bool { return k.Verdict == checker.Invalid && k.bad != nil })
	if i < 0 {
		return false, nil
	}
	k := &r.Keys[i]
	p := r.judge.part(k.ops, k.bad)
	m := r.judge.drawing(p.start)
	page := p.page()
	_, info := porcupine.CheckOperationsVerbose(m, page, drawTime)
	details := k.Reason
	if p.cut {
		details += " (what came long before is left out)"
	}
	info.AddAnnotations([]porcupine.Annotation{{
		Tag: "verdict", Start: page[0].Call, End: page[len(page)-1].Call + 1,
		Description: "not linearizable", Details: details, BackgroundColor: "#ffd7d7",
	}})
	if err := porcupine.Visualize(m, info, w); err != nil {
		return false, fmt.Errorf("draw key %q: %w", k.Key, err)
	}
	return true, nil
}

// page is the part as porcupine takes it, with a lane for each process.
func (p *part) page() []porcupine.Operation {
	end := 0
	for i := range p.ops {
		end = max(end, p.ops[i].call)
		if p.ops[i].ret != never {
			end = max(end, p.ops[i].ret)
		}
	}
	first := p.ops[0].call
	page := []porcupine.Operation{{Input: &op{ret: never}, Call: int64(first - 2), Return: int64(first - 1)}}
	lanes := map[history.Process]int{}
	for i := range p.ops {
		o := &p.ops[i]
		lane, ok := lanes[o.process]
		if !ok {
			lane = len(lanes)
			lanes[o.process] = lane
		}
		page = append(page, porcupine.Operation{ClientId: lane, Input: o, Call: int64(o.call), Return: int64(min(o.ret, end+1))})
	}
	return page
}

// drawing is the model in porcupine's words, beginning in any of the states. An
// input without a kind is where the page begins.
func (b *Judge) drawing(start []state) porcupine.Model {
	begin := make([]any, len(start))
	for i := range start {
		begin[i] = start[i]
	}
	left := drawSteps
	m := porcupine.NondeterministicModel{
		Init: func() []any { return begin },
		Step: func(st, in, _ any) []any {
			o, s := in.(*op), st.(state)
			if left--; left < 0 {
				return nil
			}
			if o.in.kind == 0 {
				return []any{s}
			}
			if next, ok := tryStep(b.model, int32(b.opts.Reentry), s, o); ok {
				return []any{next}
			}
			return nil
		},
		DescribeOperation: func(in, _ any) string {
			o := in.(*op)
			switch {
			case o.in.kind == 0:
				return "begins"
			case o.ret == never:
				return b.describe(o) + ", outcome unknown"
			}
			return b.describe(o)
		},
		DescribeState: func(st any) string { return b.describeState(st.(state)) },
	}
	return m.ToModel()
}
