package skew

import (
	"errors"
	"fmt"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel's clocks, by the family that they move with.
var (
	clockIDs = [clocks][]int32{
		Realtime:  {unix.CLOCK_REALTIME, unix.CLOCK_REALTIME_COARSE, unix.CLOCK_REALTIME_ALARM, unix.CLOCK_TAI},
		Monotonic: {unix.CLOCK_MONOTONIC, unix.CLOCK_MONOTONIC_RAW, unix.CLOCK_MONOTONIC_COARSE, unix.CLOCK_BOOTTIME, unix.CLOCK_BOOTTIME_ALARM},
	}
	// unmovedIDs are CPU clocks, one of them of a process, and none at all.
	unmovedIDs = []int32{unix.CLOCK_PROCESS_CPUTIME_ID, unix.CLOCK_THREAD_CPUTIME_ID, 10, 12, -6, -1}
)

// selfTest calls the clock functions in the process, as its own programs will
// find them: through the symbols that are in its memory now. The test page says
// what they have to answer.
func (p *patched) selfTest() error {
	now, err := p.readImage()
	if err != nil {
		return err
	}
	tested := 0
	for _, s := range now.symbols {
		entry, ok := entries[s.name]
		if !ok {
			continue
		}
		if err := p.testFunction(entry, p.vdso+s.value); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		tested++
	}
	if tested < len(entries)/2 {
		return fmt.Errorf("only %d functions were found", tested)
	}
	return nil
}

func (p *patched) testFunction(entry, function uint64) error {
	switch entry {
	case entryGettimeofday:
		return p.testBetween(unix.CLOCK_REALTIME, testLines[Realtime], time.Microsecond, func() (int64, int64, error) {
			return p.timeval(function)
		})
	case entryTime:
		return p.testBetween(unix.CLOCK_REALTIME_COARSE, testLines[Realtime], time.Second, func() (int64, int64, error) {
			return p.seconds(function)
		})
	}
	for k, ids := range clockIDs {
		for _, id := range ids {
			if err := p.testClock(function, id, testLines[k]); err != nil {
				return err
			}
		}
	}
	for _, id := range unmovedIDs {
		if err := p.testClock(function, id, line{}); err != nil {
			return err
		}
	}
	return nil
}

func (p *patched) testClock(function uint64, id int32, l line) error {
	return p.testBetween(id, l, 1, func() (int64, int64, error) { return p.timespec(function, id) })
}

// testBetween compares a function that is coarse by a unit with the kernel's
// answers before and after, moved along the line. Errors have to be the same.
func (p *patched) testBetween(id int32, l line, unit time.Duration, read func() (result, ns int64, err error)) error {
	ra, a, err := p.kernel(id)
	if err != nil {
		return err
	}
	rb, b, err := read()
	if err != nil {
		return fmt.Errorf("clock %d: %w", id, err)
	}
	_, c, err := p.kernel(id)
	if err != nil {
		return err
	}
	if ra != rb {
		return fmt.Errorf("clock %d: result %d instead of %d", id, rb, ra)
	}
	if ra != 0 {
		return nil
	}
	from, to := l.skewed(a), l.skewed(c)
	if b < from-int64(unit)+1 || b > to {
		return fmt.Errorf("clock %d: %d ns instead of %d to %d", id, b, from, to)
	}
	return nil
}

// kernel lets the process ask the kernel by a system call. It may be in a time
// namespace of its own, so that asking here is no measure. An error of the kernel
// is a negative result.
func (p *patched) kernel(id int32) (result, ns int64, err error) {
	at := scratch(p.registers)
	_, err = p.t.syscall(p.registers, unix.SYS_CLOCK_GETTIME, uint64(uint32(id)), at)
	if e := unix.Errno(0); errors.As(err, &e) && e != unix.ESRCH {
		return -int64(e), 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	ns, err = p.pair(at, time.Nanosecond)
	return 0, ns, err
}

// timespec calls a clock_gettime.
func (p *patched) timespec(function uint64, id int32) (result, ns int64, err error) {
	at := scratch(p.registers)
	r, err := p.t.call(p.registers, function, p.code+trap, [2]uint64{uint64(uint32(id)), at})
	if err != nil {
		return 0, 0, err
	}
	ns, err = p.pair(at, time.Nanosecond)
	return int64(int32(r)), ns, err
}

// timeval calls a gettimeofday, which has a time zone to write too.
func (p *patched) timeval(function uint64) (result, ns int64, err error) {
	at := scratch(p.registers)
	const zoneAt, untouched = 16, 0x5a5a5a5a5a5a5a5a
	if err := p.t.setWord(at+zoneAt, untouched); err != nil {
		return 0, 0, err
	}
	r, err := p.t.call(p.registers, function, p.code+trap, [2]uint64{at, at + zoneAt})
	if err != nil {
		return 0, 0, err
	}
	if z, err := p.t.word(at + zoneAt); err != nil || z == untouched {
		return 0, 0, fmt.Errorf("no time zone (%v)", err)
	}
	ns, err = p.pair(at, time.Microsecond)
	return int64(int32(r)), ns, err
}

// seconds calls a time, which has to return what it writes.
func (p *patched) seconds(function uint64) (result, ns int64, err error) {
	at := scratch(p.registers)
	r, err := p.t.call(p.registers, function, p.code+trap, [2]uint64{at, 0})
	if err != nil {
		return 0, 0, err
	}
	w, err := p.t.word(at)
	if err == nil && w != r {
		err = fmt.Errorf("%d was written and %d returned", w, r)
	}
	return 0, int64(r) * int64(time.Second), err
}

// pair reads seconds and a fraction.
func (p *patched) pair(at uint64, unit time.Duration) (int64, error) {
	s, err := p.t.word(at)
	if err != nil {
		return 0, err
	}
	f, err := p.t.word(at + 8)
	if err == nil && f >= uint64(time.Second/unit) {
		err = fmt.Errorf("a fraction of %d", f)
	}
	return int64(s)*int64(time.Second) + int64(f)*int64(unit), err
}

// Witness launches this very program with the control, lets it read a clock
// through the replaced function before it has run an instruction of its own, and
// kills it. It is how far the clock was ahead of the kernel's in that process: of
// the control in force, a proof by execution that disturbs nobody.
func (c *Control) Witness(k Clock) (time.Duration, error) {
	var ahead time.Duration
	err := c.witness(func(p *patched) (err error) {
		ahead, err = p.ahead(k)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("witness the %v clock: %w", k, err)
	}
	return ahead, nil
}

func (c *Control) witness(instead func(*patched) error) error {
	l := launch{cmd: exec.Command(ownProgram), control: c, code: code, instead: instead}
	return l.run()
}

// ahead reads a clock on both ways.
func (p *patched) ahead(k Clock) (time.Duration, error) {
	if k < 0 || k >= clocks {
		return 0, ErrRange
	}
	now, err := p.readImage()
	if err != nil {
		return 0, err
	}
	s, ok := now.find("__vdso_clock_gettime")
	if !ok {
		return 0, ErrNoVDSO
	}
	id := clockIDs[k][0]
	_, before, err := p.kernel(id)
	if err != nil {
		return 0, err
	}
	_, read, err := p.timespec(p.vdso+s.value, id)
	if err != nil {
		return 0, err
	}
	_, after, err := p.kernel(id)
	if err != nil {
		return 0, err
	}
	return time.Duration(read - (before + (after-before)/2)), nil
}

// Probe says whether the clocks of processes can be moved here, and if not, why.
// It does to a process with lockcheck's own program all that a launch does, moves
// its clock, reads it back by execution and from its memory, and kills it before
// it has run an instruction of its own.
func Probe() error {
	if err := probe(code); err != nil {
		return fmt.Errorf("probe the clock: %w", err)
	}
	return nil
}

// probeError is how far the reading in a process that is stepped through may be
// off: a system call in it takes some microseconds, or much longer under load.
const probeError = time.Second

func probe(code []byte) error {
	c, err := NewControl()
	if err != nil {
		return err
	}
	defer c.Close()
	const moved = -26 * time.Hour
	if err := c.Set(Realtime, moved); err != nil {
		return err
	}
	l := launch{cmd: exec.Command(ownProgram), control: c, code: code, instead: func(p *patched) error {
		a, err := p.ahead(Realtime)
		if err != nil {
			return err
		}
		if d := a - moved; d.Abs() > probeError {
			return fmt.Errorf("%w (%v instead of %v)", ErrSelfTest, a, moved)
		}
		r, err := c.ReadBack(p.t.pid)
		if err == nil && r.Realtime != moved {
			err = fmt.Errorf("%w (its memory says %v instead of %v)", ErrSelfTest, r.Realtime, moved)
		}
		return err
	}}
	return l.run()
}
