package runner

import (
	"os"
	"syscall"
)

// killGroup kills a process that leads a group, with the group; without effect
// if it was waited for, since its number may be another's by then.
func killGroup(p *os.Process) {
	if p.Signal(syscall.Signal(0)) != nil {
		return
	}
	if syscall.Kill(-p.Pid, syscall.SIGKILL) != nil {
		p.Kill() // it leads none
	}
}
