package local

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProbe(t *testing.T) {
	began := time.Now()
	if err := Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("probed in %v", time.Since(began))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Probe(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled probe: %v", err)
	}
}

// Each way in which machines forbid namespaces gives loopback under "auto", with
// the reason and the remedy, and an error under "lab". The helper forbids them
// to itself and then does a first operation on what Choose chose.
func TestForbidden(t *testing.T) {
	for _, c := range []struct{ how, step, errno, remedy string }{
		{"limit", "create namespaces", "no space left on device", "user.max_user_namespaces"},
		{"seccomp", "create namespaces", "operation not permitted", "seccomp=unconfined"},
		{"covered-proc", "mount /proc", "operation not permitted", "systempaths=unconfined"},
	} {
		t.Run(c.how, func(t *testing.T) {
			cmd := inNested("forbidden", c.how, t.TempDir())
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range []string{"auto: loopback", "lab: error", "first operation on loopback", c.step, c.errno, c.remedy} {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in:\n%s", want, out)
				}
			}
		})
	}
}

// Where only user namespaces are forbidden, root does without one.
func TestRootWithoutUserNamespace(t *testing.T) {
	out, err := inNested("no-user-namespace", t.TempDir()).Output()
	if err != nil || !strings.Contains(string(out), "uid 0") {
		t.Errorf("%q, %v", out, err)
	}
}

// inNested is a helper that is root in a user and mount namespace of its own,
// which it may spoil.
func inNested(args ...string) *exec.Cmd {
	cmd := self(args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
	}
	return cmd
}
