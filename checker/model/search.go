package model

import (
	"context"
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/checker"
)

// search decides by porcupine what the sweep gave up on: it goes deep where the
// sweep goes wide, so that it may still find an order.
func (b *Judge) search(ctx context.Context, ops []op, gaveUp string) finding {
	found, spent := porcupineCheck(ctx, b.model, int32(b.opts.Reentry), b.opts.Memory, ops)
	switch {
	case found:
		return finding{verdict: checker.Valid}
	case spent != "":
		return finding{verdict: checker.Unknown, why: fmt.Sprintf("the search for an order gave up: %s, and then porcupine: %s", gaveUp, spent)}
	}
	return finding{verdict: checker.Invalid, why: "no order of the operations explains the history"}
}

// porcupineCheck looks for an order by porcupine. Porcupine remembers each state
// that it has been in, so bounding those bounds its memory; a step that refuses
// everything makes it unwind at once. The reason is set when it gave up.
func porcupineCheck(ctx context.Context, model string, limit int32, memory int64, ops []op) (found bool, gaveUp string) {
	left := memory / (int64(len(ops))/8 + 256)
	ticks := 0
	m := porcupine.Model{
		Init: func() any { return state{} },
		Step: func(st, in, _ any) (bool, any) {
			if gaveUp != "" {
				return false, st
			}
			if ticks++; ticks&1023 == 0 && ctx.Err() != nil {
				gaveUp = "its time was up"
				return false, st
			}
			next, ok := tryStep(model, limit, st.(state), in.(*op))
			if ok {
				if left--; left < 0 {
					gaveUp = "its memory was used up"
					return false, st
				}
			}
			return ok, next
		},
		Hash: func(st any) uint64 {
			s := st.(state)
			h := uint64(uint32(s.owner))<<40 ^ uint64(uint32(s.count))<<32 ^ uint64(uint32(s.value))
			return (h ^ uint64(s.fence)<<7 ^ uint64(s.top)<<21) * 0x9E3779B97F4A7C15
		},
	}
	if ctx.Err() != nil {
		return false, "its time was up"
	}
	history := make([]porcupine.Operation, len(ops))
	for i := range ops {
		ret := int64(math.MaxInt64)
		if ops[i].ret != never {
			ret = int64(ops[i].ret)
		}
		history[i] = porcupine.Operation{Input: &ops[i], Call: int64(ops[i].call), Return: ret}
	}
	found = porcupine.CheckOperations(m, history)
	return found, gaveUp
}
