package skew

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRestartKeepsTheClock: one control for a node, whatever runs there.
func TestRestartKeepsTheClock(t *testing.T) {
	c := control(t)
	first := launched(t, c, Options{}, staticGo(t))
	mustSet(t, c, Realtime, time.Hour)
	first.want("realtime", time.Hour)
	first.end()
	if err := c.Set(Realtime, 0); !errors.Is(err, ErrNotAttached) {
		t.Errorf("set while nothing runs: %v, want ErrNotAttached", err)
	}
	second := launched(t, c, Options{}, staticGo(t))
	second.want("realtime", time.Hour)
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Not waited for, it is a zombie, and no process that follows.
	if err := unix.Waitid(unix.P_PID, second.pid(), nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Set(Realtime, 0); !errors.Is(err, ErrNotAttached) {
		t.Errorf("set while a zombie is there: %v, want ErrNotAttached", err)
	}
	if err := c.Reset(); err != nil {
		t.Errorf("reset while nothing runs: %v", err)
	}
	third := launched(t, c, Options{}, staticGo(t))
	third.want("realtime", 0)
}

func TestMonotonicRefusals(t *testing.T) {
	c := control(t)
	mustSet(t, c, Monotonic, time.Minute)
	cmd := exec.Command("/bin/cat")
	if err := Launch(cmd, c, Options{}); !errors.Is(err, ErrDeadlines) {
		t.Errorf("launch a C program with a moved monotonic clock: %v, want ErrDeadlines", err)
	}
	dead(t, cmd)
	mustSet(t, c, Monotonic, 0)
	cat := launched(t, c, Options{}, "/bin/cat")
	if err := c.Set(Monotonic, time.Minute); !errors.Is(err, ErrDeadlines) {
		t.Errorf("set: %v, want ErrDeadlines", err)
	}
	if err := c.SetDrift(Monotonic, 100); !errors.Is(err, ErrDeadlines) {
		t.Errorf("drift: %v, want ErrDeadlines", err)
	}
	cat.end()

	k := launched(t, c, Options{}, staticGo(t))
	mustSet(t, c, Monotonic, time.Minute)
	if err := c.Set(Monotonic, 59*time.Second); !errors.Is(err, ErrBackwards) {
		t.Errorf("back: %v, want ErrBackwards", err)
	}
	k.want("monotonic", time.Minute)
	c.Force()
	mustSet(t, c, Monotonic, 59*time.Second)
	k.want("monotonic", 59*time.Second)
	k.end()
	launched(t, c, Options{}, dynamicC(t)).want("1", 59*time.Second)
}

// TestReset leaves a monotonic clock that was seen where it is.
func TestReset(t *testing.T) {
	c := control(t)
	k := launched(t, c, Options{}, staticGo(t))
	mustSet(t, c, Realtime, time.Hour)
	mustSet(t, c, Monotonic, time.Minute)
	for _, clock := range []Clock{Realtime, Monotonic} {
		if err := c.SetDrift(clock, 500_000); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // it is idempotent
		if err := c.Reset(); err != nil {
			t.Fatal(err)
		}
	}
	off, err := c.Offset(Monotonic)
	if err != nil || off < time.Minute {
		t.Errorf("monotonic offset %v (%v), want a minute or more", off, err)
	}
	k.want("realtime", 0)
	k.want("monotonic", off)
	if r, err := c.ReadBack(k.pid()); err != nil || r.Drifting || r.Realtime != 0 || r.Monotonic != off {
		t.Errorf("read back %+v, %v", r, err)
	}
	k.end()
	launched(t, c, Options{}, staticGo(t)).want("monotonic", 0)
}

// TestDrift compares a drifting process with what the control says before and
// after each reading.
func TestDrift(t *testing.T) {
	c := control(t)
	k := launched(t, c, Options{}, staticGo(t))
	mustSet(t, c, Realtime, time.Hour)
	for _, ppm := range []float64{1e6, -900_000, 1e9, 0} {
		if err := c.SetDrift(Realtime, ppm); err != nil {
			t.Fatal(err)
		}
		if err := c.SetDrift(Monotonic, ppm); err != nil {
			t.Fatal(err)
		}
		for _, clock := range []Clock{Realtime, Monotonic} {
			pastBend(c, clock) // on both sides of it an offset may be what it is on neither
		}
		for range 20 {
			for name, clock := range map[string]Clock{"realtime": Realtime, "monotonic": Monotonic} {
				a := offset(t, c, clock)
				s := k.read()[name]
				b := offset(t, c, clock)
				if s.to < min(a, b) || s.from > max(a, b) {
					t.Errorf("%v ppm: %s ahead by %v to %v, the control says %v to %v", ppm, name, s.from, s.to, a, b)
				}
			}
		}
	}
	if r, err := c.ReadBack(k.pid()); err != nil || !r.Drifting && r.Realtime == time.Hour {
		t.Errorf("read back %+v, %v", r, err)
	}
}

// pastBend waits until a change of speed has taken effect.
func pastBend(c *Control, k Clock) {
	c.mu.Lock()
	base := c.lines[k].base
	c.mu.Unlock()
	for now(k) < base {
		time.Sleep(time.Millisecond)
	}
}

func offset(t *testing.T, c *Control, k Clock) time.Duration {
	t.Helper()
	d, err := c.Offset(k)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRange(t *testing.T) {
	c := control(t)
	day := 24 * time.Hour
	for _, tt := range []struct {
		k Clock
		d time.Duration
	}{{Realtime, math.MaxInt64}, {Realtime, math.MinInt64}, {Realtime, -365 * 100 * day}, {Monotonic, -365 * day}, {Realtime, 365 * 100 * day}, {2, 0}, {-1, 0}} {
		if err := c.Set(tt.k, tt.d); !errors.Is(err, ErrRange) {
			t.Errorf("set %v to %v: %v, want ErrRange", tt.k, tt.d, err)
		}
	}
	for _, ppm := range []float64{math.NaN(), -1e6, -2e6, 1.1e9, math.Inf(1), math.Inf(-1)} {
		if err := c.SetDrift(Realtime, ppm); !errors.Is(err, ErrRange) {
			t.Errorf("drift %v: %v, want ErrRange", ppm, err)
		}
	}
	if _, err := c.Offset(7); !errors.Is(err, ErrRange) {
		t.Errorf("offset of no clock: %v, want ErrRange", err)
	}
}

// TestNeverBeforeTheEpoch writes a line that Set refuses.
func TestNeverBeforeTheEpoch(t *testing.T) {
	c := control(t)
	k := launched(t, c, Options{}, staticGo(t))
	c.mu.Lock()
	c.lines[Realtime] = line{offset: -int64(150 * 365 * 24 * time.Hour)}
	c.publish()
	c.mu.Unlock()
	before := now(Realtime)
	s := k.read()["realtime"]
	if after := now(Realtime); int64(s.from) > -before || int64(s.to) < -after {
		t.Errorf("ahead by %v to %v, want to read 0", s.from, s.to)
	}
}

func TestClosed(t *testing.T) {
	c, err := NewControl()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, offsetErr := c.Offset(Realtime)
	_, attachedErr := c.Attached(1)
	_, readErr := c.ReadBack(1)
	_, witnessErr := c.Witness(Realtime)
	for what, err := range map[string]error{
		"set": c.Set(Realtime, 0), "drift": c.SetDrift(Realtime, 0), "reset": c.Reset(), "offset": offsetErr,
		"attached": attachedErr, "read back": readErr, "witness": witnessErr,
		"launch": Launch(exec.Command("/bin/true"), c, Options{}),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", what, err)
		}
	}
}

// TestOtherProcesses are not attached, and not read back.
func TestOtherProcesses(t *testing.T) {
	c, other := control(t), control(t)
	k := launched(t, other, Options{}, staticGo(t))
	gone := exec.Command("/bin/true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for name, pid := range map[string]int{"parent": os.Getppid(), "another control's": k.pid(), "ended": gone.Process.Pid} {
		if ok, err := c.Attached(pid); ok || err != nil {
			t.Errorf("%s: attached %v, %v", name, ok, err)
		}
		if _, err := c.ReadBack(pid); !errors.Is(err, ErrNotAttached) {
			t.Errorf("%s: read back: %v, want ErrNotAttached", name, err)
		}
	}
}

func TestWitness(t *testing.T) {
	c := control(t)
	for _, d := range []time.Duration{0, time.Hour, -time.Hour} {
		mustSet(t, c, Realtime, d)
		got, err := c.Witness(Realtime)
		if err != nil || (got-d).Abs() > probeError {
			t.Errorf("set to %v: witnessed %v, %v", d, got, err)
		}
	}
	if d, err := c.Witness(Monotonic); err != nil || d.Abs() > probeError {
		t.Errorf("monotonic: witnessed %v, %v", d, err)
	}
}

// TestReadBackMistrusts takes one link after the other out of the way from the
// symbols to the page, in a stopped process.
func TestReadBackMistrusts(t *testing.T) {
	for name, broken := range map[string]func(p *patched) error{
		"nothing": nil,
		"one symbol as before": func(p *patched) error {
			s, _ := p.image.find("__vdso_gettimeofday")
			return p.t.setWord(p.vdso+s.field, s.value+p.image.bias)
		},
		"all symbols as before": func(p *patched) error {
			for _, s := range p.image.symbols {
				if err := p.t.setWord(p.vdso+s.field, s.value+p.image.bias); err != nil {
					return err
				}
			}
			return nil
		},
		"other code": func(p *patched) error { return p.t.write(p.code+entryTime, []byte{0xc3}) },
		"other page": func(p *patched) error { return p.t.setWord(p.code+wordControl, p.page+pageSize) },
		"page unmapped": func(p *patched) error {
			_, err := p.t.syscall(p.registers, unix.SYS_MUNMAP, p.page, pageSize)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := control(t)
			mustSet(t, c, Realtime, time.Hour)
			err := c.witness(func(p *patched) error {
				if broken != nil {
					if err := broken(p); err != nil {
						return fmt.Errorf("break it: %w", err)
					}
				}
				r, err := c.ReadBack(p.t.pid)
				switch {
				case broken == nil && (err != nil || r.Realtime != time.Hour):
					t.Errorf("read back %+v, %v", r, err)
				case broken != nil && !errors.Is(err, ErrNotAttached):
					t.Errorf("read back %+v, %v; want ErrNotAttached", r, err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// stressTime is how long the readers read at a time, until enough has happened.
const stressTime = 250 * time.Millisecond

// TestTornReadings changes both clocks as fast as it can under four readers. A
// reading that belongs to neither of the two offsets is torn, and a monotonic
// clock whose speed changes never goes back.
func TestTornReadings(t *testing.T) {
	a, b := 7*time.Hour+1, -3*time.Hour-999_999_999
	c := control(t)
	mustSet(t, c, Realtime, a)
	k := launched(t, c, Options{}, staticGo(t))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var steps, bends atomic.Int64
	// Past the check of each step that the process follows, which takes as long
	// as hundreds of steps.
	step := func(off time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lines[Realtime] = line{base: now(Realtime), offset: int64(off)}
		c.publish()
	}
	repeat := func(f func(i int)) {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				f(i)
			}
		}
	}
	wg.Go(func() { repeat(func(i int) { step([]time.Duration{b, a}[i%2]); steps.Add(1) }) })
	wg.Go(func() {
		repeat(func(i int) {
			if err := c.SetDrift(Monotonic, []float64{900_000, -900_000}[i%2]); err != nil {
				t.Error(err)
			}
			bends.Add(1)
		})
	})
	enough := map[bool]int{false: 100_000, true: 10_000_000}[*soak]
	var reads, atA, atB, torn, back int
	little := func() bool {
		return reads < enough || atA == 0 || atB == 0 || steps.Load() < 1000 || bends.Load() < 2
	}
	for end := time.Now().Add(patience); torn+back == 0 && time.Now().Before(end) && little(); {
		var n [5]int
		answer := k.ask(fmt.Sprintf("stress %d %d %d", a, b, stressTime.Milliseconds()))
		if _, err := fmt.Sscan(answer[0], &n[0], &n[1], &n[2], &n[3], &n[4]); err != nil {
			t.Fatal(err)
		}
		reads, atA, atB, torn, back = reads+n[0], atA+n[1], atB+n[2], torn+n[3], back+n[4]
	}
	close(stop)
	wg.Wait()
	t.Logf("%d readings (%d and %d at the two offsets) under %d steps and %d changes of speed: %d torn, %d backwards", reads, atA, atB, steps.Load(), bends.Load(), torn, back)
	if torn != 0 || back != 0 {
		t.Errorf("%d readings are torn, %d go back", torn, back)
	}
	if little() {
		t.Error("too little happened to prove anything")
	}
}
