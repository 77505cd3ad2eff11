package linear

import (
	"context"
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// The sequential model once more, for porcupine's search. It is written from the
// table of the semantics and not from the decision, since tests compare the two.

// input is an operation of the model: one of the history, or an expiry.
type input struct {
	op     *Op   // nil for an expiry and for the beginning
	grant  int32 // whose lease may end, for an expiry
	from   int64 // from when on
	begins bool  // the beginning: the lock is free
}

// state is what the lock knows.
type state struct {
	holder   int32
	deadline int64
	token    uint64
	anyToken bool
}

func modelStep(s state, in *input) (bool, state) {
	o := in.op
	switch {
	case in.begins:
		return true, s
	case o == nil:
		if s.holder == in.grant && s.deadline <= in.from {
			s.holder = NoGrant
		}
		return true, s
	case o.Kind == Acquire:
		return modelAcquire(s, o)
	}
	mine := s.holder == o.Grant
	switch o.Outcome {
	case OK:
		if !mine {
			return false, s
		}
	case Denied:
		return !mine, s
	case Info:
		if !mine {
			return true, s
		}
	}
	if o.Kind == Release {
		s.holder = NoGrant
	} else {
		s.deadline = o.Deadline
	}
	return true, s
}

func modelAcquire(s state, o *Op) (bool, state) {
	free := s.holder == NoGrant
	switch {
	case o.Outcome == Denied:
		return !free, s
	case o.Outcome == OK && !free:
		return false, s
	case !free:
		return true, s
	case o.HasToken && s.anyToken && o.Token <= s.token:
		return false, s
	}
	s.holder, s.deadline = o.Grant, o.Deadline
	if o.HasToken {
		s.token, s.anyToken = o.Token, true
	}
	return true, s
}

// operations translates a history for porcupine. An expiry is an operation of its
// own for each deadline: it can be called from the deadline on and never has to
// return. Indeterminate operations do not return either.
func operations(ops []Op) []porcupine.Operation {
	out := make([]porcupine.Operation, 0, 2*len(ops))
	for i := range ops {
		o := &ops[i]
		out = append(out, porcupine.Operation{Input: &input{op: o}, Call: o.Call, Return: o.Return})
		if o.Kind != Release && o.Outcome != Denied && o.Deadline != Forever {
			out = append(out, porcupine.Operation{
				Input: &input{grant: o.Grant, from: o.Deadline}, Call: o.Deadline, Return: Forever})
		}
	}
	return out
}

// limits bound what searches may cost. The time is shared by all of them.
type limits struct {
	ctx      context.Context
	deadline time.Time
	memory   int64
}

func newLimits(ctx context.Context, opts Options) *limits {
	return &limits{ctx: ctx, deadline: time.Now().Add(opts.Timeout), memory: opts.Memory}
}

// why tells why a search may not go on, or "".
func (l *limits) why() string {
	switch {
	case l.ctx.Err() != nil:
		return "it was stopped"
	case time.Now().After(l.deadline):
		return "its time was up"
	}
	return ""
}

// A searcher runs porcupine within limits. Porcupine remembers each state that it
// has been in, so bounding the states bounds the memory; a step that refuses
// everything makes it unwind at once, so that nothing is left running.
type searcher struct {
	lim   *limits
	spent string // why it gave up
	left  int64  // states that may still be remembered
	tick  int
}

// search looks for an order. The reason is set when it gave up.
func (l *limits) search(ops []Op) (found bool, gaveUp string) {
	history := operations(ops)
	s := &searcher{lim: l, left: l.memory / stateSize(len(history)), spent: l.why()}
	if s.left == 0 && s.spent == "" {
		s.spent = "its memory was used up"
	}
	res := porcupine.CheckOperations(s.model(), history)
	if s.spent != "" && !res {
		return false, s.spent
	}
	return res, ""
}

// stateSize is about what porcupine keeps for a state: a bit for each operation,
// the state itself, and its place in a map.
func stateSize(operations int) int64 { return int64(operations)/8 + 256 }

func (s *searcher) model() porcupine.Model {
	m := describedModel(nil)
	m.Step = func(st, in, _ any) (bool, any) {
		if s.spent != "" {
			return false, st
		}
		if s.tick++; s.tick&1023 == 0 {
			if s.spent = s.lim.why(); s.spent != "" {
				return false, st
			}
		}
		ok, next := modelStep(st.(state), in.(*input))
		if ok {
			if s.left--; s.left < 0 {
				s.spent = "its memory was used up"
				return false, st
			}
		}
		return ok, next
	}
	return m
}

// describedModel is the model for people and without limits. names are those of
// the grants.
func describedModel(names []string) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{holder: NoGrant} },
		Step: func(st, in, _ any) (bool, any) {
			return modelStep(st.(state), in.(*input))
		},
		Hash: func(st any) uint64 {
			s := st.(state)
			h := uint64(uint32(s.holder))*0x9E3779B97F4A7C15 ^ s.token ^ uint64(s.deadline)<<17
			return h * 0xff51afd7ed558ccd
		},
		DescribeOperation: func(in, _ any) string { return in.(*input).describe(names) },
		DescribeState:     func(st any) string { return st.(state).describe(names) },
	}
}

func (s state) describe(names []string) string {
	text := "free"
	if s.holder != NoGrant {
		text = "held by " + names[s.holder]
		switch s.deadline {
		case Dawn:
			text += " while its session lives"
		case Forever:
			text += " until it is released"
		default:
			text += " at least until " + ms(s.deadline)
		}
	}
	if s.anyToken {
		text += fmt.Sprintf("; highest token %d", s.token)
	}
	return text
}

func (in *input) describe(names []string) string {
	o := in.op
	switch {
	case in.begins:
		return "free"
	case o == nil:
		return "the lease of " + names[in.grant] + " may end"
	case o.Kind == Acquire && o.Outcome == Denied:
		return fmt.Sprintf("process %d: acquire: held", o.Process)
	}
	return fmt.Sprintf("process %d: %s", o.Process, o.describe(names[o.Grant]))
}
