package skew

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestExecChain goes through shells, and through Go programs whose exec comes
// from the main thread or from another.
func TestExecChain(t *testing.T) {
	path := staticGo(t)
	for name, tt := range map[string]struct {
		execs int
		argv  []string
	}{
		"direct":         {0, []string{path}},
		"shell":          {1, []string{"/bin/sh", "-c", `exec "$0"`, path}},
		"shells":         {2, []string{"/bin/sh", "-c", `exec /bin/sh -c 'exec "$0"' "$0"`, path}},
		"busy shell":     {1, []string{"/bin/sh", "-c", `exec 3</dev/null; for i in 1 2 3; do /bin/true; done; exec "$0"`, path}},
		"go":             {1, []string{path, "exec", path}},
		"another thread": {1, []string{path, "exec-aside", path}},
		"threads twice":  {2, []string{path, "exec-aside", path, "exec-aside", path}},
	} {
		t.Run(name, func(t *testing.T) {
			c := control(t)
			mustSet(t, c, Realtime, time.Hour)
			k := launched(t, c, Options{Execs: tt.execs}, tt.argv[0], tt.argv[1:]...)
			if ok, err := c.Attached(k.pid()); !ok || err != nil {
				t.Errorf("attached: %v, %v", ok, err)
			}
			k.want("realtime", time.Hour)
			mustSet(t, c, Realtime, -time.Hour)
			k.want("realtime", -time.Hour)
			r, err := c.ReadBack(k.pid())
			if err != nil || r.Realtime != -time.Hour || r.Symbols == 0 {
				t.Errorf("read back %+v, %v", r, err)
			}
		})
	}
}

// TestExecDropsTheClock: it does, and it is not passed over in silence.
func TestExecDropsTheClock(t *testing.T) {
	path := staticGo(t)
	c := control(t)
	k := launched(t, c, Options{}, "/bin/sh", "-c", `read x; exec "$0"`, path)
	mustSet(t, c, Realtime, time.Hour)
	if _, err := k.in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	k.want("realtime", 0)
	if ok, err := c.Attached(k.pid()); ok || err != nil {
		t.Errorf("attached: %v, %v", ok, err)
	}
	if err := c.Set(Realtime, time.Minute); !errors.Is(err, ErrNotAttached) {
		t.Errorf("set: %v, want ErrNotAttached", err)
	}
	if err := c.SetDrift(Realtime, 1000); !errors.Is(err, ErrNotAttached) {
		t.Errorf("set drift: %v, want ErrNotAttached", err)
	}
	if _, err := c.ReadBack(k.pid()); !errors.Is(err, ErrNotAttached) {
		t.Errorf("read back: %v, want ErrNotAttached", err)
	}
	if d, err := c.Offset(Realtime); err != nil || d != time.Hour {
		t.Errorf("a refused step has changed the offset to %v (%v)", d, err)
	}
}

// TestFewerExecs: a process that does not do what was said does not stay.
func TestFewerExecs(t *testing.T) {
	c := control(t)
	ended := exec.Command("/bin/true")
	if err := Launch(ended, c, Options{Execs: 1}); !errors.Is(err, ErrNoExec) {
		t.Errorf("a program that ends: %v, want ErrNoExec", err)
	}
	dead(t, ended)
	// It waits for an answer that it never gets.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	waits := exec.Command(staticGo(t))
	waits.Stdin = r
	err = Launch(waits, c, Options{Execs: 1, Limit: 300 * time.Millisecond})
	if !errors.Is(err, ErrNoExec) || !strings.Contains(err.Error(), "300ms") {
		t.Errorf("a program that stays: %v, want ErrNoExec after 300ms", err)
	}
	dead(t, waits)
	if err := c.Set(Realtime, time.Second); err != nil {
		t.Errorf("after launches that failed: %v", err)
	}
}

// dead fails unless a command is gone and was waited for.
func dead(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if cmd.Process == nil {
		return // never started
	}
	if cmd.ProcessState == nil {
		t.Error("the process was not waited for")
	}
	if err := unix.Kill(cmd.Process.Pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d is still there (%v)", cmd.Process.Pid, err)
	}
}
