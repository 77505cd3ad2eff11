package skew

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// readTries bounds the search for a page that does not change while it is read.
const readTries = 100

// ReadBack proves from the memory of a running process that its clock is moved,
// without disturbing it: that the clock symbols of its vDSO lead to the code, that
// the code is whole and reads this control's page, and what that page, as the
// process has it, adds to the clock now. It is an ErrNotAttached if any of that
// does not hold. It goes another way than Set and Launch, which write: the kernel
// tells the mappings, and the bytes come out of the process.
func (c *Control) ReadBack(pid int) (Reading, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := c.readBack(pid)
	if err != nil {
		return Reading{}, fmt.Errorf("read back the clock of process %d: %w", pid, err)
	}
	return r, nil
}

func (c *Control) readBack(pid int) (Reading, error) {
	if c.file == nil {
		return Reading{}, ErrClosed
	}
	ms, err := mappings(pid)
	if err != nil {
		return Reading{}, err
	}
	page, ok := c.in(ms)
	if !ok {
		return Reading{}, ErrNotAttached
	}
	m, err := openMemory(pid)
	if err != nil {
		return Reading{}, err
	}
	defer m.file.Close()
	r := Reading{Page: page}
	if err := m.follow(vdsoIn(ms), &r); err != nil {
		return Reading{}, err
	}
	return r, m.readPage(&r)
}

// A memory is that of a process.
type memory struct{ file *os.File }

func openMemory(pid int) (memory, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return memory{}, ErrNotAttached
	case errors.Is(err, fs.ErrPermission):
		return memory{}, fmt.Errorf("%w (%w)", ErrUnreadable, err)
	}
	return memory{f}, err
}

func (m memory) read(addr uint64, n int) ([]byte, error) {
	b := make([]byte, n)
	switch _, err := m.file.ReadAt(b, int64(addr)); {
	case errors.Is(err, io.EOF): // the process is ending: its memory is gone before its number is
		return nil, ErrNotAttached
	case err != nil:
		return nil, fmt.Errorf("read %d bytes at %#x: %w", n, addr, err)
	}
	return b, nil
}

// follow goes the way that the process goes: from the symbols to the code.
func (m memory) follow(start uint64, r *Reading) error {
	head, err := m.read(start, pageSize)
	if err != nil {
		return err
	}
	size, err := vdsoSize(head)
	if err != nil {
		return err
	}
	b, err := m.read(start, int(size))
	if err != nil {
		return err
	}
	v, err := parseVDSO(b)
	if err != nil {
		return err
	}
	for _, s := range v.symbols {
		entry, ok := entries[s.name]
		if !ok {
			continue
		}
		at := start + s.value - entry
		if at%pageSize != 0 || r.Code != 0 && at != r.Code {
			return fmt.Errorf("%s leads to %#x: %w", s.name, start+s.value, ErrNotAttached)
		}
		r.Code = at
		r.Symbols++
	}
	if r.Symbols < len(entries)/2 {
		return fmt.Errorf("%d clock functions in its vDSO: %w", r.Symbols, ErrNotAttached)
	}
	return m.checkCode(*r)
}

// checkCode compares the code in the process with the code that was meant, and
// looks where it reads.
func (m memory) checkCode(r Reading) error {
	b, err := m.read(r.Code, len(code))
	if err != nil {
		return fmt.Errorf("code: %w (%w)", ErrNotAttached, err)
	}
	if !bytes.Equal(b[entryClockGettime:], code[entryClockGettime:]) {
		return fmt.Errorf("other code at %#x: %w", r.Code, ErrNotAttached)
	}
	if at := binary.LittleEndian.Uint64(b[wordControl:]); at != r.Page {
		return fmt.Errorf("the code reads %#x and not the control page at %#x: %w", at, r.Page, ErrNotAttached)
	}
	return nil
}

// vdsoIn is where the vDSO is; at 0 there is nothing to read.
func vdsoIn(ms []mapping) uint64 {
	for _, m := range ms {
		if m.name == "[vdso]" {
			return m.start
		}
	}
	return 0
}

// readPage reads the page as the code does.
func (m memory) readPage(r *Reading) error {
	for range readTries {
		before, err := m.read(r.Page, pageSize)
		if err != nil {
			return err
		}
		nows := [clocks]int64{now(Realtime), now(Monotonic)}
		after, err := m.read(r.Page, pageSize)
		if err != nil {
			return err
		}
		g := binary.LittleEndian.Uint64(before[offGeneration:])
		if g != binary.LittleEndian.Uint64(after[offGeneration:]) {
			continue
		}
		if binary.LittleEndian.Uint64(before[offMagic:]) != magic {
			return fmt.Errorf("no control page at %#x: %w", r.Page, ErrNotAttached)
		}
		r.Generation = g
		for k, l := range getSlot(before[slotOf(g):]) {
			off := l.at(nows[k])
			*[...]*int64{(*int64)(&r.Realtime), (*int64)(&r.Monotonic)}[k] = off
			r.Drifting = r.Drifting || l.before != 0 || l.after != 0
		}
		return nil
	}
	return fmt.Errorf("the page changed %d times while it was read", readTries)
}
