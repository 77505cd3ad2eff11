package external

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a worker the leader of a process group, which a pause stops as a
// whole.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
