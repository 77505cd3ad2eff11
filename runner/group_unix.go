package runner

import (
	"os"
	"os/exec"
	"syscall"
)

// leadGroup puts a worker that is to be started into a process group of its
// own, so that a pause or a kill meets its children, too.
func leadGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

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
