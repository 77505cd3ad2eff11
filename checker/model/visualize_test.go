package model

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// illegalPage holds that the page of a result is there and that porcupine, too,
// finds no order of what is on it. It returns how many operations are drawn.
func illegalPage(t *testing.T, r Result) int {
	t.Helper()
	var page bytes.Buffer
	if found, err := r.WriteLinear(&page); err != nil || !found {
		t.Fatal("no page", found, err)
	}
	if !strings.Contains(page.String(), "not linearizable") {
		t.Error("the page does not say what it shows")
	}
	p := r.judge.part(r.Keys[0].ops, r.Keys[0].bad)
	if porcupine.CheckOperations(r.judge.drawing(p.start), p.page()) {
		t.Error("what the page shows is legal")
	}
	return len(p.ops)
}

// jsonLines writes an operation of one process after the other.
func jsonLines(ops ...string) string {
	var b strings.Builder
	for i, o := range ops {
		process, f, _ := strings.Cut(o, " ")
		for j, typ := range []string{"invoke", "ok"} {
			fmt.Fprintf(&b, `{"index":%d,"time":%[1]d,"process":%s,"type":%q,"f":%q,"key":"k"}`+"\n", 2*i+j, process, typ, f)
		}
	}
	return b.String()
}

func TestPageOfTheFirstOperation(t *testing.T) {
	if n := illegalPage(t, judge(t, OwnerMutex, jsonLines("0 release"))); n != 1 {
		t.Errorf("%d operations drawn, want 1", n)
	}
}

// TestPageOfALongHistory draws its end only, and begins with what holds there.
func TestPageOfALongHistory(t *testing.T) {
	var ops []string
	for range 1000 {
		ops = append(ops, "0 acquire", "0 release")
	}
	ops = append(ops, "0 acquire", "1 acquire")
	if n := illegalPage(t, judge(t, OwnerMutex, jsonLines(ops...))); n < drawn/8 || n > drawn {
		t.Errorf("%d operations drawn of %d", n, len(ops))
	}
}

func TestNoPageOfALegalHistory(t *testing.T) {
	var page bytes.Buffer
	r := judge(t, Mutex, jsonLines("0 acquire", "0 release"))
	if found, err := r.WriteLinear(&page); found || err != nil || page.Len() > 0 {
		t.Error(found, err, page.Len())
	}
}
