package linear

import (
	"math/rand/v2"
	"slices"
)

// A sim runs the sequential model and blurs it: every operation takes effect at a
// point that the simulator knows, and the history only shows an interval around
// it. What it makes is legal by construction.
type sim struct {
	r      *rand.Rand
	ops    []Op
	now    int64
	width  int64
	grants int32

	holder   int32
	deadline int64
	token    uint64
	past     []int32         // grants that are over
	ok       map[int32]int64 // grants that were answered, and when
	style    style
}

// style is what kind of lock is simulated.
type style struct {
	tokens  bool
	mixed   bool // tokens on some grants only
	session bool
	plain   bool
	strange bool // definite answers about acquires of unknown outcome, early denials
	info    int  // percent of lost answers
	ttl     int64
}

func randomStyle(r *rand.Rand) style {
	return style{
		tokens:  r.IntN(3) > 0,
		mixed:   r.IntN(12) == 0,
		session: r.IntN(5) == 0,
		plain:   r.IntN(5) == 0,
		strange: r.IntN(8) == 0,
		info:    []int{0, 10, 30, 60}[r.IntN(4)],
		ttl:     1 + r.Int64N(12),
	}
}

// legalHistory simulates about n operations.
func legalHistory(r *rand.Rand, n int, st style) ([]Op, int) {
	s := &sim{r: r, now: 20, width: 1 + r.Int64N(8), holder: NoGrant, ok: map[int32]int64{}, style: st}
	switch r.IntN(4) {
	case 0:
		s.token = 1<<63 + 1<<54 // beyond what a float64 tells apart
	case 1:
		s.token = ^uint64(0) // wraps, so that the first token is zero
	}
	pace := 1 + r.Int64N(4)
	for tries := 0; len(s.ops) < n && tries < 20*n; tries++ {
		s.now += r.Int64N(pace + 1)
		if r.IntN(12) == 0 {
			s.now += 2 * s.width
		}
		if s.holder == NoGrant {
			s.whileFree()
		} else {
			s.whileHeld()
		}
	}
	return s.ops, int(s.grants)
}

func (s *sim) interval() (call, ret int64) {
	return s.now - s.r.Int64N(s.width), s.now + s.r.Int64N(s.width)
}

func (s *sim) lost() bool { return s.r.IntN(100) < s.style.info }

func (s *sim) add(o Op) {
	o.Process = int64(s.r.IntN(5))
	o.Invoked, o.Completed = int32(2*len(s.ops)), int32(2*len(s.ops)+1)
	s.ops = append(s.ops, o)
}

func (s *sim) lease(from int64) int64 {
	switch {
	case s.style.session:
		return Dawn
	case s.style.plain:
		return Forever
	}
	return from + s.style.ttl
}

func (s *sim) whileFree() {
	switch k := s.r.IntN(6); {
	case k == 0 && len(s.past) > 0:
		s.denied(s.past[s.r.IntN(len(s.past))])
	case k == 1:
		if s.lost() { // an acquire that never arrives
			call, _ := s.interval()
			s.add(Op{Kind: Acquire, Outcome: Info, Call: call, Return: Forever, Deadline: call, Grant: s.grants})
			s.grants++
		}
	default:
		s.acquire()
	}
}

func (s *sim) acquire() {
	call, ret := s.interval()
	o := Op{Kind: Acquire, Outcome: OK, Call: call, Return: ret, Grant: s.grants, Deadline: s.lease(call)}
	s.grants++
	if s.lost() {
		o.Outcome, o.Return = Info, Forever
		if !s.style.strange {
			o.Deadline = call
		}
	} else {
		s.token += 1 + uint64(s.r.IntN(2))
		o.HasToken = s.style.tokens && !(s.style.mixed && s.r.IntN(3) == 0)
		if o.HasToken {
			o.Token = s.token
		}
		s.ok[o.Grant] = ret
	}
	s.holder, s.deadline = o.Grant, o.Deadline
	s.add(o)
}

// denied tells an old grant that it does not hold.
func (s *sim) denied(g int32) {
	answered, known := s.ok[g]
	if !known && !s.style.strange {
		return
	}
	call, ret := s.interval()
	if !s.style.strange {
		call = max(call, answered+1)
		ret = max(ret, call)
	}
	kind := Release
	if s.r.IntN(2) == 0 {
		kind = Renew
	}
	s.add(Op{Kind: kind, Outcome: Denied, Call: call, Return: ret, Grant: g})
}

func (s *sim) whileHeld() {
	if s.now >= s.deadline && s.r.IntN(3) == 0 {
		s.over()
		return
	}
	switch s.r.IntN(7) {
	case 0, 1:
		call, ret := s.interval()
		s.add(Op{Kind: Acquire, Outcome: Denied, Call: call, Return: ret, Grant: NoGrant})
	case 2:
		s.renew()
	case 3:
		if len(s.past) > 0 {
			s.denied(s.past[s.r.IntN(len(s.past))])
		}
	default:
		s.release()
	}
}

func (s *sim) over() {
	s.past = append(s.past, s.holder)
	s.holder = NoGrant
}

// answered reports whether the holder knows that it holds, so that it may use its
// grant.
func (s *sim) answered() bool {
	_, ok := s.ok[s.holder]
	return ok || s.style.strange
}

func (s *sim) renew() {
	if !s.answered() {
		return
	}
	call, ret := s.interval()
	o := Op{Kind: Renew, Outcome: OK, Call: call, Return: ret, Grant: s.holder, Deadline: s.lease(call)}
	if !s.style.session && !s.style.plain && s.r.IntN(4) == 0 {
		o.Deadline = call + s.r.Int64N(s.style.ttl) // a shorter one
	}
	effect := true
	if s.lost() {
		o.Outcome, o.Return = Info, Forever
		effect = s.r.IntN(2) == 0
	}
	if effect {
		s.deadline = o.Deadline
	}
	s.add(o)
}

func (s *sim) release() {
	call, ret := s.interval()
	o := Op{Kind: Release, Outcome: OK, Call: call, Return: ret, Grant: s.holder}
	effect := true
	if s.lost() || !s.answered() {
		o.Outcome, o.Return = Info, Forever
		effect = s.r.IntN(2) == 0
	}
	if effect {
		s.over()
	}
	s.add(o)
}

// mutate changes a history a little, often so that nothing explains it any more.
func mutate(r *rand.Rand, ops []Op) []Op {
	if len(ops) == 0 {
		return ops
	}
	i, j := r.IntN(len(ops)), r.IntN(len(ops))
	o := &ops[i]
	by := r.Int64N(17) - 8
	switch r.IntN(9) {
	case 0: // move the call
		o.Call = min(o.Call+by, o.Return)
	case 1: // move the return
		if o.Outcome != Info {
			o.Return = max(o.Call, o.Return+by)
		}
	case 2: // move all of it
		o.Call += by
		if o.Outcome != Info {
			o.Return += by
		}
	case 3: // swap tokens
		if ops[i].HasToken && ops[j].HasToken {
			ops[i].Token, ops[j].Token = ops[j].Token, ops[i].Token
		}
	case 4: // reuse a token
		if ops[i].HasToken && ops[j].HasToken {
			ops[i].Token = ops[j].Token
		}
	case 5: // drop a release, a renewal or a denial
		if o.Kind != Acquire || o.Outcome == Denied {
			return slices.Delete(ops, i, i+1)
		}
	case 6: // the opposite answer
		if o.Kind != Acquire && o.Outcome != Info {
			o.Outcome = OK + Denied - o.Outcome
		}
	case 7: // move the deadline
		if o.Deadline != Forever && o.Deadline != Dawn && o.Kind != Release && o.Outcome != Denied {
			o.Deadline += by
		}
	case 8: // a second time
		if o.Kind != Acquire || o.Outcome == Denied {
			x := *o
			x.Call += by
			if x.Outcome != Info {
				x.Return = max(x.Call, x.Return+by)
			}
			return append(ops, x)
		}
	}
	return ops
}

// noise is a history of operations that have nothing to do with one another.
func noise(r *rand.Rand, n int) ([]Op, int) {
	var ops []Op
	grants := int32(0)
	span := 4 + r.Int64N(24)
	tokens := r.IntN(4) > 0
	for len(ops) < n {
		call := r.Int64N(span)
		o := Op{Kind: Acquire, Outcome: Denied, Call: call, Return: call + r.Int64N(6), Grant: NoGrant}
		deadline := int64(Forever)
		if r.IntN(2) == 0 {
			deadline = call + r.Int64N(8)
		}
		switch k := r.IntN(6); {
		case k < 2:
		case k < 4:
			o.Outcome, o.Grant, o.Deadline = OK, grants, deadline
			o.HasToken, o.Token = tokens, uint64(call*3+r.Int64N(6))
			grants++
			if r.IntN(3) == 0 {
				o.Outcome, o.Return, o.HasToken, o.Token = Info, Forever, false, 0
			}
		case grants == 0:
			continue
		default:
			o.Kind, o.Outcome, o.Grant = Release, OK+Outcome(r.IntN(3)), r.Int32N(grants)
			if r.IntN(3) == 0 {
				o.Kind, o.Deadline = Renew, deadline
			}
			if o.Outcome == Info {
				o.Return = Forever
			}
		}
		if !o.HasToken {
			o.Token = 0
		}
		ops = append(ops, o)
	}
	return ops, int(grants)
}
