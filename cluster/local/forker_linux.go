package local

import (
	"os/exec"
	"syscall"
)

// dieWithParent ties a process to the thread that starts it, and puts it into a
// process group of its own: Ctrl-C goes to the whole group, and servers obey it.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setpgid = true
}

// killGroup kills a process and its group, unless it was waited for: its number
// may then be somebody else's.
func killGroup(cmd *exec.Cmd) {
	if cmd.Process.Signal(syscall.Signal(0)) == nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}
