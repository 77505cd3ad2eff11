package nemesis

import (
	"bytes"
	"fmt"
	"os"
)

// stopped reports whether the kernel shows the process as stopped.
func stopped(pid int) (bool, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	// The name in parentheses may hold anything, so look behind the last one.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 || i+2 >= len(b) {
		return false, fmt.Errorf("/proc/%d/stat is not understood: %q", pid, b)
	}
	return b[i+2] == 'T', nil
}
