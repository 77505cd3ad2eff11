package nemesis

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/nemesis/skew"
)

// clocks are those of processes that sleep: two servers and a worker.
type clocks struct {
	controls map[string]*skew.Control
	targets  map[string]Target
	told     func(node string) (time.Time, time.Duration, error)
}

func newClocks(t *testing.T) *clocks {
	c := &clocks{controls: map[string]*skew.Control{}, targets: map[string]Target{}}
	c.told = func(node string) (time.Time, time.Duration, error) {
		off, err := c.controls[node].Offset(skew.Realtime)
		return time.Now().Add(off), time.Second, err
	}
	for _, name := range []string{"n1", "n2", "w0"} {
		control, err := skew.NewControl()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := skew.Launch(cmd, control, skew.Options{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait(); control.Close() })
		target := Target{Node: name, OS: cmd.Process}
		if name == "w0" {
			target.Node = ""
		}
		c.controls[name], c.targets[name] = control, target
	}
	return c
}

func (c *clocks) Clock(t Target) (*skew.Control, error) {
	if control := c.controls[key(t)]; control != nil {
		return control, nil
	}
	return nil, errors.New("it has the real clock")
}

func (c *clocks) Told(_ context.Context, node string) (time.Time, time.Duration, error) {
	return c.told(node)
}

// zero wants every clock to be the real one, by the memory of its process.
func (c *clocks) zero(t *testing.T) {
	t.Helper()
	for name, control := range c.controls {
		r, err := control.ReadBack(c.targets[name].OS.Pid)
		if err != nil || r.Realtime != 0 || r.Drifting {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// Each clock fault is in force on its targets and no others; its heal sets them
// right, also the second time, after the run, and with a target that is dead.
func TestClockFaults(t *testing.T) {
	for _, s := range []Step{
		{Fault: "clock-jump", Form: OfServers, Offset: time.Hour}, {Fault: "clock-jump", Form: OfServers, Offset: -time.Hour},
		{Fault: "clock-drift", Form: OfServers, Drift: 500_000}, {Fault: "clock-drift", Form: OfServers, Drift: -500_000},
		{Fault: "clock-strobe", Form: OfServers, Offset: time.Minute, Period: time.Millisecond},
	} {
		t.Run(s.String(), func(t *testing.T) {
			c := newClocks(t)
			f, err := Make(t.Context(), System{Clocks: c}, s)
			if err != nil {
				t.Fatal(err)
			}
			ev, heal, err := f.Inject(t.Context(), []Target{c.targets["n1"], c.targets["w0"]})
			if err != nil || ev["n1"] == nil || ev["w0"] == nil || f.Name() != s.Fault {
				t.Fatal(f.Name(), ev, err)
			}
			if s.Fault == "clock-jump" { // a third way: the control itself
				if off, err := c.controls["n1"].Offset(skew.Realtime); off != s.Offset || err != nil {
					t.Error(off, err)
				}
			}
			if r, err := c.controls["n2"].ReadBack(c.targets["n2"].OS.Pid); err != nil || r.Generation != 0 {
				t.Errorf("n2 was moved as well: %+v, %v", r, err)
			}
			over, cancel := context.WithCancel(t.Context())
			cancel()
			for range 2 {
				if _, err := heal(over); err != nil {
					t.Error(err)
				}
			}
			c.zero(t)
			dead := c.targets["w0"].OS
			if _, heal, err = f.Inject(t.Context(), []Target{c.targets["n1"], c.targets["w0"]}); err != nil {
				t.Fatal(err)
			}
			if err := dead.Kill(); err != nil {
				t.Fatal(err)
			}
			if _, err := heal(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A clock that is not moved, or not as was said, or that the server itself does
// not go by, is not believed, and what was done halfway is undone.
func TestClocksWithoutEffect(t *testing.T) {
	half := func() func(*skew.Control, skew.Clock, time.Duration) error {
		n := 0
		return func(c *skew.Control, k skew.Clock, to time.Duration) error {
			if n++; n > 1 {
				return nil
			}
			return c.Set(k, to)
		}
	}
	nowhere := func(*skew.Control, skew.Clock, time.Duration) error { return nil }
	for name, make := range map[string]func(*clocks) Fault{
		"no jump":       func(c *clocks) Fault { return ClockJump{Clocks: c, By: time.Hour, Move: nowhere} },
		"half a jump":   func(c *clocks) Fault { return ClockJump{Clocks: c, By: time.Hour, Move: half()} },
		"another jump":  func(c *clocks) Fault { return ClockJump{Clocks: c, By: time.Hour, Move: by(time.Minute)} },
		"only drift":    func(c *clocks) Fault { return ClockDrift{Clocks: c, PPM: 1000, Move: speed(0)} },
		"another drift": func(c *clocks) Fault { return ClockDrift{Clocks: c, PPM: 100_000, Move: speed(300_000)} },
		"no strobe": func(c *clocks) Fault {
			return ClockStrobe{Clocks: c, By: time.Hour, Every: time.Millisecond, Move: nowhere}
		},
		"no way back": func(c *clocks) Fault {
			return ClockStrobe{Clocks: c, By: time.Hour, Every: time.Millisecond, Move: by(time.Hour)}
		},
		"no clocks":      func(*clocks) Fault { return ClockJump{By: time.Hour} },
		"the server":     deafServer,
		"not this clock": func(c *clocks) Fault { return ClockJump{Clocks: c, By: time.Hour, Move: otherClock} },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClocks(t)
			f := make(c)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if ev, _, err := f.Inject(ctx, []Target{c.targets["n1"], c.targets["n2"]}); err == nil {
				t.Errorf("it was believed: %v", ev)
			}
			c.zero(t)
		})
	}
}

func by(d time.Duration) func(*skew.Control, skew.Clock, time.Duration) error {
	return func(c *skew.Control, k skew.Clock, _ time.Duration) error { return c.Set(k, d) }
}

func speed(ppm float64) func(*skew.Control, skew.Clock, float64) error {
	return func(c *skew.Control, k skew.Clock, _ float64) error { return c.SetDrift(k, ppm) }
}

// deafServer answers with the real time whatever its clock says.
func deafServer(c *clocks) Fault {
	c.told = func(string) (time.Time, time.Duration, error) { return time.Now(), time.Second, nil }
	return ClockJump{Clocks: c, By: time.Hour}
}

func otherClock(c *skew.Control, _ skew.Clock, to time.Duration) error {
	c.Force()
	return c.Set(skew.Monotonic, to)
}

// A server that does not tell the time, or does not answer, proves nothing
// either way.
func TestUntoldTime(t *testing.T) {
	for _, why := range []error{ErrUntold, errors.New("no answer")} {
		c := newClocks(t)
		c.told = func(string) (time.Time, time.Duration, error) { return time.Time{}, 0, why }
		_, heal, err := ClockJump{Clocks: c, By: time.Hour}.Inject(t.Context(), []Target{c.targets["n1"]})
		if err != nil {
			t.Fatal(why, err)
		}
		if _, err := heal(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A process of a worker's that has the real clock makes the fault one that is
// not in force: it may be the one that works.
func TestClockOfChildren(t *testing.T) {
	c := newClocks(t)
	child := exec.Command("sleep", "600")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: c.targets["w0"].OS.Pid}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { child.Process.Kill(); child.Wait() }()
	_, _, err := ClockJump{Clocks: c, By: time.Hour}.Inject(t.Context(), []Target{c.targets["w0"]})
	if !errors.Is(err, skew.ErrNotAttached) {
		t.Error(err)
	}
	c.zero(t)
}

// The monotonic clock of a program that may wait for instants is left alone.
func TestMonotonicClock(t *testing.T) {
	c := newClocks(t)
	f, err := Make(t.Context(), System{Clocks: c}, Step{Fault: "clock-jump", Form: WorkersMonotonic, Offset: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Inject(t.Context(), []Target{c.targets["w0"]}); !errors.Is(err, skew.ErrDeadlines) {
		t.Error(err)
	}
	c.zero(t)
}
