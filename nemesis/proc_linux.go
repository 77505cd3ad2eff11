package nemesis

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// stopped reports whether the kernel shows every process of a group as stopped.
// A group without a living process is an error that wraps os.ErrNotExist.
func stopped(group int) (bool, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return false, err
	}
	living := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || len(b) == 0 {
			continue // it ended meanwhile
		}
		if err != nil {
			continue // it ended between the opening and the reading
		}
		state, of, err := parseStat(b)
		if err != nil {
			return false, fmt.Errorf("%s: %w", file, err)
		}
		if of != group || state == 'Z' || state == 'X' {
			continue
		}
		living++
		if state != 'T' {
			return false, nil
		}
	}
	if living == 0 {
		return false, fmt.Errorf("process group %d: %w", group, os.ErrNotExist)
	}
	return true, nil
}

// halted reports whether the kernel shows every thread of a process as stopped.
// A process that has ended is an error that wraps os.ErrNotExist.
func halted(pid int) (bool, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/stat", pid))
	if err != nil {
		return false, err
	}
	living := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil || len(b) == 0 {
			continue // it ended meanwhile
		}
		state, _, err := parseStat(b)
		if err != nil {
			return false, fmt.Errorf("%s: %w", file, err)
		}
		if state == 'Z' || state == 'X' {
			continue
		}
		living++
		if state != 'T' {
			return false, nil
		}
	}
	if living == 0 {
		return false, fmt.Errorf("process %d: %w", pid, os.ErrNotExist)
	}
	return true, nil
}

// parseStat gives the state and the process group of a line of /proc/PID/stat.
// The name in parentheses may hold anything, so it looks behind the last one.
func parseStat(b []byte) (state byte, group int, err error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, 0, fmt.Errorf("not understood: %q", b)
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 3 {
		return 0, 0, fmt.Errorf("not understood: %q", b)
	}
	group, err = strconv.Atoi(string(f[2]))
	return f[0][0], group, err
}
