package skew

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestProbe(t *testing.T) {
	if err := Probe(); err != nil {
		t.Fatal(err)
	}
}

// TestEveryClockOfC reads all clocks of a C program, at several offsets.
func TestEveryClockOfC(t *testing.T) {
	c := control(t)
	c.Force() // the monotonic clock of a C program
	k := launched(t, c, Options{}, dynamicC(t))
	plain := talk(t, exec.Command(dynamicC(t)), (*exec.Cmd).Start).read()
	for _, d := range []struct{ realtime, monotonic time.Duration }{
		{0, 0},
		{time.Hour, 0},
		{-1, time.Nanosecond},
		{24 * 365 * 20 * time.Hour, 77 * time.Minute},
		{-24*365*50*time.Hour - 999_999_999, 24 * 365 * 10 * time.Hour},
		{0, 0},
	} {
		mustSet(t, c, Realtime, d.realtime)
		mustSet(t, c, Monotonic, d.monotonic)
		got := k.read()
		want := map[string]time.Duration{
			"gettimeofday": d.realtime, "zone": d.realtime, "time": d.realtime, "timespec_get": d.realtime,
			"2": 0, "3": 0, "-6": 0,
		}
		for _, id := range clockIDs[Realtime] {
			want[fmt.Sprint(id)] = d.realtime
		}
		for _, id := range clockIDs[Monotonic] {
			want[fmt.Sprint(id)] = d.monotonic
		}
		for name, s := range got {
			switch p := plain[name]; {
			case p.err != 0 && s.err != p.err:
				t.Errorf("%v: clock %s fails with %d, without the control with %d", d, name, s.err, p.err)
			case p.err == 0 && !s.has(want[name]):
				t.Errorf("%v: clock %s is ahead by %v to %v (error %d)", d, name, s.from, s.to, s.err)
			}
		}
		if len(got) != len(plain) {
			t.Errorf("%d clocks, want %d", len(got), len(plain))
		}
	}
}

func TestStaticGo(t *testing.T) {
	c := control(t)
	mustSet(t, c, Realtime, -3*time.Hour)
	k := launched(t, c, Options{}, staticGo(t))
	k.want("realtime", -3*time.Hour)
	mustSet(t, c, Realtime, 20*time.Second)
	k.want("realtime", 20*time.Second)
	k.want("monotonic", 0)
	mustSet(t, c, Monotonic, time.Minute)
	k.want("monotonic", time.Minute)
	k.want("realtime", 20*time.Second)
}

// TestJava asks the JVM, by single-file source launch.
func TestJava(t *testing.T) {
	java := needServer(t, "java")
	source, err := filepath.Abs("testdata/Clock.java")
	if err != nil {
		t.Fatal(err)
	}
	c := control(t)
	mustSet(t, c, Realtime, time.Hour)
	k := launched(t, c, Options{}, java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", source)
	for _, d := range []time.Duration{time.Hour, -time.Hour, 0} {
		mustSet(t, c, Realtime, d)
		before, mono := now(Realtime), now(Monotonic)
		var instant, millis, nano int64
		if l := k.ask("")[0]; true {
			if _, err := fmt.Sscan(l, &instant, &millis, &nano); err != nil {
				t.Fatalf("%q: %v", l, err)
			}
		}
		after, monoAfter := now(Realtime), now(Monotonic)
		if v := instant - int64(d); v < before-int64(time.Microsecond) || v > after {
			t.Errorf("set to %v: Instant.now is ahead by %v", d, time.Duration(instant-before))
		}
		if v := millis - int64(d); v < before-int64(time.Millisecond) || v > after {
			t.Errorf("set to %v: currentTimeMillis is ahead by %v", d, time.Duration(millis-before))
		}
		if nano < mono || nano > monoAfter {
			t.Errorf("set to %v: nanoTime has moved by %v", d, time.Duration(nano-mono))
		}
	}
	if err := c.Set(Monotonic, time.Second); !errors.Is(err, ErrDeadlines) {
		t.Errorf("monotonic clock of a JVM: %v, want ErrDeadlines", err)
	}
	r, err := c.ReadBack(k.pid())
	if err != nil || r.Realtime != 0 || r.Monotonic != 0 {
		t.Errorf("read back %+v, %v", r, err)
	}
}

// TestNothingIsLeftBehind: no descriptor, no tracer, no page that the process
// could write.
func TestNothingIsLeftBehind(t *testing.T) {
	c := control(t)
	k := launched(t, c, Options{}, staticGo(t))
	k.read()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", k.pid()))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if l, err := os.Readlink(fd); err == nil && strings.Contains(l, controlName) {
			t.Errorf("%s is still open: %s", fd, l)
		}
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.pid()))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "TracerPid:\t0\n") {
		t.Error("it is still traced")
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", k.pid()))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(maps)) {
		if strings.Contains(l, controlName) && !strings.Contains(l, " r--s ") {
			t.Errorf("mapped with other rights: %s", l)
		}
	}
}

func TestParallelLaunches(t *testing.T) {
	path := staticGo(t)
	var wg sync.WaitGroup
	errs := make(chan error, map[bool]int{false: 24, true: 200}[*soak])
	for i := range cap(errs) {
		wg.Go(func() {
			c := control(t)
			d := time.Duration(i+1) * time.Hour
			if err := c.Set(Realtime, d); err != nil {
				errs <- err
				return
			}
			cmd := exec.Command(path, "read", "once")
			var out strings.Builder
			cmd.Stdout = &out
			if err := Launch(cmd, c, Options{}); err != nil {
				errs <- err
				return
			}
			if err := cmd.Wait(); err != nil {
				errs <- err
				return
			}
			var s span
			if _, err := fmt.Sscanf(out.String(), "realtime %d %d", (*int64)(&s.from), (*int64)(&s.to)); err != nil || !s.has(d) {
				errs <- fmt.Errorf("set to %v: %q (%v)", d, out.String(), err)
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

// TestFromALockedThread launches as cluster/local does: from a thread that lives
// on, and with whose end the process ends.
func TestFromALockedThread(t *testing.T) {
	c := control(t)
	path := staticGo(t)
	jobs := make(chan func())
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so the thread ends with this
		for job := range jobs {
			job()
		}
	}()
	cmd := exec.Command(path)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	k := talk(t, cmd, func(cmd *exec.Cmd) error {
		err := make(chan error)
		jobs <- func() {
			before := unix.Gettid()
			e := Launch(cmd, c, Options{})
			if unix.Gettid() != before {
				e = errors.Join(e, errors.New("launched from another thread"))
			}
			err <- e
		}
		return <-err
	})
	mustSet(t, c, Realtime, time.Minute)
	k.want("realtime", time.Minute)
	close(jobs)
	<-done
	endedBy(t, cmd, unix.SIGKILL)
}

// TestSignalsAreHeld sends signals to a whole group again and again, while its
// other processes are being launched.
func TestSignalsAreHeld(t *testing.T) {
	path := staticGo(t)
	leader := talk(t, exec.Command(path), func(cmd *exec.Cmd) error {
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		return cmd.Start()
	})
	leader.read() // it is past the start of its runtime
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			for _, s := range []unix.Signal{unix.SIGWINCH, unix.SIGURG, unix.SIGCONT} {
				_ = unix.Kill(-leader.pid(), s)
			}
			select {
			case <-stop:
				return
			default:
				runtime.Gosched()
			}
		}
	}()
	for i := range 20 {
		c := control(t)
		d := time.Duration(i+1) * time.Minute
		mustSet(t, c, Realtime, d)
		cmd := exec.Command(path)
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pgid: leader.pid()}
		k := talk(t, cmd, func(cmd *exec.Cmd) error { return Launch(cmd, c, Options{}) })
		k.want("realtime", d)
		k.end()
	}
	close(stop)
	<-over
}

// TestHeldSignalArrives sends one signal while the process is in ptrace's hands.
func TestHeldSignalArrives(t *testing.T) {
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGSTOP} {
		t.Run(unix.SignalName(s), func(t *testing.T) { signalMeanwhile(t, s) })
	}
}

func signalMeanwhile(t *testing.T, s unix.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := control(t)
	l := launch{cmd: exec.Command("/bin/cat"), control: c, code: code}
	in, err := l.cmd.StdinPipe() // it waits for input
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	fd, err := l.start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.cmd.Process.Kill() }()
	tr := &tracee{pid: l.cmd.Process.Pid}
	if _, err := tr.wait(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(tr.pid, s); err != nil {
		t.Fatal(err)
	}
	if err := tr.signalMask(ptraceSetSigmask, &l.mask); err != nil {
		t.Fatal(err)
	}
	p := &patched{t: tr, descriptor: fd}
	if err := p.patch(code, true); err != nil {
		t.Fatal(err)
	}
	if err := l.release(p); err != nil {
		t.Fatal(err)
	}
	if s == unix.SIGSTOP {
		var st unix.WaitStatus
		if _, err := unix.Wait4(tr.pid, &st, unix.WUNTRACED, nil); err != nil || !st.Stopped() {
			t.Errorf("status %#x (%v), want stopped", st, err)
		}
		s = unix.SIGKILL
		if err := unix.Kill(tr.pid, s); err != nil {
			t.Fatal(err)
		}
	}
	endedBy(t, l.cmd, s)
}

// endedBy waits for a command and fails unless a signal has ended it.
func endedBy(t testing.TB, cmd *exec.Cmd, s unix.Signal) {
	t.Helper()
	err := cmd.Wait()
	var e *exec.ExitError
	if !errors.As(err, &e) || e.Sys().(syscall.WaitStatus).Signal() != s {
		t.Errorf("the process ended with %v, want %v", err, s)
	}
}

func TestStoppedProcess(t *testing.T) {
	c := control(t)
	k := launched(t, c, Options{}, staticGo(t))
	k.want("realtime", 0)
	if err := k.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	mustSet(t, c, Realtime, time.Hour)
	if r, err := c.ReadBack(k.pid()); err != nil || r.Realtime != time.Hour {
		t.Errorf("read back %+v, %v", r, err)
	}
	if err := k.cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	k.want("realtime", time.Hour)
}
