package nemesis

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// stopped reports whether the kernel shows every process of a group as stopped.
// A group without a living process is an error that wraps os.ErrNotExist.
func stopped(group int) (bool, error) {
	states, err := groupStates(group)
	if err != nil {
		return false, err
	}
	for _, state := range states {
		if state != 'T' {
			return false, nil
		}
	}
	return true, nil
}

// groupMembers lists the living processes of a group, the lowest number first.
func groupMembers(group int) ([]int, error) {
	states, err := groupStates(group)
	return slices.Sorted(maps.Keys(states)), err
}

// groupStates gives the states of a group's living processes. It is an error
// that wraps os.ErrNotExist if there is none.
func groupStates(group int) (map[int]byte, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	states := map[int]byte{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil || len(b) == 0 {
			continue // it ended meanwhile
		}
		state, of, err := parseStat(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if of != group || state == 'Z' || state == 'X' {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		states[pid] = state
	}
	if len(states) == 0 {
		return nil, fmt.Errorf("process group %d: %w", group, os.ErrNotExist)
	}
	return states, nil
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
