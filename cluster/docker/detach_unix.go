//go:build unix

package docker

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// detach gives a command a session of its own, so that no Ctrl-C reaches it.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func signalled(p *os.Process) bool {
	err := p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, syscall.EPERM)
}
