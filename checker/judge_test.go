package checker

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

func judged(t *testing.T, text string) Results {
	t.Helper()
	ops, rd, err := history.ReadAll(strings.NewReader(text), "h")
	if err != nil {
		t.Fatal(err)
	}
	return Check(context.Background(), ops, rd.Header)
}

// A worker that dies while it holds and does nothing is closed by the runner
// when that is noticed; what it believed ended with what was heard from it last.
func TestCrashWhileIdle(t *testing.T) {
	h := `{"time":1,"process":0,"type":"invoke","f":"acquire","key":"k"}
{"time":2,"process":0,"type":"ok","f":"acquire","key":"k","grant":1}
{"time":3,"process":1,"type":"invoke","f":"acquire","key":"k"}
{"time":4,"process":1,"type":"ok","f":"acquire","key":"k","grant":2}
{"time":5,"process":0,"type":"invoke","f":"close"}
{"time":6,"process":0,"type":"info","f":"close","error":"WHY"}
`
	r := judged(t, strings.Replace(h, "WHY", "worker crashed: exit status 1", 1))
	if r.Properties[Exclusion].AnomalyCount+r.Properties[Lease].AnomalyCount+r.Properties[Linearizable].AnomalyCount != 0 {
		t.Errorf("a false alarm: %s%s%s", r.Properties[Exclusion].told(), r.Properties[Lease].told(), r.Properties[Linearizable].told())
	}
	r = judged(t, strings.Replace(h, "WHY", "timeout", 1))
	if r.Properties[Lease].AnomalyCount != 1 {
		t.Error("a worker that lived and was overlapped: no alarm")
	}
}

func TestRequireOfAnUnknownProperty(t *testing.T) {
	r := judged(t, `{"lockcheck":1,"require":["exclusoin"]}`+"\n")
	if r.Verdict != Unknown {
		t.Errorf("the verdict is %v", r.Verdict)
	}
}

// A fault of a tool that writes no phases may last until its last event.
func TestPhaselessFaultIsNoCalm(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"time":0,"process":"nemesis","type":"info","f":"start"}
{"time":1,"process":"nemesis","type":"info","f":"start"}
{"time":2,"process":0,"type":"invoke","f":"acquire","key":"k","ttl":1000000}
`)
	tail := `{"time":9000000000,"process":"nemesis","type":"info","f":"stop"}
{"time":9000000001,"process":"nemesis","type":"info","f":"stop"}
`
	if r := judged(t, b.String()+tail); r.Properties[Progress].AnomalyCount != 0 {
		t.Error(r.Properties[Progress].told())
	}
	tail += `{"time":12000000001,"process":1,"type":"invoke","f":"acquire","key":"k","ttl":1000000}` + "\n"
	if r := judged(t, b.String()+tail); r.Properties[Progress].AnomalyCount != 1 {
		t.Error("stuck for three seconds after the last event of the nemesis, and no alarm")
	}
}

// What the judge keeps is bounded by what is open, not by the length of the
// history.
func TestJudgeForgets(t *testing.T) {
	n := 200_000
	j := New(history.Header{})
	for _, o := range workload(n, 20, 2) {
		j.Add(&o)
	}
	kept := len(j.grants)
	for _, k := range j.order {
		kept += len(k.tokens) + len(k.recent) + len(k.active) + len(k.waiting) + len(k.awaiting) + len(k.blocks) + len(k.releases) + len(k.unconfirmed)
	}
	kept += len(j.store.queue) + len(j.store.applied) + len(j.store.acked)
	if limit := 2 * (3*keepGrants + maxReleases + 100); kept > limit {
		t.Errorf("after %d events %d records are kept, want at most %d", n, kept, limit)
	}
	if r := j.Finish(context.Background()); r.Verdict != Valid {
		t.Errorf("%v %v", r.Verdict, r.Reasons)
	}
}

// TestCheapJudgeForgets is the same in bytes: a history may be larger than memory.
func TestCheapJudgeForgets(t *testing.T) {
	kept := func(n int) int64 {
		ops := workload(n, 20, 2)
		j := NewCheap(history.Header{})
		before := live()
		for i := range ops {
			j.Add(&ops[i])
		}
		after := live()
		runtime.KeepAlive(ops)
		runtime.KeepAlive(j)
		return after - before
	}
	few, many := kept(100_000), kept(400_000)
	t.Logf("%d bytes are kept after 100,000 events, %d after 400,000", few, many)
	if many > 2*few {
		t.Errorf("%d bytes are kept after 100,000 events, and %d after 400,000", few, many)
	}
}

func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A write whose outcome nobody knows may arrive any number of grants later.
func TestLateWriteAfterManyGrants(t *testing.T) {
	ops := []history.Op{
		{Process: 99, Type: history.Invoke, F: history.Acquire, Key: "orders/0"},
		{Process: 99, Type: history.OK, F: history.Acquire, Key: "orders/0", Grant: history.Some(uint64(1 << 40)), Valid: history.Some(int64(1e9))},
		{Process: 99, Type: history.Invoke, F: history.Read, Key: "orders/0", Grant: history.Some(uint64(1 << 40))},
		{Process: history.Store, Type: history.OK, F: history.Read, Key: "orders/0", Grant: history.Some(uint64(1 << 40)), Seq: history.Some(uint64(1)), Value: []byte("0")},
		{Process: 99, Type: history.OK, F: history.Read, Key: "orders/0", Grant: history.Some(uint64(1 << 40)), Value: []byte("0")},
		{Process: 99, Type: history.Invoke, F: history.Write, Key: "orders/0", Grant: history.Some(uint64(1 << 40)), Value: []byte("1")},
		{Process: 99, Type: history.Info, F: history.Write, Key: "orders/0", Grant: history.Some(uint64(1 << 40)), Value: []byte("1")},
	}
	seq := uint64(1)
	for _, o := range workload(50_000, 5, 1) {
		o.Time += 1e10
		if o.Process == history.Store {
			seq++
			o.Seq = history.Some(seq)
		}
		ops = append(ops, o)
	}
	ops = append(ops, history.Op{Process: history.Store, Type: history.OK, F: history.Write, Key: "orders/0", Time: 1e15, Grant: history.Some(uint64(1 << 40)), Value: []byte("1"), Seq: history.Some(seq + 1)})
	for i := range ops {
		ops[i].Index = i
	}
	r := Check(context.Background(), ops, history.Header{})
	found := ""
	for _, a := range r.Properties[Data].Anomalies {
		found += a.Kind + " "
	}
	if found != "stale-write lost-update " {
		t.Errorf("found %q", found)
	}
}

// The page of what has no linearization is written also when the first
// operations are at fault.
func TestWriteLinear(t *testing.T) {
	r := judged(t, `{"time":1,"process":0,"type":"invoke","f":"acquire","key":"k"}
{"time":2,"process":0,"type":"ok","f":"acquire","key":"k","grant":1}
{"time":3,"process":1,"type":"invoke","f":"acquire","key":"k"}
{"time":4,"process":1,"type":"ok","f":"acquire","key":"k","grant":2}
`)
	var b strings.Builder
	if found, err := r.WriteLinear(&b); !found || err != nil || !strings.Contains(b.String(), "<html") {
		t.Errorf("%v %v %.80q", found, err, b.String())
	}
	ok := judged(t, `{"time":1,"process":0,"type":"invoke","f":"acquire","key":"k"}`+"\n")
	if found, err := ok.WriteLinear(&b); found || err != nil {
		t.Error(found, err)
	}
}

// A clock that stands still leaves every grant of a key awaiting its successor:
// the next one that comes after them finds them all, and until then no grant looks
// at the others again, which took hours for a history of millions.
func TestManyGrantsAtOnce(t *testing.T) {
	const n = 20_000
	k := &keyState{}
	all := make([]*grant, n)
	for i := range all {
		all[i] = &grant{invoke: 5, ok: 5}
		k.follow(all[i], false)
	}
	if len(k.awaiting) != n {
		t.Fatalf("%d of %d grants await a successor", len(k.awaiting), n)
	}
	later := &grant{id: 7, invoke: 6, ok: 7}
	k.follow(later, false)
	for i, g := range all {
		if g.next == nil || g.next.id != later.id {
			t.Fatalf("grant %d is not followed by the one asked for after it", i)
		}
	}
	if len(k.awaiting) != 1 {
		t.Errorf("%d grants await a successor", len(k.awaiting))
	}
}
