package report

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// A story builds a history event by event. Times are in ms.
type story struct {
	ops []history.Op
	key string
	seq uint64
}

func (s *story) add(ms float64, o history.Op) int {
	o.Index, o.Time = len(s.ops), int64(ms*1e6)
	if o.Process != history.Nemesis && o.F != history.Close {
		o.Key = s.key
	}
	s.ops = append(s.ops, o)
	return o.Index
}

type opt func(*history.Op)

func grant(n uint64) opt    { return func(o *history.Op) { o.Grant = history.Some(n) } }
func token(n uint64) opt    { return func(o *history.Op) { o.Token = history.Some(n) } }
func validMS(n float64) opt { return func(o *history.Op) { o.Valid = history.Some(int64(n * 1e6)) } }
func fromMS(n float64) opt  { return func(o *history.Op) { o.From = history.Some(int64(n * 1e6)) } }
func session(o *history.Op) { o.Session = true }
func value(n int) opt       { return func(o *history.Op) { o.Value = json.RawMessage(fmt.Sprint(n)) } }
func fails(err string) opt  { return func(o *history.Op) { o.Type, o.Error = history.Fail, err } }

func (s *story) event(ms float64, p history.Process, t history.Type, f string, opts ...opt) int {
	o := history.Op{Process: p, Type: t, F: f}
	for _, x := range opts {
		x(&o)
	}
	return s.add(ms, o)
}

// op is an operation that takes 2 ms. Its invoke does not know how it will end.
func (s *story) op(ms float64, p history.Process, f string, opts ...opt) int {
	i := s.event(ms, p, history.Invoke, f, opts...)
	o := &s.ops[i]
	o.Type, o.Error, o.Valid, o.Session = history.Invoke, "", history.Opt[int64]{}, false
	if f == history.Acquire {
		o.Grant, o.Token = history.Opt[uint64]{}, history.Opt[uint64]{}
	}
	return s.event(ms+2, p, history.OK, f, opts...)
}

// access is a read or write with the store's entry 1 ms after its invoke.
func (s *story) access(ms float64, p history.Process, f string, opts ...opt) {
	s.event(ms, p, history.Invoke, f, opts...)
	s.applied(ms+1, f, opts...)
	s.event(ms+2, p, history.OK, f, opts...)
}

func (s *story) applied(ms float64, f string, opts ...opt) int {
	s.seq++
	n := s.seq
	return s.event(ms, history.Store, history.OK, f, append(opts, func(o *history.Op) { o.Seq = history.Some(n) })...)
}

func (s *story) fault(ms float64, name string, number int, phase string, target string) int {
	v := fmt.Sprintf(`{"fault":%d,"phase":%q,"targets":[%s]}`, number, phase, target)
	return s.add(ms, history.Op{Process: history.Nemesis, Type: history.Info, F: name, Value: json.RawMessage(v)})
}

func with(base []opt, more ...opt) []opt { return append(append([]opt{}, base...), more...) }

// gcPause is the experiment that started it all: process 0 holds and is paused
// between its check and its write, its lease ends, process 1 acquires and writes
// twice, and the write of process 0 arrives. A third process asks in vain.
func gcPause(tokens, refused bool) *story {
	s := &story{key: "orders/17"}
	a, b := []opt{grant(1)}, []opt{grant(2)}
	if tokens {
		a, b = with(a, token(33)), with(b, token(34))
	}
	at := 4312.0
	s.op(at, 0, history.Acquire, with(a, validMS(1000))...)
	s.op(at+4, 1, history.Acquire, fails(history.ErrHeld))
	s.access(at+9, 0, history.Read, with(a, value(0))...)
	s.op(at+14, 0, history.Check, grant(1))
	s.event(at+18, 0, history.Invoke, history.Write, with(a, value(1))...)
	s.fault(at+19, "pause", 1, history.Asked, "0")
	s.fault(at+20, "pause", 1, history.Done, "0")
	for t := 120.0; t < 1000; t += 100 {
		s.op(at+t, history.Process(1+int(t/100)%2), history.Acquire, fails(history.ErrHeld))
	}
	s.op(at+1020, 1, history.Acquire, with(b, validMS(1000))...)
	s.access(at+1026, 1, history.Read, with(b, value(0))...)
	s.access(at+1032, 1, history.Write, with(b, value(1))...)
	s.access(at+1040, 1, history.Write, with(b, value(2))...)
	s.fault(at+2499, "pause", 1, history.HealAsked, "0")
	s.fault(at+2500, "pause", 1, history.Healed, "0")
	if refused {
		s.event(at+2503, history.Store, history.Fail, history.Write, with(a, value(1), fails(history.ErrFenced))...)
		s.event(at+2505, 0, history.Fail, history.Write, with(a, value(1), fails(history.ErrFenced))...)
	} else {
		s.applied(at+2503, history.Write, with(a, value(1))...)
		s.event(at+2505, 0, history.OK, history.Write, with(a, value(1))...)
	}
	s.op(at+2510, 0, history.Release, grant(1), fails(history.ErrNotHeld))
	s.op(at+2600, 1, history.Release, grant(2))
	return s
}

// zookeeper is the same story with a session lock: no lease is promised, the
// next in the queue waits, and the session's end is told afterwards.
func zookeeper() *story {
	s := &story{key: "locks/orders"}
	a, b := []opt{grant(1), token(4294967297)}, []opt{grant(2), token(4294967301)}
	s.op(100, 0, history.Acquire, with(a, session)...)
	s.event(110, 1, history.Invoke, history.Acquire)
	s.access(120, 0, history.Read, with(a, value(40))...)
	s.event(1435, 0, history.Info, history.Mark, grant(1))
	s.event(1440, 0, history.Info, history.Renewed, grant(1), fromMS(1435))
	s.op(1450, 0, history.Check, grant(1))
	s.fault(1455, "pause", 7, history.Asked, "0")
	s.fault(1456, "pause", 7, history.Done, "0")
	s.event(5600, 1, history.OK, history.Acquire, with(b, session)...)
	s.access(5605, 1, history.Read, with(b, value(40))...)
	s.access(5612, 1, history.Write, with(b, value(41))...)
	s.access(5620, 1, history.Write, with(b, value(42))...)
	s.fault(9455, "pause", 7, history.Healed, "0")
	s.access(9457, 0, history.Write, with(a, value(41))...)
	s.event(9470, 0, history.Info, history.Lost, grant(1))
	s.op(9600, 1, history.Release, grant(2))
	return s
}

// crash has no pause: a Redis master is replaced before it told its replica,
// while a lease still stands; then one of the two holders is killed.
func crash() *story {
	s := &story{key: "jobs/nightly"}
	s.op(10, 3, history.Acquire, grant(8), validMS(2000))
	s.op(14, 7, history.Acquire, fails(history.ErrHeld))
	s.event(500, 3, history.Info, history.Mark, grant(8))
	s.event(503, 3, history.Info, history.Renewed, grant(8), fromMS(500), validMS(2000))
	s.fault(600, "failover", 1, history.Asked, `"redis-1"`)
	s.fault(640, "failover", 1, history.Done, `"redis-1"`)
	s.fault(900, "failover", 1, history.Healed, `"redis-1"`)
	s.op(650, 7, history.Acquire, grant(9), validMS(2000))
	s.access(660, 7, history.Write, grant(9), value(1))
	s.fault(1000, "kill", 2, history.Asked, "3")
	s.fault(1001, "kill", 2, history.Done, "3")
	s.op(1300, 7, history.Release, grant(9))
	return s
}

func (s *story) find(t testing.TB, p history.Process, ty history.Type, f string, g uint64) *history.Op {
	t.Helper()
	var found *history.Op
	for i := range s.ops {
		o := &s.ops[i]
		if o.Process == p && o.Type == ty && o.F == f && o.Grant.V == g {
			found = o
		}
	}
	if found == nil {
		t.Fatalf("no %v %s of %v under grant %d", ty, f, p, g)
	}
	return found
}
