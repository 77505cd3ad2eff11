package local

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// self is this binary as a helper. It starts outside the namespaces of any lab
// but the one that the tests run in.
func self(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append([]string{helperArg}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// others lists the live processes of the tests' PID namespace, and with it of
// all below, apart from init and this one. Tests that ask do not run in parallel.
func others() []string {
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err == nil && pid != 1 && pid != os.Getpid() && alive(pid) {
			out = append(out, readOwn(filepath.Join(d, "comm")))
		}
	}
	return out
}

func nothingLeft(t *testing.T) {
	t.Helper()
	began := time.Now()
	err := eventually("see every process end", func() error {
		if left := others(); len(left) > 0 {
			return fmt.Errorf("still there: %v", left)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("the last process ended only after %v", d)
	}
}

// waitLine reads the helper's output up to a line. A helper that takes too long
// is made to say where it hangs.
func waitLine(t *testing.T, cmd *exec.Cmd, sc *bufio.Scanner, want string) {
	t.Helper()
	defer time.AfterFunc(patience, func() { _ = cmd.Process.Signal(syscall.SIGABRT) }).Stop()
	for sc.Scan() {
		if sc.Text() == want {
			return
		}
	}
	t.Fatalf("the helper ended without saying %q", want)
}

func startHeld(t *testing.T, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := self(args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, bufio.NewScanner(out)
}

// Killing the user's process ends the servers, the workers, what these have
// started and hidden in other sessions, and stopped processes too, at whatever
// moment it comes.
func TestOuterKilled(t *testing.T) {
	for i := range 20 {
		cmd, sc := startHeld(t, "hold", NetworkLab, t.TempDir())
		if i == 19 {
			waitLine(t, cmd, sc, "held") // once surely with everything up
			err := eventually("see everything run", func() error {
				// outer, init, lab, redis-server, and the workers' three
				if found := others(); len(found) != 7 {
					return fmt.Errorf("found %v", found)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		} else {
			time.Sleep(time.Duration(i) * 8 * time.Millisecond) // the moment is the point here
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		nothingLeft(t)
	}
}

// On loopback the parent-death signal alone has to do it.
func TestLoopbackKilled(t *testing.T) {
	for range 5 {
		cmd, sc := startHeld(t, "hold", NetworkLoopback, t.TempDir())
		waitLine(t, cmd, sc, "held")
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		nothingLeft(t)
	}
}

// Ctrl-C reaches the whole process group of the terminal. The servers must not
// take it: the run decides when they end. The helper exits with 7 if they still
// answer after it.
func TestInterrupt(t *testing.T) {
	for _, network := range []string{NetworkLab, NetworkLoopback} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
			cmd, sc := startHeld(t, "hold", network, t.TempDir())
			waitLine(t, cmd, sc, "held")
			if err := syscall.Kill(-cmd.Process.Pid, sig); err != nil {
				t.Fatal(err)
			}
			waitLine(t, cmd, sc, "got "+sig.String())
			if code := exitOf(cmd.Wait()); code != 7 {
				t.Errorf("%s, %v: exit code %d", network, sig, code)
			}
			nothingLeft(t)
		}
	}
}

func exitOf(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	return 0
}

func TestExitCode(t *testing.T) {
	for arg, want := range map[string]int{"0": 0, "1": 1, "254": 254, "KILL": 137, "TERM": 143} {
		cmd := self("exit", arg)
		if code := exitOf(cmd.Run()); code != want {
			t.Errorf("exit %s: code %d, want %d", arg, code, want)
		}
		nothingLeft(t)
	}
}

// A stage in the environment that nobody put there on purpose changes nothing,
// not even with some pipe where the hello would be.
func TestHostileEnvironment(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := w.WriteString(strings.Repeat("noise\n", 10)); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []string{stageInit, stageLab, stageProbe, "other", ""} {
		for _, extra := range [][]*os.File{nil, {r}} {
			cmd := self("ordinary")
			cmd.Env = append(os.Environ(), stageEnv+"="+stage)
			cmd.ExtraFiles = extra
			if out, err := cmd.Output(); err != nil || string(out) != "ordinary\n" {
				t.Errorf("%s=%q, files %v: %q, %v", stageEnv, stage, extra, out, err)
			}
		}
	}
}

// A terminal stays one through the re-execution.
func TestTerminal(t *testing.T) {
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer ptmx.Close()
	if err := unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer tty.Close()
	cmd := self("terminal")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	if code := exitOf(cmd.Run()); code != 0 {
		t.Errorf("%d of the three standard files are no terminal inside", code)
	}
}

// Root's files keep their owners inside, and an ordinary user can do all that
// root can.
func TestOrdinaryUser(t *testing.T) {
	const nobody = 65534
	if os.Getuid() != 0 || len(identity("/proc/self/uid_map")) == 0 || identity("/proc/self/uid_map")[0].Size <= nobody {
		t.Skip("needs root with its full range of ids, to become somebody else")
	}
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	cmd := self("first-operation", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) != "uid 0, map 0 65534 1" {
		t.Errorf("as uid %d: %q, %v", nobody, out, err)
	}
	nothingLeft(t)
}
