// Package servertest starts the real servers that the tests of lock clients
// need, on loopback, and cuts the wires to them. It fails a test when a server
// is missing; it never skips.
package servertest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// startWithin is generous: the machine may be compiling something else.
const startWithin = time.Minute

// A Server is one process and the address that it serves.
type Server struct {
	Addr string

	t       testing.TB
	name    string
	command func() *exec.Cmd
	ready   func() error
	cmd     *exec.Cmd
	gone    chan struct{}
	log     string
}

// launch starts a server that ends with the test.
func launch(t testing.TB, name, addr string, command func() *exec.Cmd, ready func() error) *Server {
	t.Helper()
	s := &Server{Addr: addr, t: t, name: name, command: command, ready: ready, log: filepath.Join(t.TempDir(), "log")}
	s.begin()
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			b, _ := os.ReadFile(s.log)
			t.Logf("log of %s %s:\n%s", name, addr, b[max(0, len(b)-1000):])
		}
	})
	return s
}

// begin starts the process from a thread that lives as long: the signal that
// ends a child with its parent belongs to the parent's thread.
func (s *Server) begin() {
	s.t.Helper()
	cmd := s.command()
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started, gone := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(gone)
		defer out.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		s.t.Fatalf("start %s: %v", s.name, err)
	}
	s.cmd, s.gone = cmd, gone
}

// await waits until the server answers.
func (s *Server) await() {
	s.t.Helper()
	var err error
	for end := time.Now().Add(startWithin); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = s.ready(); err == nil {
			return
		}
		select {
		case <-s.gone:
			b, _ := os.ReadFile(s.log)
			s.t.Fatalf("%s %s ended at its start:\n%s", s.name, s.Addr, bytes.TrimSpace(b))
		default:
		}
	}
	s.t.Fatalf("%s %s does not answer: %v", s.name, s.Addr, err)
}

// Kill ends the process as kill -9 does, a paused one too, and waits for that.
func (s *Server) Kill() {
	s.cmd.Process.Kill()
	<-s.gone
}

// Restart starts the process again, with its data, and waits until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.begin()
	s.await()
}

// Pause stops the process until Resume, and waits until it has stopped.
func (s *Server) Pause() {
	s.t.Helper()
	s.cmd.Process.Signal(syscall.SIGSTOP)
	Eventually(s.t, "the process stops", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		_, after, _ := bytes.Cut(b, []byte(") "))
		return bytes.HasPrefix(after, []byte("T"))
	})
}

// Resume lets a paused process go on.
func (s *Server) Resume() { s.cmd.Process.Signal(syscall.SIGCONT) }

// program finds a server's binary.
func program(t testing.TB, name, remedy string) string {
	t.Helper()
	p, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is not installed: %s", name, remedy)
	}
	return p
}

// ports gives n free ports of loopback, from below those that systems hand out
// by themselves: between now and the server's start nobody gets one by chance.
func ports(t testing.TB, n int) []int {
	t.Helper()
	var free []int
	for range 1000 {
		l, err := net.Listen("tcp", at(10000+rand.IntN(20000)))
		if err != nil {
			continue
		}
		defer l.Close() // after all are found, so that they differ
		if free = append(free, l.Addr().(*net.TCPAddr).Port); len(free) == n {
			return free
		}
	}
	t.Fatal("no free ports")
	return nil
}

func at(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// Addrs gives the servers' addresses.
func Addrs(servers []*Server) []string {
	var a []string
	for _, s := range servers {
		a = append(a, s.Addr)
	}
	return a
}

// Eventually waits until ok, and fails the test if that takes too long.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(startWithin); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("in vain: %s", what)
}
