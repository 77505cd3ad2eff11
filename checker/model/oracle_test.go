package model

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

// random gives a small history: a run of the model with delays, losses and, every
// other time, a lie in one of its answers.
type random struct {
	*rand.Rand
	model string
	at    int
	ops   []history.Op
}

// call is one operation on its way.
type call struct {
	process history.Process
	in      input
	applied bool
	ok      bool
	lost    bool
}

func (r *random) put(c *call, t history.Type) {
	o := history.Op{Index: r.at, Time: int64(r.at), Process: c.process, Type: t, Key: "k"}
	r.at++
	switch c.in.kind {
	case acquire:
		o.F = "acquire"
		if t == history.OK && c.in.fence != 0 {
			o.Value = json.RawMessage(fmt.Sprintf(`{"fence":%d}`, c.in.fence))
		}
	case release:
		o.F = "release"
	case read:
		o.F = "read"
		if t == history.OK && c.in.value != 0 {
			o.Value = json.RawMessage(fmt.Sprint(c.in.value))
		}
	case write:
		o.F, o.Value = "write", json.RawMessage(fmt.Sprint(c.in.value))
	case cas:
		o.F, o.Value = "cas", json.RawMessage(fmt.Sprintf("[%d,%d]", c.in.value, c.in.to))
	}
	r.ops = append(r.ops, o)
}

func (r *random) fresh(p history.Process) *call {
	c := &call{process: p, in: input{owner: int32(p) + 1}}
	if isLock(r.model) {
		c.in.kind = acquire + kind(r.IntN(2))
		return c
	}
	c.in.kind = read + kind(r.IntN(3))
	if r.model == Register && c.in.kind == cas {
		c.in.kind = write
	}
	c.in.value, c.in.to = int32(1+r.IntN(3)), int32(1+r.IntN(3))
	return c
}

// history runs a few processes for some events.
func (r *random) history(processes, events int, info float64) {
	open := make([]*call, processes)
	ids := make([]history.Process, processes)
	for i := range ids {
		ids[i] = history.Process(i)
	}
	var s state
	top := int64(0)
	for range events {
		i := r.IntN(processes)
		c := open[i]
		switch {
		case c == nil:
			open[i] = r.fresh(ids[i])
			r.put(open[i], history.Invoke)
		case !c.applied:
			if c.in.kind == read {
				c.in.value = s.value
			}
			if c.in.kind == acquire && r.model != Mutex && r.IntN(4) > 0 {
				top++
				if c.in.fence = top; s.owner == c.in.owner {
					c.in.fence = s.fence
				}
			}
			c.applied = true
			if r.Float64() < info {
				c.lost = true
				if r.IntN(2) == 0 {
					continue
				}
			}
			var next state
			if next, c.ok = step(r.model, DefaultReentry, s, &c.in); c.ok {
				s = next
			}
		default:
			open[i] = nil
			switch {
			case c.lost:
				ids[i] += history.Process(processes)
				r.put(c, history.Info)
			case c.ok:
				r.put(c, history.OK)
			default:
				r.put(c, history.Fail)
			}
		}
	}
}

// lie changes something that somebody was told.
func (r *random) lie() {
	if len(r.ops) == 0 {
		return
	}
	o := &r.ops[r.IntN(len(r.ops))]
	switch {
	case o.Type == history.Fail:
		o.Type = history.OK
	case o.F == "read" && o.Type == history.OK:
		o.Value = json.RawMessage(fmt.Sprint(1 + r.IntN(3)))
	case o.F == "acquire" && o.Type == history.OK && r.IntN(2) == 0:
		o.Value = json.RawMessage(fmt.Sprintf(`{"fence":%d}`, 1+r.IntN(4)))
	case o.Type == history.OK:
		o.Type = history.Fail
	}
}

// The sweep and porcupine agree on random histories of every model, legal and
// not, with and without operations of unknown outcome.
func TestSweepAgainstPorcupine(t *testing.T) {
	n := 4000
	if testing.Short() {
		n = 400
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	seen := map[string]int{}
	for i := range n {
		for _, m := range Names[1:] {
			r := &random{Rand: rand.New(rand.NewPCG(seed, uint64(i))), model: m}
			r.history(2+r.IntN(4), 4+r.IntN(40), []float64{0, 0.1, 0.5}[r.IntN(3)])
			if r.IntN(2) == 0 {
				r.lie()
			}
			compare(t, m, r.ops, seen)
			if t.Failed() {
				t.Fatalf("seed %d, history %d", seed, i)
			}
		}
	}
	for _, m := range Names[1:] {
		for _, v := range []string{"valid", "invalid"} {
			if seen[m+" "+v] == 0 {
				t.Errorf("no history of %s was %s", m, v)
			}
		}
	}
	t.Log(seen)
}

func compare(t *testing.T, m string, ops []history.Op, seen map[string]int) {
	t.Helper()
	j := New(m, Options{})
	for i := range ops {
		j.Add(&ops[i])
	}
	ctx := context.Background()
	r := j.Finish(ctx)
	legal := true
	for _, k := range j.order {
		found, gaveUp := porcupineCheck(ctx, m, DefaultReentry, 1<<30, k.ops)
		if gaveUp != "" {
			t.Fatal(gaveUp)
		}
		legal = legal && found
	}
	if r.Checked > 0 && legal != (r.Verdict == checker.Valid) || r.Verdict == checker.Unknown && r.Checked > 0 {
		var b []byte
		for i := range ops {
			b = append(history.AppendEDN(b, &ops[i]), '\n')
		}
		t.Errorf("%s: the sweep says %v (%+v), porcupine %v\n%s", m, r.Verdict, r.Keys, legal, b)
	}
	seen[m+" "+r.Verdict.String()]++
}

// Fifty clients of a lock, whatever share of the outcomes is unknown: there is a
// verdict. (Of a register six at once: fifty that all write at any time are beyond
// both searches.)
func TestVerdictInAllCases(t *testing.T) {
	for _, m := range Names[1:] {
		for _, info := range []float64{0, 0.01, 0.1} {
			r := &random{Rand: rand.New(rand.NewPCG(1, 2)), model: m}
			clients, events := 50, 10_000
			if !isLock(m) {
				clients, events = 6, 2_000
			}
			r.history(clients, events, info)
			j := New(m, Options{Timeout: 20 * time.Second})
			for i := range r.ops {
				j.Add(&r.ops[i])
			}
			if v := j.Finish(context.Background()); v.Verdict != checker.Valid {
				t.Errorf("%s, %v unknown: %v %s %+v", m, info, v.Verdict, v.Reason, v.Keys)
			}
		}
	}
}

// crashed gives k acquires of unknown outcome, then pairs of acquire and release,
// and near the end, if asked for, a second holder.
func crashed(k, pairs int, second bool) string {
	var b strings.Builder
	put := func(p int, kind, f string) { fmt.Fprintf(&b, "{:process %d, :type %s, :f %s}\n", p, kind, f) }
	for p := range k {
		put(100+p, ":invoke", ":acquire")
		put(100+p, ":info", ":acquire")
	}
	for i := range pairs {
		put(i%5, ":invoke", ":acquire")
		put(i%5, ":ok", ":acquire")
		if second && i == pairs-3 {
			put(7, ":invoke", ":acquire")
			put(7, ":ok", ":acquire")
		}
		put(i%5, ":invoke", ":release")
		put(i%5, ":ok", ":release")
	}
	return b.String()
}

// D11 as a foreign history: porcupine alone does not end here.
func TestCrashedAcquires(t *testing.T) {
	for _, m := range []string{Mutex, OwnerMutex, ReentrantMutex, FencedMutex, ReentrantFencedMutex} {
		if r := judge(t, m, crashed(14, 200, true)); r.Verdict != checker.Invalid {
			t.Errorf("%s: %v %s", m, r.Verdict, r.Reason)
		}
		if r := judge(t, m, crashed(14, 200, false)); r.Verdict != checker.Valid {
			t.Errorf("%s: %v %s", m, r.Verdict, r.Reason)
		}
	}
}

// Many open at once exceed the sweep; what it cannot do within its limits goes to
// porcupine, and what that cannot is unknown, with both reasons.
func TestLimits(t *testing.T) {
	var b strings.Builder
	for p := range 70 {
		fmt.Fprintf(&b, "{:process %d :type :invoke :f :write :value %d}\n", p, p)
	}
	for p := range 70 {
		fmt.Fprintf(&b, "{:process %d :type :ok :f :write :value %d}\n", p, p)
	}
	if r := judge(t, Register, b.String()); r.Verdict != checker.Valid {
		t.Errorf("70 writes at once: %v %s", r.Verdict, r.Reason)
	}
	b.WriteString("{:process 0 :type :invoke :f :read}{:process 0 :type :ok :f :read :value 1000}")
	j := New(Register, Options{Memory: 1 << 20})
	s, err := history.Open(strings.NewReader(b.String()), "h")
	if err != nil {
		t.Fatal(err)
	}
	var o history.Op
	for s.Read(&o) == nil {
		j.Add(&o)
	}
	r := j.Finish(context.Background())
	if r.Verdict != checker.Unknown || !strings.Contains(r.Reason, "more than 64 operations") || !strings.Contains(r.Reason, "porcupine: its memory was used up") {
		t.Errorf("%v %s", r.Verdict, r.Reason)
	}
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	j = New(Mutex, Options{})
	s, _ = history.Open(strings.NewReader(crashed(14, 2000, true)), "h")
	for s.Read(&o) == nil {
		j.Add(&o)
	}
	if r := j.Finish(stopped); r.Verdict != checker.Unknown || !strings.Contains(r.Reason, "its time was up") {
		t.Errorf("%v %s", r.Verdict, r.Reason)
	}
}

// More than 255 alike operations of unknown outcome are counted right.
func TestManyAlike(t *testing.T) {
	var b strings.Builder
	for p := range 300 {
		fmt.Fprintf(&b, "{:process %d :type :invoke :f :cas :value [1 2]}\n", 10+p)
	}
	seen := 0
	one := func(f, value string) {
		fmt.Fprintf(&b, "{:process 0 :type :invoke :f %s :value %s}{:process 0 :type :ok :f %s :value %s}\n", f, value, f, value)
	}
	for range 300 {
		one(":write", "1")
		one(":read", "2")
		seen++
	}
	if r := judge(t, CASRegister, b.String()); r.Verdict != checker.Valid {
		t.Errorf("%v %s %+v", r.Verdict, r.Reason, r.Keys)
	}
	one(":write", "1")
	one(":read", "2")
	if r := judge(t, CASRegister, b.String()); r.Verdict != checker.Invalid {
		t.Errorf("%v %s", r.Verdict, r.Reason)
	}
}

// The published definitions of the fenced locks, case by case. A fence of 0 is
// none; x is a release.
func TestFences(t *testing.T) {
	for _, c := range []struct {
		model, script, want string
	}{
		{FencedMutex, "a1 ax a2 ax", "valid"},
		{FencedMutex, "a2 ax b1 bx", "invalid"},
		{FencedMutex, "a2 ax b2 bx", "invalid"},
		{FencedMutex, "a2 ax b0 bx c3 cx", "valid"},
		{FencedMutex, "a2 ax b0 bx c2 cx", "invalid"},
		{FencedMutex, "a1 a1 ax ax", "invalid"},
		{FencedMutex, "a1 bx", "invalid"},
		{ReentrantFencedMutex, "a1 a1 ax ax b2 bx", "valid"},
		{ReentrantFencedMutex, "a1 a2 ax ax", "invalid"},
		{ReentrantFencedMutex, "a1 a0 ax ax", "valid"},
		{ReentrantFencedMutex, "a0 a1 ax ax b2 bx", "valid"},
		{ReentrantFencedMutex, "b3 bx a0 a1 ax ax", "invalid"},
		{ReentrantFencedMutex, "a1 a1 a1", "invalid"},
		{ReentrantFencedMutex, "a1 a1 ax b2", "invalid"},
		{ReentrantMutex, "a0 a0 ax ax b0", "valid"},
		{ReentrantMutex, "a0 a0 a0", "invalid"},
		{ReentrantMutex, "a0 a0 ax b0", "invalid"},
		{OwnerMutex, "a0 bx", "invalid"},
		{OwnerMutex, "a0 a0", "invalid"},
		{Mutex, "a0 bx b0 ax", "valid"},
		{Mutex, "ax", "invalid"},
	} {
		var b strings.Builder
		for _, w := range strings.Fields(c.script) {
			f, value := ":acquire", fmt.Sprintf("{:client %q :fence %c}", w[:1], w[1])
			if w[1] == 'x' {
				f = ":release"
			}
			for _, kind := range []string{":invoke", ":ok"} {
				fmt.Fprintf(&b, "{:process %d :type %s :f %s :value %s}\n", w[0]-'a', kind, f, value)
			}
		}
		if r := judge(t, c.model, b.String()); r.Verdict.String() != c.want {
			t.Errorf("%s %q: %v, want %s; %+v", c.model, c.script, r.Verdict, c.want, r.Keys)
		}
	}
}

// A client goes on in a new process after one of its operations became unknown,
// and may release what it acquired in the old one.
func TestClientsOfProcesses(t *testing.T) {
	text := `
{:process 0 :type :invoke :f :acquire :value "u1"} {:process 0 :type :ok :f :acquire :value {:client "n1" :fence 1}}
{:process 0 :type :invoke :f :release :value "u2"} {:process 0 :type :ok :f :release :value {:client "n1"}}
{:process 1 :type :invoke :f :acquire :value "u3"} {:process 1 :type :ok :f :acquire :value {:client "n2" :fence 2}}
{:process 1 :type :invoke :f :release :value "u4"} {:process 1 :type :ok :f :release :value {:client "n2"}}
{:process 0 :type :invoke :f :acquire :value "u5"} {:process 0 :type :info :f :acquire :value "u5"}
{:process 2 :type :invoke :f :release :value "u6"} {:process 2 :type :info :f :release :value "u6"}
{:process 4 :type :invoke :f :acquire :value "u7"} {:process 4 :type :ok :f :acquire :value {:client "n1" :fence 4}}`
	if r := judge(t, FencedMutex, text); r.Verdict != checker.Valid {
		t.Errorf("%v %+v", r.Verdict, r.Keys)
	}
	text += `{:process 3 :type :invoke :f :release :value "u8"} {:process 3 :type :ok :f :release :value {:client "n2"}}`
	if r := judge(t, FencedMutex, text); r.Verdict != checker.Invalid {
		t.Errorf("%v", r.Verdict)
	}
}

func TestOddHistories(t *testing.T) {
	for _, c := range []struct{ model, text, want string }{
		{CASRegister, "{:process 1 :type :invoke :f :cas :value 3}{:process 1 :type :ok :f :cas :value 3}", "the value of a cas is a pair"},
		{Register, "{:process 1 :type :invoke :f :cas :value [1 2]}", "the model register knows no cas"},
		{Mutex, "{:process 1 :type :invoke :f :read}{:process 1 :type :ok :f :read}", "nothing checked"},
		{Mutex, "", "nothing checked"},
	} {
		if r := judge(t, c.model, c.text); r.Verdict != checker.Unknown || !strings.Contains(r.Reason, c.want) {
			t.Errorf("%s %s: %v %q", c.model, c.text, r.Verdict, r.Reason)
		}
	}
}

// Keys are judged apart.
func TestKeys(t *testing.T) {
	one := func(p int, key, f string) string {
		return fmt.Sprintf("{:process %d :type :invoke :f %s :key %q}{:process %d :type :ok :f %s :key %q}\n", p, f, key, p, f, key)
	}
	legal := one(0, "a", ":acquire") + one(1, "b", ":acquire") + one(0, "a", ":release")
	if r := judge(t, Mutex, legal); r.Verdict != checker.Valid {
		t.Errorf("%+v", r)
	}
	r := judge(t, Mutex, legal+one(2, "b", ":acquire"))
	if r.Verdict != checker.Invalid || len(r.Keys) != 1 || r.Keys[0].Key != "b" || !slices.Equal(r.Keys[0].Ops, []int{6, 7}) {
		t.Errorf("%+v", r)
	}
	res := r.Results()
	if res.Verdict != checker.Invalid || res.Properties[checker.Linearizable].AnomalyCount != 1 || r.Explanation() == "" {
		t.Errorf("%+v", res)
	}
}

func TestGuess(t *testing.T) {
	some := history.Some(int64(1))
	for want, ops := range map[string][]history.Op{
		Mutex:       {{F: "acquire"}, {F: "release", Process: 3}},
		CASRegister: {{F: "cas"}, {F: "read"}, {F: "write"}},
		LeaseLock:   {{F: "acquire", TTL: some}, {F: "renew"}, {F: "release", Grant: history.Some(uint64(1))}},
		"":          {{F: "start", Process: history.Nemesis}, {F: "txn"}, {F: "acquire", Process: history.Nemesis}},
	} {
		for i := range ops {
			if got := Guess(&ops[i]); got != want {
				t.Errorf("%+v: %q, want %q", ops[i], got, want)
			}
		}
	}
}

func BenchmarkMutex(b *testing.B) {
	text := crashed(5, 20_000, false)
	s, err := history.Open(strings.NewReader(text), "h")
	if err != nil {
		b.Fatal(err)
	}
	var ops []history.Op
	for {
		var o history.Op
		if s.Read(&o) != nil {
			break
		}
		ops = append(ops, o)
	}
	for b.Loop() {
		j := New(Mutex, Options{})
		for i := range ops {
			j.Add(&ops[i])
		}
		if r := j.Finish(context.Background()); r.Verdict != checker.Valid {
			b.Fatal(r.Verdict)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ops)), "ns/event")
}
