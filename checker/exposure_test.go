package checker

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

const heldOverFailover = `
{"time":1000,"process":0,"type":"invoke","f":"acquire","key":"k","ttl":900000}
{"time":2000,"process":0,"type":"ok","f":"acquire","key":"k","grant":1,"valid":900000}
{"time":3000,"process":"nemesis","type":"info","f":"failover","value":{"fault":1,"phase":"asked","targets":["n1"]}}
{"time":4000,"process":0,"type":"invoke","f":"release","key":"k","grant":1}
{"time":6300,"process":0,"type":"ok","f":"release","key":"k","grant":1}
{"time":6000,"process":"nemesis","type":"info","f":"failover","value":{"fault":1,"phase":"done","targets":["n1"],"evidence":{"to":"n2"}}}
{"time":6500,"process":"nemesis","type":"info","f":"failover","value":{"fault":1,"phase":"healed","targets":["n1"]}}
{"time":7000,"process":"nemesis","type":"info","f":"partition","value":{"fault":2,"phase":"asked","targets":["n2"]}}
{"time":8000,"process":"nemesis","type":"info","f":"partition","value":{"fault":2,"phase":"done","targets":["n2"],"evidence":{"dropped":1}}}
{"time":9000,"process":1,"type":"invoke","f":"acquire","key":"k","ttl":900000}
{"time":10000,"process":1,"type":"ok","f":"acquire","key":"k","grant":2,"valid":900000}
{"time":11000,"process":1,"type":"invoke","f":"release","key":"k","grant":2}
{"time":12000,"process":1,"type":"ok","f":"release","key":"k","grant":2}
{"time":13000,"process":"nemesis","type":"info","f":"partition","value":{"fault":2,"phase":"heal-asked","targets":["n2"]}}
{"time":14000,"process":"nemesis","type":"info","f":"partition","value":{"fault":2,"phase":"healed","targets":["n2"]}}
`

// A fault on servers counts over a hold by what it was in force over, a failover
// by what was held when the lead was taken away.
func TestExposureOfServerFaults(t *testing.T) {
	for change, want := range map[string][3]int{
		"":                                    {1, 1, 0},
		`"time":3000 to "time":500`:           {1, 0, 0}, // nothing was held yet
		`"phase":"done" to "phase":"skipped"`: {0, 0, 0},
		`"f":"failover" to "f":"server-kill"`: {1, 0, 0},
		`"f":"failover" to "f":"clock-jump"`:  {1, 0, 1},
		`"f":"failover" to "f":"clock-drift"`: {1, 0, 0},
		`"time":4000 to "time":6200`:          {2, 1, 0},
		`"time":8000 to "time":11500`:         {0, 1, 0}, // in force when nothing was held any more
	} {
		text := strings.TrimSpace(heldOverFailover)
		if from, to, ok := strings.Cut(change, " to "); ok {
			text = strings.ReplaceAll(text, from, to)
		}
		ops, rd, err := history.ReadAll(strings.NewReader(sorted(text)), "exposure")
		if err != nil {
			t.Fatal(err)
		}
		e := Check(context.Background(), ops, rd.Header).Exposure
		if got := [3]int{e.FaultsOverHold, e.FailoversWhileHeld, e.ClockJumpsWhileHeld}; got != want {
			t.Errorf("%q: over a hold, while held: %v, want %v", change, got, want)
		}
	}
}

// sorted puts the lines in the order of their times.
func sorted(text string) string {
	lines := strings.Split(text, "\n")
	at := func(line string) int {
		var o struct{ Time int }
		json.Unmarshal([]byte(line), &o)
		return o.Time
	}
	slices.SortStableFunc(lines, func(a, b string) int { return at(a) - at(b) })
	return strings.Join(lines, "\n") + "\n"
}

// A jump of a worker's clock counts if it is the holder's.
func TestExposureOfWorkersClocks(t *testing.T) {
	for target, want := range map[string]int{"0": 1, "1": 0} {
		text := strings.NewReplacer(`"failover"`, `"clock-jump"`, `["n1"]`, "["+target+"]").Replace(strings.TrimSpace(heldOverFailover))
		ops, rd, err := history.ReadAll(strings.NewReader(sorted(text)), "exposure")
		if err != nil {
			t.Fatal(err)
		}
		if got := Check(context.Background(), ops, rd.Header).Exposure.ClockJumpsWhileHeld; got != want {
			t.Errorf("clock of process %s: %d, want %d", target, got, want)
		}
	}
}
