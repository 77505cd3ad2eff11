package checker

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// What the servers say of a stuck lock is named in the finding, decides nothing,
// and is no fault.
func TestStandings(t *testing.T) {
	for name, c := range map[string]struct {
		standing history.Standing
		says     string
	}{
		"progress-zk-orphan.invalid": {history.Standing{Name: "/lockcheck/x-0000000003", Token: 77, Owner: "session 0x1"},
			""}, /* granted in the end: what stands then blocked nobody */
		"progress-plain-mutex-crashed-holder.invalid": {history.Standing{Name: "/kazoo/k/x__lock__0000000003", Token: 9, Owner: "no session"},
			"(no session) stands in everybody's way: it may be that of grant"},
		"progress-stuck-after-kill.invalid": {history.Standing{Name: "lockcheck/lock/k on n1", Owner: "no expiry"},
			"on the servers lockcheck/lock/k on n1 (no expiry) stands in everybody's way"},
	} {
		f, err := os.Open(filepath.Join("testdata", name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		ops, rd, err := history.ReadAll(f, name)
		if err != nil {
			t.Fatal(err)
		}
		before := Check(t.Context(), ops, rd.Header)
		key := before.Properties[Progress].Anomalies[0].Key
		o, err := history.StandingsEvent(map[string][]history.Standing{key: {c.standing}})
		if err != nil {
			t.Fatal(err)
		}
		o.Index, o.Time = len(ops), ops[len(ops)-1].Time+1
		after := Check(t.Context(), append(ops, o), rd.Header)
		an := after.Properties[Progress].Anomalies[0]
		if c.says == "" {
			if strings.Contains(an.Message, "on the servers") {
				t.Errorf("%s: %s", name, an.Message)
			}
		} else if !strings.Contains(an.Message, c.says) || an.Ops[len(an.Ops)-1] != o.Index {
			t.Errorf("%s: %v %s", name, an.Ops, an.Message)
		}
		if before.Verdict != after.Verdict || !reflect.DeepEqual(before.Exposure, after.Exposure) || len(after.Reasons) != len(before.Reasons) {
			t.Errorf("%s: %+v became %+v", name, before.Exposure, after.Exposure)
		}
	}
}

// The smallest history of go-zookeeper's bug, which docs/libraries.md points at.
func TestWaiterOvertaken(t *testing.T) {
	f, err := os.Open(filepath.Join("..", "docs", "examples", "zk-lock-waiter-overtaken.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ops, rd, err := history.ReadAll(f, f.Name())
	if err != nil {
		t.Fatal(err)
	}
	res := Check(t.Context(), ops, rd.Header)
	if an := res.Properties[Lease].Anomalies; len(an) != 1 || an[0].Kind != kindGrantedAfterLoss {
		t.Errorf("%+v", an)
	}
}
