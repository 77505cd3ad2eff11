package skew

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	controlName = "lockcheck-clock" // /proc/PID/maps shows it
	pages       = 2                 // the live one, and one for the self-test
	controlSize = pages * pageSize

	// lead is how far ahead a change of speed begins, so that it is published
	// before a reader needs it, however long this thread is held up in between.
	lead = 10 * time.Millisecond

	// horizon keeps the arithmetic of the readers within 64 bits.
	horizon  = int64(1) << 62
	maxDrift = 1e9 // ppm
)

// testLines is what the second page says, for ever. Each clock takes another
// branch of the code: the realtime base is far ahead, the monotonic one behind.
var testLines = [clocks]line{
	Realtime:  {base: 1 << 62, offset: 12345_678901234, before: 1 << 28, after: -1},
	Monotonic: {base: 0, offset: 777_123456789, before: -1, after: 1 << 31},
}

// testGeneration has no byte that is like its neighbours, so that a code which
// reads it, or the slot, in the wrong place does not get away with it.
const testGeneration = 0x0123456789abcdef

// putTestPage fills the other slots too, each with other numbers.
func putTestPage(b []byte) {
	binary.LittleEndian.PutUint64(b[offGeneration:], testGeneration)
	for i := range uint64(slots) {
		ls := testLines
		for k := range ls {
			ls[k].offset += int64(i) * int64(time.Hour)
			ls[k].before += int64(i) << 20
			ls[k].after += int64(i) << 20
		}
		putSlot(b[slotOf(testGeneration+i):], ls)
	}
}

// A Control moves the clock of the processes that were launched with it: those of
// one node, one after the other. A node that is restarted with its control has
// the clock that it had. It may be used from several goroutines.
type Control struct {
	mu      sync.Mutex
	file    *os.File // nil when closed
	id      fileID
	page    []byte
	lines   [clocks]line
	targets []target // let go, and not known to have ended
	used    bool     // whether there was ever one
	settled bool     // whether Reset has left a monotonic offset behind
	force   bool
}

// NewControl makes a control that moves nothing yet.
func NewControl() (*Control, error) {
	f, err := newPages()
	if err != nil {
		return nil, fmt.Errorf("make a clock control: %w", err)
	}
	id, err := identity(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("identify a clock control: %w", err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, controlSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("map a clock control: %w", err)
	}
	for i := range pages {
		binary.LittleEndian.PutUint64(mem[i*pageSize+offMagic:], magic)
	}
	putTestPage(mem[pageSize:])
	return &Control{file: f, id: id, page: mem}, nil
}

// newPages makes the file of a control. Its size is sealed: a file that shrinks
// would kill every process that maps it.
func newPages() (*os.File, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(controlName, flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate(controlName, flags)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), controlName)
	if err := f.Truncate(controlSize); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Force lifts the refusals that protect from faults which do something else than
// they say: ErrDeadlines and ErrBackwards.
func (c *Control) Force() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.force = true
}

// Set steps a clock so that it is off ahead of the real one from now on; a drift
// goes on from there. Before the first launch it says how the process starts.
// Later it is an error if no process follows, and nothing has changed then.
func (c *Control) Set(k Clock, off time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.allowed(k); err != nil {
		return fmt.Errorf("set the %v clock to %v: %w", k, off, err)
	}
	now := now(k)
	l := c.lines[k]
	moved := now + int64(off)
	switch {
	case moved <= 0 || moved > horizon: // an overflow is negative
		return fmt.Errorf("set the %v clock to %v: %w", k, off, ErrRange)
	case k == Monotonic && c.used && !c.force && int64(off) < l.at(now):
		return fmt.Errorf("set the %v clock to %v from %v: %w", k, off, time.Duration(l.at(now)), ErrBackwards)
	}
	c.settled = c.settled && k != Monotonic
	c.lines[k] = line{base: now, offset: int64(off), before: l.after, after: l.after}
	c.publish()
	return nil
}

// SetDrift makes a clock run at 1 + ppm/1e6 times the speed of the real one, from
// a few milliseconds ahead on and without a step.
func (c *Control) SetDrift(k Clock, ppm float64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.allowed(k); err != nil {
		return fmt.Errorf("set the drift of the %v clock to %v ppm: %w", k, ppm, err)
	}
	if math.IsNaN(ppm) || ppm <= -1e6 || ppm > maxDrift {
		return fmt.Errorf("set the drift of the %v clock to %v ppm: %w", k, ppm, ErrRange)
	}
	// A line has one bend. Until an earlier one is over, there is no room for
	// another, and it is over in less than the lead.
	for d := c.lines[k].base - now(k); d > 0; d = c.lines[k].base - now(k) {
		time.Sleep(time.Duration(min(d, int64(lead))))
	}
	bend := now(k) + int64(lead)
	l := c.lines[k]
	c.settled = c.settled && k != Monotonic
	c.lines[k] = line{base: bend, offset: l.at(bend), before: l.after, after: fixed(ppm)}
	c.publish()
	return nil
}

// Reset heals: the realtime clock is the real one again, and neither drifts. The
// monotonic clock keeps its offset while a process that has seen it runs, since
// it must not go back, and its zero means nothing anyhow; the next launch begins
// without. Unlike Set, it does not need a process.
func (c *Control) Reset() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return fmt.Errorf("reset the clock: %w", ErrClosed)
	}
	now := now(Monotonic)
	c.lines[Realtime] = line{}
	c.lines[Monotonic] = line{base: now, offset: c.lines[Monotonic].at(now)}
	c.settled = true
	c.publish()
	return nil
}

// Offset is how far ahead of the real clock the control says that k is, now. What
// a process makes of it, ReadBack tells.
func (c *Control) Offset(k Clock) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.file == nil:
		return 0, fmt.Errorf("tell the offset of the %v clock: %w", k, ErrClosed)
	case k < 0 || k >= clocks:
		return 0, fmt.Errorf("tell the offset of the %v clock: %w", k, ErrRange)
	}
	return time.Duration(c.lines[k].at(now(k))), nil
}

// Close gives up the control. The processes that follow it keep the page as it
// is, so reset it first if they stay.
func (c *Control) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return nil
	}
	f := c.file
	c.file = nil
	if err := unix.Munmap(c.page); err != nil {
		return fmt.Errorf("unmap the clock control: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close the clock control: %w", err)
	}
	return nil
}

// publish makes c.lines the ones in force. A reader that is in the slot which is
// written here began 31 changes ago; it will find another generation and begin
// again.
func (c *Control) publish() {
	generation := (*uint64)(unsafe.Pointer(&c.page[offGeneration]))
	next := atomic.LoadUint64(generation) + 1
	putSlot(c.page[slotOf(next):], c.lines)
	atomic.StoreUint64(generation, next)
}

// allowed says whether a clock may be moved, as far as the processes go.
func (c *Control) allowed(k Clock) error {
	switch {
	case c.file == nil:
		return ErrClosed
	case k < 0 || k >= clocks:
		return ErrRange
	case !c.used:
		return nil // the launch looks at the process
	}
	if err := c.followed(); err != nil {
		return err
	}
	if k != Monotonic || c.force {
		return nil
	}
	for _, t := range c.targets {
		if err := waitsForDurations(t.pid); err != nil {
			return err
		}
	}
	return nil
}

// followed says whether every process that was launched and runs still maps the
// control, and that there is one. Those that have ended are forgotten.
func (c *Control) followed() error {
	running := c.targets[:0]
	for _, t := range c.targets {
		if t.running() {
			running = append(running, t)
		}
	}
	c.targets = running
	if len(running) == 0 {
		return fmt.Errorf("no process runs: %w", ErrNotAttached)
	}
	for _, t := range running {
		ok, err := c.attached(t.pid)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("process %d: %w", t.pid, ErrNotAttached)
		}
	}
	return nil
}

// Attached says whether a process maps this control. One that has ended does not,
// nor does one that has called exec since its launch.
func (c *Control) Attached(pid int) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return false, fmt.Errorf("look for the clock control in process %d: %w", pid, ErrClosed)
	}
	return c.attached(pid)
}

func (c *Control) attached(pid int) (bool, error) {
	ms, err := mappings(pid)
	if err != nil {
		return false, fmt.Errorf("look for the clock control in process %d: %w", pid, err)
	}
	_, ok := c.in(ms)
	return ok, nil
}

// in is where a process maps the live page.
func (c *Control) in(ms []mapping) (uint64, bool) {
	for _, m := range ms {
		if m.file == c.id && m.offset == 0 {
			return m.start, true
		}
	}
	return 0, false
}

// admit looks whether a stopped process may have the control, and takes it up
// among those that follow when letGo has succeeded.
func (c *Control) admit(pid int, letGo func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return ErrClosed
	}
	if c.settled && c.followed() != nil {
		// Nobody who has seen the old offset is left to see it go.
		c.lines[Monotonic], c.settled = line{}, false
		c.publish()
	}
	if m := c.lines[Monotonic]; !c.force && (m.at(now(Monotonic)) != 0 || m.after != 0) {
		if err := waitsForDurations(pid); err != nil {
			return err
		}
	}
	t, err := newTarget(pid)
	if err != nil {
		return err
	}
	if err := letGo(); err != nil {
		return fmt.Errorf("let it go: %w", err)
	}
	c.targets = append(c.targets, t)
	c.used = true
	return nil
}

// now asks the kernel, past the vDSO: this process may itself be a worker, or a
// test, whose clock is moved.
func now(k Clock) int64 {
	var ts unix.Timespec
	id := unix.CLOCK_REALTIME
	if k == Monotonic {
		id = unix.CLOCK_MONOTONIC
	}
	// It cannot fail with a clock that exists and an address that is ours.
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}
