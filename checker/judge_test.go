package checker

import (
	"context"
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
