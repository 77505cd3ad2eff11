package nemesis

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// machines are servers that are processes which sleep.
type machines struct {
	t      *testing.T
	procs  map[string]*os.Process
	waited map[string]chan struct{}
	data   map[string]int
	leader string
	stuck  bool // nobody else comes to lead
}

func newMachines(t *testing.T, names ...string) *machines {
	m := &machines{t: t, procs: map[string]*os.Process{}, waited: map[string]chan struct{}{}, data: map[string]int{}, leader: names[0]}
	for _, n := range names {
		m.start(n)
	}
	return m
}

func (m *machines) start(node string) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	waited := make(chan struct{})
	go func() { cmd.Wait(); close(waited) }()
	m.t.Cleanup(func() { cmd.Process.Kill(); <-waited })
	m.procs[node], m.waited[node] = cmd.Process, waited
}

func (m *machines) Pid(node string) (int, error) {
	p := m.procs[node]
	if err := p.Signal(syscall.Signal(0)); err != nil {
		return 0, err
	}
	return p.Pid, nil
}

func (m *machines) Leader(context.Context) (string, error) {
	if is, err := halted(m.procs[m.leader].Pid); !m.stuck && (is || err != nil) {
		m.leader = "n2"
	}
	return m.leader, nil
}

func (m *machines) Kill(node string) error {
	err := m.procs[node].Kill()
	<-m.waited[node]
	return err
}

func (m *machines) Restart(_ context.Context, keep bool, nodes ...string) error {
	for _, n := range nodes {
		m.start(n)
		if !keep {
			m.data[n]++
		}
	}
	return nil
}

func (m *machines) DataID(node string) (string, error) { return string(rune('a' + m.data[node])), nil }

func (m *machines) HandOver(context.Context) error {
	m.leader = "n2"
	return nil
}

func (m *machines) targets(names ...string) []Target {
	var ts []Target
	for _, n := range names {
		ts = append(ts, Target{Node: n, OS: m.procs[n]})
	}
	return ts
}

func TestServerPause(t *testing.T) {
	m := newMachines(t, "n1", "n2")
	ts := m.targets("n1", "n2")
	ev, heal, err := ServerPause{}.Inject(t.Context(), ts)
	if err != nil || ev["state"] != "T" {
		t.Fatal(ev, err)
	}
	if err := m.Kill("n2"); err != nil { // it dies while it is stopped
		t.Fatal(err)
	}
	for range 2 {
		if _, err := heal(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if is, err := halted(ts[0].OS.Pid); is || err != nil {
		t.Error(is, err)
	}
}

func TestServerKill(t *testing.T) {
	for _, keep := range []bool{true, false} {
		m := newMachines(t, "n1", "n2")
		ts := m.targets("n1", "n2")
		ev, heal, err := ServerKill{Servers: m, Keep: keep}.Inject(t.Context(), ts)
		if err != nil || ev["gone"] != true {
			t.Fatal(ev, err)
		}
		for range 2 {
			ev, err = heal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
		}
		n1 := ev["n1"].(Evidence)
		if n1["pid_after"] == ts[0].OS.Pid || n1["data"] != map[bool]string{true: Keep, false: Lose}[keep] {
			t.Errorf("keep %v: %v", keep, n1)
		}
	}
}

// Data that was to be lost and was kept is not passed over.
func TestServerKillData(t *testing.T) {
	m := newMachines(t, "n1")
	_, heal, err := ServerKill{Servers: keeping{m}}.Inject(t.Context(), m.targets("n1"))
	if err != nil {
		t.Fatal(err)
	}
	if ev, err := heal(t.Context()); err == nil {
		t.Error(ev)
	}
}

type keeping struct{ *machines }

func (k keeping) Restart(ctx context.Context, _ bool, nodes ...string) error {
	return k.machines.Restart(ctx, true, nodes...)
}

func TestFailover(t *testing.T) {
	for _, form := range []string{HandOver, LoseKilled, LosePaused} {
		m := newMachines(t, "n1", "n2")
		ev, heal, err := Failover{Servers: m, Form: form}.Inject(t.Context(), m.targets("n1"))
		if err != nil || ev["from"] != "n1" || ev["to"] != "n2" {
			t.Fatal(form, ev, err)
		}
		for range 2 {
			if _, err := heal(t.Context()); err != nil {
				t.Error(form, err)
			}
		}
		if pid, err := m.Pid("n1"); err != nil {
			t.Error(form, err)
		} else if is, err := halted(pid); is || err != nil {
			t.Error(form, is, err)
		}
	}
}

// Servers on which nothing happens are not believed, and what was done halfway
// is undone.
func TestServersWithoutEffect(t *testing.T) {
	m := newMachines(t, "n1", "n2")
	m.stuck = true
	n := 0
	half := func(act func(node string) error) func(string) error {
		n = 0
		return func(node string) error {
			if n++; n > 1 {
				return nil
			}
			return act(node)
		}
	}
	for _, f := range []Fault{
		ServerPause{Stop: func(p *os.Process) error {
			if p.Pid == m.procs["n1"].Pid {
				return p.Signal(syscall.SIGSTOP)
			}
			return nil
		}},
		ServerKill{Servers: m, Keep: true, Kill: half(m.Kill)},
		ServerKill{Servers: m, Keep: true, Kill: func(string) error { return errors.New("no") }},
		Failover{Servers: m, Form: HandOver, Act: func(context.Context) error { return nil }},
		Failover{Servers: m, Form: LoseKilled, Act: func(context.Context) error { return nil }},
		Failover{Servers: m, Form: LoseKilled}, // killed, and nobody takes over
		Failover{Servers: m, Form: LosePaused},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if ev, _, err := f.Inject(ctx, m.targets("n1", "n2")); err == nil {
			t.Errorf("%#v was believed: %v", f, ev)
		}
		cancel()
		for _, node := range []string{"n1", "n2"} {
			pid, err := m.Pid(node)
			if err != nil {
				t.Fatalf("%#v: %s: %v", f, node, err)
			}
			if is, err := halted(pid); is || err != nil {
				t.Errorf("%#v: %s is stopped: %v %v", f, node, is, err)
			}
		}
	}
}
