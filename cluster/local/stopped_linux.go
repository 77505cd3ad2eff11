package local

import (
	"bytes"
	"fmt"
	"os"
)

// notStopped is an error if the kernel shows a process as stopped.
func notStopped(pid int) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err
	}
	// The name in parentheses may hold anything, so it looks behind the last one.
	if i := bytes.LastIndexByte(b, ')'); i >= 0 && bytes.HasPrefix(b[i+1:], []byte(" T")) {
		return fmt.Errorf("process %d is stopped", pid)
	}
	return nil
}
