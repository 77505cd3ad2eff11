//go:build !linux

package nemesis

import (
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
)

// stopped asks ps for the group's leader, where there is no /proc.
func stopped(pid int) (bool, error) {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false, fmt.Errorf("ps of process %d: %w", pid, err)
	}
	return bytes.HasPrefix(bytes.TrimSpace(out), []byte("T")), nil
}

func halted(pid int) (bool, error) { return stopped(pid) }

// groupMembers knows the group's leader only.
func groupMembers(group int) ([]int, error) { return []int{group}, nil }
