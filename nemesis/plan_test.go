package nemesis

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

var zkSetting = Setting{
	Backend: "zookeeper", Workers: 5, Leads: true, Elects: true, Talk: true, Durable: true, Namespaces: true,
	Nodes: []string{"n1", "n2", "n3"}, Data: []string{"n1", "n2", "n3"},
}

func everyFault() []string {
	var fs []string
	for _, e := range Faults() {
		fs = append(fs, e.Name)
	}
	return fs
}

// The plan of a seed is fixed: a change of the generator must be meant.
func TestPlanGolden(t *testing.T) {
	workers := Config{Faults: []string{"pause", "kill"}, Target: Holder, Interval: 2 * time.Second, Duration: 30 * time.Second, Quiet: 6 * time.Second, TTL: time.Second, Setting: zkSetting}
	every := workers
	every.Faults, every.Duration, every.AtOnce = everyFault(), 60*time.Second, 3
	for name, cfg := range map[string]Config{"plan": workers, "plan-every": every} {
		t.Run(name, func(t *testing.T) {
			got, err := json.MarshalIndent(PlanFile{Seed: 7, Steps: Plan(rand.New(rand.NewPCG(7, 1)), cfg)}, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".golden.json")
			if *update {
				if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || strings.TrimSpace(string(want)) != string(got) {
				t.Errorf("%v\ngot %s\nwant %s", err, got, want)
			}
			p, err := ReadPlan(got)
			if err != nil || len(p.Steps) == 0 || !reflect.DeepEqual(p.Steps, Plan(rand.New(rand.NewPCG(7, 1)), cfg)) {
				t.Fatal(p, err)
			}
		})
	}
}

// Whatever the seed: every step can be carried out, leaves the end quiet, and
// never meets its own kind; over some seeds everything is drawn.
func TestPlans(t *testing.T) {
	for _, set := range []Setting{zkSetting, sentinelSetting} {
		seen := map[string]bool{}
		for seed := range uint64(60) {
			cfg := Config{Faults: everyFault(), Target: Holder, Interval: time.Second, Duration: time.Minute, Quiet: 6 * time.Second, TTL: time.Second, AtOnce: 1 + int(seed%4), Setting: set}
			steps := Plan(rand.New(rand.NewPCG(seed, 1)), cfg)
			for i, s := range steps {
				if err := errors.Join(s.Check(set), s.sizes()); err != nil {
					t.Fatalf("seed %d step %d: %v", seed, i, err)
				}
				if s.At+s.Duration > cfg.Duration-cfg.Quiet {
					t.Errorf("seed %d step %d: %v", seed, i, s)
				}
				apart(t, steps, i, cfg.AtOnce)
				for _, k := range []string{s.Fault + fmt.Sprintf(" back %v", s.Offset < 0 || s.Drift < 0), s.Fault + ":" + s.Form, s.Fault + " way " + s.Way, s.Fault + " links " + s.Links, "long " + fmt.Sprint(s.Duration > cfg.TTL)} {
					seen[k] = true
				}
			}
		}
		for _, k := range []string{
			"partition:one", "partition:leader", "partition:halves", "partition:ring", "partition:bridge",
			"partition way both", "partition way in", "partition way out", "failover:kill", "failover:pause", "server-kill:lose",
			"late links store", "late links all", "client-cut links majority", "client-cut links leader", "client-cut way requests", "client-cut way replies",
			"slow links nodes", "down links minority", "reset:", "slicer:", "jitter:", "bandwidth:", "kill:", "pause:", "server-pause:", "long true",
			"clock-jump:server", "clock-drift:server", "clock-strobe:server", "clock-jump back true", "clock-jump back false", "clock-drift back true", "clock-drift back false", "long false",
		} {
			if !seen[k] {
				t.Errorf("%s: %q is never drawn", set.Backend, k)
			}
		}
		if seen["clock-jump:monotonic"] || seen["clock-jump:worker"] {
			t.Errorf("%s: forms are drawn that nobody asked for", set.Backend)
		}
		if seen["failover:handover"] != set.HandsOver || seen["partition:replicas"] != (set.Backend == "redis-sentinel") || seen["server-kill:keep"] != set.Durable {
			t.Errorf("%s: forms that cannot work are drawn, or those that can are not", set.Backend)
		}
	}
}

// apart wants step i not to overlap one of its own kind, nor more than there may
// be.
func apart(t *testing.T, steps []Step, i, most int) {
	t.Helper()
	s := steps[i]
	e, _ := Find(s.Fault)
	at := 1
	for _, o := range steps[:i] {
		if o.At+o.Duration < s.At {
			continue
		}
		at++
		if oe, _ := Find(o.Fault); oe.Acts == e.Acts {
			t.Errorf("%v overlaps %v", s, o)
		}
	}
	if at > most {
		t.Errorf("%d faults at once, not %d", at, most)
	}
}

// A target that is asked for is the one that is aimed at, where it fits.
func TestPlanTargets(t *testing.T) {
	for target, want := range map[string]map[string]string{
		Holder: {"pause": Holder, "server-pause": Leader, "late": Holder, "clock-jump": Leader, "clock-jump:worker": Holder},
		Random: {"pause": Random, "server-pause": Random, "partition": Random, "failover": Leader},
		Leader: {"pause": Holder, "server-pause": Leader, "partition": Leader},
		"":     {"pause": Holder, "server-pause": Leader},
		"n2":   {"server-pause": "n2", "partition": "n2"},
		"w1":   {"pause": "w1", "down": "w1"},
	} {
		for fault, aim := range want {
			cfg := Config{Faults: []string{fault}, Target: target, Interval: time.Second, Duration: 30 * time.Second, TTL: time.Second, Setting: zkSetting}
			for _, s := range Plan(rand.New(rand.NewPCG(1, 1)), cfg) {
				if s.Target != aim {
					t.Errorf("%s at %q is aimed at %s", fault, target, s.Target)
				}
			}
		}
	}
}

func TestReadPlanRefuses(t *testing.T) {
	for _, s := range []string{
		"", "{", `{"steps":[{"fault":"meteor","target":"all"}]}`, `{"steps":[{"fault":"pause","target":"all","at":-1}]}`,
		`{"steps":[{"fault":"partition","target":"all"}]}`, `{"steps":[{"fault":"partition","form":"star","target":"all"}]}`,
		`{"steps":[{"fault":"pause","form":"long","target":"all"}]}`, `{"steps":[{"fault":"slow","target":"all","latency":-1}]}`,
		`{"steps":[{"fault":"clock-jump","target":"all","offset":1}]}`, `{"steps":[{"fault":"clock-jump","form":"server","target":"all"}]}`,
		`{"steps":[{"fault":"clock-jump","form":"monotonic","target":"all","offset":-1}]}`, `{"steps":[{"fault":"clock-drift","form":"server","target":"all","drift":-1000000}]}`,
		`{"steps":[{"fault":"clock-strobe","form":"server","target":"all","offset":1}]}`,
	} {
		if _, err := ReadPlan([]byte(s)); err == nil {
			t.Errorf("%s was taken", s)
		}
	}
	for _, s := range []Step{{Fault: "pause", Target: "moon"}, {Fault: "late", Target: Holder, Links: "moon"}, {Fault: "failover", Form: HandOver, Target: Leader}} {
		if err := s.Check(zkSetting); err == nil {
			t.Errorf("%v was taken", s)
		}
	}
}

// A run that is short still meets every fault that it asks for, whatever the seed.
func TestShortPlanHoldsEachFault(t *testing.T) {
	for _, e := range Faults() {
		cfg := Config{Faults: []string{e.Name}, Interval: 500 * time.Millisecond, Duration: 6 * time.Second, Quiet: 3 * time.Second, TTL: time.Second}
		cfg.Setting = zkSetting
		for seed := range uint64(200) {
			steps := Plan(rand.New(rand.NewPCG(seed, 1)), cfg)
			if len(steps) == 0 {
				t.Errorf("%s, seed %d: no step", e.Name, seed)
			}
			for _, s := range steps {
				if end := s.At + s.Duration; end > cfg.Duration-cfg.Quiet {
					t.Errorf("%s, seed %d: %v ends at %v", e.Name, seed, s, end)
				}
			}
		}
	}
}
