package skew

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A target is a process, told from a later one of the same number by the time of
// its start.
type target struct {
	pid  int
	born uint64
}

func newTarget(pid int) (target, error) {
	_, born, err := stat(pid)
	return target{pid: pid, born: born}, err
}

// running is false when the process has ended, though nobody may have waited for
// it yet.
func (t target) running() bool {
	state, born, err := stat(t.pid)
	return err == nil && born == t.born && state != 'Z' && state != 'X'
}

// stat reads a process's state, and when it started in ticks since the boot.
func stat(pid int) (state byte, born uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The name in parentheses may hold anything, so look behind the last one.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const bornField = 22 - 3 // as proc(5) counts, after number and name
	if len(f) <= bornField {
		return 0, 0, fmt.Errorf("/proc/%d/stat is not understood: %q", pid, b)
	}
	born, err = strconv.ParseUint(f[bornField], 10, 64)
	return f[0][0], born, err
}

// A fileID tells one file from all others.
type fileID struct {
	major, minor uint32
	inode        uint64
}

func identity(f *os.File) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fileID{}, err
	}
	return fileID{major: unix.Major(st.Dev), minor: unix.Minor(st.Dev), inode: st.Ino}, nil
}

// A mapping is one line of /proc/PID/maps.
type mapping struct {
	start, offset uint64
	file          fileID
	name          string
}

// mappings is empty for a process that has ended.
func mappings(pid int) ([]mapping, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return nil, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w (%w)", ErrUnreadable, err)
	case err != nil:
		return nil, err
	}
	var ms []mapping
	for l := range strings.Lines(string(b)) {
		m, err := parseMapping(l)
		if err != nil {
			return nil, fmt.Errorf("/proc/%d/maps is not understood: %q: %w", pid, l, err)
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// parseMapping reads "start-end rights offset major:minor inode name".
func parseMapping(l string) (mapping, error) {
	f := strings.Fields(l)
	if len(f) < 5 {
		return mapping{}, errors.New("too short")
	}
	var errs []error
	number := func(s string, base int) uint64 {
		n, err := strconv.ParseUint(s, base, 64)
		errs = append(errs, err)
		return n
	}
	start, _, _ := strings.Cut(f[0], "-")
	major, minor, _ := strings.Cut(f[3], ":")
	m := mapping{
		start:  number(start, 16),
		offset: number(f[2], 16),
		file:   fileID{major: uint32(number(major, 16)), minor: uint32(number(minor, 16)), inode: number(f[4], 10)},
	}
	if len(f) > 5 {
		m.name = f[5]
	}
	return m, errors.Join(errs...)
}

// waitsForDurations is an ErrDeadlines unless the program can be known to give no
// instants to the kernel. The Go runtime gives durations only, but with a C
// library beside it anything may happen.
func waitsForDurations(pid int) error {
	f, err := elf.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("program of process %d: %w (%w)", pid, ErrUnreadable, err)
	}
	if err != nil {
		return fmt.Errorf("program of process %d: %w", pid, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return ErrDeadlines
		}
	}
	if f.Section(".go.buildinfo") == nil {
		return ErrDeadlines
	}
	return nil
}
