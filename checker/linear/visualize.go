package linear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	drawn      = 300      // operations on a page: a browser takes no more with ease
	drawMemory = 32 << 20 // of the search for partial orders
)

// Visualize writes porcupine's page of the smallest illegal part of a history.
// The page begins with a free lock, so that there is something to point from when
// the very first operation is the one that is illegal.
func Visualize(w io.Writer, r Result) error {
	if len(r.Window) == 0 {
		return errors.New("visualize: nothing illegal to draw")
	}
	ops, cut := r.Window, ""
	if len(ops) > drawn {
		cut = fmt.Sprintf(" (the first %d of %d operations are drawn)", drawn, len(ops))
		ops = ops[:drawn]
	}
	page := picture(ops)
	// Enough time for any page, and a bound on memory that is met long before.
	lim := &limits{ctx: context.Background(), deadline: time.Now().Add(time.Minute), memory: drawMemory}
	s := &searcher{lim: lim, left: lim.memory / stateSize(len(page))}
	_, info := porcupine.CheckOperationsVerbose(s.model(), page, 0)
	info.AddAnnotations([]porcupine.Annotation{{
		Tag: "verdict", Start: page[0].Call, End: page[len(page)-1].Return,
		Description: "not linearizable", Details: r.Reason + cut, BackgroundColor: "#ffd7d7",
	}})
	if err := porcupine.Visualize(describedModel(r.names), info, w); err != nil {
		return fmt.Errorf("visualize key %q: %w", r.Key, err)
	}
	return nil
}

// picture is a history for drawing: within the stamps that occur, with a lane for
// each process and further lanes where its operations overlap.
func picture(ops []Op) []porcupine.Operation {
	lo, hi := extent(ops)
	var page []porcupine.Operation
	for _, o := range operations(ops) {
		if o.Call > hi {
			continue // a lease that ends after everything else
		}
		o.Call, o.Return = max(o.Call, lo-1), min(o.Return, hi+1)
		page = append(page, o)
	}
	setLanes(page, ops)
	first := porcupine.Operation{Input: &input{begins: true}, Call: lo - 3, Return: lo - 2}
	slices.SortStableFunc(page, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	return slices.Insert(page, 0, first)
}

// extent gives the first and the last real stamp.
func extent(ops []Op) (lo, hi int64) {
	lo, hi = Forever, Dawn
	for i := range ops {
		for _, t := range []int64{ops[i].Call, ops[i].Return} {
			if t != Dawn && t != Forever {
				lo, hi = min(lo, t), max(hi, t)
			}
		}
	}
	if lo > hi {
		return 0, 0
	}
	return lo, hi
}

// setLanes gives the operations lanes from 0, those of a process side by side.
func setLanes(page []porcupine.Operation, ops []Op) {
	owner := map[int32]int64{}
	for i := range ops {
		if ops[i].Kind == Acquire && ops[i].Grant != NoGrant {
			owner[ops[i].Grant] = ops[i].Process
		}
	}
	type lane struct {
		process int64
		number  int
	}
	until := map[lane]int64{}
	at := make([]lane, len(page))
	order := make([]int, len(page))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(page[a].Call, page[b].Call) })
	for _, i := range order {
		in := page[i].Input.(*input)
		l := lane{process: owner[in.grant]}
		if in.op != nil {
			l.process = in.op.Process
		}
		for end, busy := until[l]; busy && end >= page[i].Call; end, busy = until[l] {
			l.number++
		}
		until[l] = page[i].Return
		at[i] = l
	}
	lanes := make([]lane, 0, len(until))
	for l := range until {
		lanes = append(lanes, l)
	}
	slices.SortFunc(lanes, func(a, b lane) int {
		return cmp.Or(cmp.Compare(a.process, b.process), cmp.Compare(a.number, b.number))
	})
	for i := range page {
		page[i].ClientId = slices.Index(lanes, at[i])
	}
}
