package nemesis

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

func worker(t *testing.T, i int) Target {
	t.Helper()
	cmd := exec.Command("sh", "-c", "sleep 600 & sleep 600; wait") // a worker with children
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waited := make(chan struct{})
	go func() { cmd.Wait(); close(waited) }()
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); <-waited })
	return Target{Worker: i, Process: int64(i), OS: cmd.Process}
}

func TestPause(t *testing.T) {
	ctx := context.Background()
	ts := []Target{worker(t, 0), worker(t, 1)}
	ev, heal, err := Pause{}.Inject(ctx, ts)
	if err != nil || ev["state"] != "T" {
		t.Fatal(ev, err)
	}
	for _, w := range ts {
		if is, err := stopped(w.OS.Pid); !is || err != nil {
			t.Error(is, err)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for range 2 { // idempotent, and although the run is over
		if _, err := heal(context.WithoutCancel(cancelled)); err != nil {
			t.Error(err)
		}
	}
	for _, w := range ts {
		if is, err := stopped(w.OS.Pid); is || err != nil {
			t.Error(is, err)
		}
	}
	syscall.Kill(-ts[0].OS.Pid, syscall.SIGKILL)
	for ts[0].OS.Signal(syscall.Signal(0)) == nil {
		time.Sleep(time.Millisecond)
	}
	if _, err := heal(ctx); err != nil {
		t.Errorf("heal after the worker died: %v", err)
	}
}

// A fault whose mechanism does nothing is not believed, and what was done
// halfway is undone.
func TestPauseWithoutEffect(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	ts := []Target{worker(t, 0), worker(t, 1)}
	n := 0
	p := Pause{Stop: func(p *os.Process) error {
		if n++; n == 1 {
			return (Pause{}).stopForTest(p)
		}
		return nil
	}}
	if _, _, err := p.Inject(ctx, ts); err == nil {
		t.Fatal("a pause that did not happen was believed")
	}
	if is, _ := stopped(ts[0].OS.Pid); is {
		t.Error("the first target is still stopped")
	}
}

func (Pause) stopForTest(p *os.Process) error {
	_, _, err := Pause{}.Inject(context.Background(), []Target{{OS: p}})
	return err
}

func TestKill(t *testing.T) {
	w := worker(t, 0)
	ev, heal, err := Kill{}.Inject(context.Background(), []Target{w})
	if err != nil || ev["gone"] != true {
		t.Fatal(ev, err)
	}
	if _, err := heal(context.Background()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := (Kill{Signal: func(*os.Process) error { return nil }}).Inject(ctx, []Target{worker(t, 1)}); err == nil {
		t.Error("a kill that did not happen was believed")
	}
}

type fixed []Target

func (f fixed) Workers() []Target { return f }

func TestChoose(t *testing.T) {
	sys := fixed{{Worker: 0}, {Worker: 1, Grants: []uint64{7}}, {Worker: 2, Grants: []uint64{8}}}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	for _, c := range []struct {
		target string
		pick   uint64
		want   []int
	}{{Holder, 0, []int{1}}, {Holder, 5, []int{2}}, {Random, 3, []int{0}}, {All, 1, []int{0, 1, 2}}} {
		ts, err := Choose(ctx, sys, Step{Target: c.target, Pick: c.pick})
		var got []int
		for _, w := range ts {
			got = append(got, w.Worker)
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %d: %v %v", c.target, c.pick, got, err)
		}
	}
	if _, err := Choose(ctx, fixed{{Worker: 0}}, Step{Target: Holder}); !errors.Is(err, ErrNoTarget) {
		t.Error(err)
	}
}

// The plan of a seed is fixed: a change of the generator must be meant.
func TestPlanGolden(t *testing.T) {
	cfg := Config{Faults: []string{"pause", "kill"}, Target: Holder, Interval: 2 * time.Second, Duration: 30 * time.Second, Quiet: 6 * time.Second, TTL: time.Second}
	got, err := json.MarshalIndent(PlanFile{Seed: 7, Steps: Plan(rand.New(rand.NewPCG(7, 1)), cfg)}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/plan.golden.json"
	if *update {
		os.MkdirAll("testdata", 0o755)
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(want)) != string(got) {
		t.Errorf("%v\ngot %s\nwant %s", err, got, want)
	}
	p, err := ReadPlan(got)
	if err != nil || len(p.Steps) == 0 {
		t.Fatal(p, err)
	}
	for i, s := range p.Steps {
		if s.At+s.Duration > cfg.Duration-cfg.Quiet || i > 0 && s.At < p.Steps[i-1].At+p.Steps[i-1].Duration {
			t.Errorf("step %d: %v", i, s)
		}
	}
}

func TestReadPlanRefuses(t *testing.T) {
	for _, s := range []string{"", "{", `{"steps":[{"fault":"meteor","target":"all"}]}`, `{"steps":[{"fault":"pause","target":"moon"}]}`, `{"steps":[{"fault":"pause","target":"all","at":-1}]}`} {
		if _, err := ReadPlan([]byte(s)); err == nil {
			t.Errorf("%s was taken", s)
		}
	}
}
