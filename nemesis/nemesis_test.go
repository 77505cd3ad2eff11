package nemesis

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func worker(t *testing.T, i int) Target {
	t.Helper()
	cmd := exec.Command("sh", "-c", "sleep 600 & echo; wait") // a worker with children
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil { // stopped while it forks, a shell is not stopped but waits for its child
		_, err = out.Read(make([]byte, 1))
	}
	if err != nil {
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
