package skew

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// programs is where the programs for the tests are built. Everybody can read it:
// some of them are run by a user without rights.
var programs string

// soak makes the tests that count events count more of them.
var soak = flag.Bool("soak", false, "ten million readings, two hundred launches at once, every twenty-ninth mutant")

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if f, ok := roles[os.Args[1]]; ok {
			os.Exit(f(os.Args[2:]))
		}
	}
	os.Exit(testAll(m))
}

func testAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "skew")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	programs = dir
	return m.Run()
}

var goProgram = sync.OnceValues(func() (string, error) {
	return compile("target", "go", "build", "-o", "OUT", "./testdata/target")
})

var cProgram = sync.OnceValues(func() (string, error) {
	return compile("clock", "cc", "-O2", "-o", "OUT", "testdata/clock.c")
})

func compile(name, tool string, args ...string) (string, error) {
	out := filepath.Join(programs, name)
	for i, a := range args {
		if a == "OUT" {
			args[i] = out
		}
	}
	cmd := exec.Command(tool, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, b)
	}
	return out, nil
}

// staticGo is the path of a Go program without a C library.
func staticGo(t testing.TB) string {
	t.Helper()
	need(t, "go")
	p, err := goProgram()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// dynamicC is the path of a C program.
func dynamicC(t testing.TB) string {
	t.Helper()
	need(t, "cc")
	p, err := cProgram()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// need skips a test for which a tool is missing.
func need(t testing.TB, program string) string {
	t.Helper()
	p, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed, so this is not tested", program)
	}
	return p
}

// patience bounds what a test waits for on a loaded machine.
const patience = 2 * time.Minute

// A talker is a launched program that answers lines.
type talker struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

// launched starts a program that talks, with a control.
func launched(t testing.TB, c *Control, o Options, path string, args ...string) *talker {
	t.Helper()
	return talk(t, exec.Command(path, args...), func(cmd *exec.Cmd) error { return Launch(cmd, c, o) })
}

func talk(t testing.TB, cmd *exec.Cmd, start func(*exec.Cmd) error) *talker {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	k := &talker{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(k.end)
	return k
}

func (k *talker) pid() int { return k.cmd.Process.Pid }

// end kills the program, unless it was waited for.
func (k *talker) end() {
	if k.cmd.ProcessState == nil {
		_ = k.cmd.Process.Kill()
		_ = k.cmd.Wait()
	}
}

// ask sends a line and returns the lines of the answer.
func (k *talker) ask(line string) []string {
	k.t.Helper()
	// A program that hangs must not hang the test.
	late := time.AfterFunc(patience, func() { _ = k.cmd.Process.Kill() })
	defer late.Stop()
	if _, err := fmt.Fprintln(k.in, line); err != nil {
		k.t.Fatal(err)
	}
	var lines []string
	for k.out.Scan() {
		if k.out.Text() == "." {
			return lines
		}
		lines = append(lines, k.out.Text())
	}
	k.t.Fatalf("%s: the program ended (%v)", line, k.out.Err())
	return nil
}

// A span is how far ahead a clock is, at least and at most.
type span struct {
	from, to time.Duration
	err      int
}

func (s span) has(d time.Duration) bool { return s.err == 0 && s.from <= d && d <= s.to }

// read asks for all clocks by name.
func (k *talker) read() map[string]span {
	k.t.Helper()
	m := map[string]span{}
	for _, l := range k.ask("read") {
		var name string
		var s span
		if strings.Contains(l, "error") {
			if _, err := fmt.Sscanf(l, "%s error %d", &name, &s.err); err != nil {
				k.t.Fatalf("%q: %v", l, err)
			}
		} else {
			if _, err := fmt.Sscan(l, &name, (*int64)(&s.from), (*int64)(&s.to)); err != nil {
				k.t.Fatalf("%q: %v", l, err)
			}
		}
		m[name] = s
	}
	return m
}

// want fails unless a clock is d ahead.
func (k *talker) want(name string, d time.Duration) {
	k.t.Helper()
	if s, ok := k.read()[name]; !ok || !s.has(d) {
		k.t.Errorf("%s is ahead by %v to %v (error %d), want %v", name, s.from, s.to, s.err, d)
	}
}

func control(t testing.TB) *Control {
	t.Helper()
	c, err := NewControl()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func mustSet(t testing.TB, c *Control, k Clock, d time.Duration) {
	t.Helper()
	if err := c.Set(k, d); err != nil {
		t.Fatal(err)
	}
}

// needServer ends a test for which a server, or what it runs on, is missing: what
// was not tried has not passed.
func needServer(t testing.TB, program string) string {
	t.Helper()
	p, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%s is not installed (scripts/deps.sh), so this cannot be tested", program)
	}
	return p
}
