package skew

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Launch starts cmd with its clocks under c's control, in place of cmd.Start; the
// rest of cmd is used as after Start. It takes some milliseconds.
//
// The process is started by the thread that the caller is on, and is out of
// ptrace's hands when Launch returns. So a caller who has locked a thread, because
// of its namespaces or since a parent-death signal is sent when that thread ends,
// calls Launch on it as it would call cmd.Start.
//
// On an error there is no process: either none was started, or it was killed and
// waited for before it did anything with a clock that was not moved.
func Launch(cmd *exec.Cmd, c *Control, o Options) error {
	l := launch{cmd: cmd, control: c, options: o, code: code}
	if err := l.run(); err != nil {
		return fmt.Errorf("start %s with a clock that can be moved: %w", cmd.Path, err)
	}
	return nil
}

// A launch is what happens between the start of a process and its release.
type launch struct {
	cmd     *exec.Cmd
	control *Control
	options Options
	code    []byte // what is put into the process
	mask    uint64 // the signals that the process is to block when it begins
	// instead, if not nil, is done with the process before it has run an
	// instruction, in place of letting it go; then it is killed.
	instead func(*patched) error
}

func (l *launch) run() error {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	descriptor, err := l.start()
	if err != nil {
		return err
	}
	limit := l.options.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	// It may hang in code that does not work, or in a program that never calls
	// exec. Killed, it shows as ended to whoever waits for its next stop.
	late, over := context.WithTimeout(context.Background(), limit)
	defer over()
	stopped := context.AfterFunc(late, func() { _ = l.cmd.Process.Kill() })
	t := &tracee{pid: l.cmd.Process.Pid}
	err = l.attach(t, descriptor)
	if !stopped() && late.Err() != nil {
		err = fmt.Errorf("not done after %v: %w", limit, errors.Join(err, l.hung()))
	}
	if err != nil || l.instead != nil {
		l.kill()
	}
	return err
}

// hung is the kind of failure that a timeout is.
func (l *launch) hung() error {
	if l.options.Execs > 0 {
		return ErrNoExec
	}
	return ErrSelfTest
}

// start starts the command, to stop at its first instruction, with a descriptor
// of the control page that it can only read.
func (l *launch) start() (descriptor uint64, err error) {
	page, err := l.control.readOnly()
	if err != nil {
		return 0, err
	}
	defer page.Close()
	if l.cmd.SysProcAttr == nil {
		l.cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	l.cmd.SysProcAttr.Ptrace = true
	own := l.cmd.ExtraFiles
	l.cmd.ExtraFiles = append(slices.Clip(own), page)
	l.mask, err = startDeaf(l.cmd)
	l.cmd.ExtraFiles = own
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) {
		// The right to do what is missing may be the right to trace, or another.
		if traceable() != nil {
			return 0, fmt.Errorf("%w (%w)", ErrPtrace, err)
		}
	}
	const firstExtra = 3
	return uint64(firstExtra + len(own)), err
}

// startDeaf starts a command that is to be traced with its signals blocked, and
// returns which were blocked on this thread. A signal that came between the call
// for a tracer and the exec would stop the child for its tracer to see; but that
// is this thread, which sleeps until the exec, and with it would sleep everybody
// in this process who starts another.
func startDeaf(cmd *exec.Cmd) (mask uint64, err error) {
	var before unix.Sigset_t
	all := unix.Sigset_t{Val: [16]uint64{blockable}}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, &before); err != nil {
		return 0, fmt.Errorf("block signals: %w", err)
	}
	err = cmd.Start()
	if e := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); e != nil {
		// It cannot fail where the first did not.
		err = errors.Join(err, fmt.Errorf("unblock signals: %w", e))
	}
	return before.Val[0], err
}

// readOnly opens the control anew without the right to write, so that the process
// cannot make its mapping writable either.
func (c *Control) readOnly() (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return nil, ErrClosed
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", c.file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open the clock control to read: %w", err)
	}
	return f, nil
}

// traceable starts this program under ptrace and kills it.
func traceable() error {
	cmd := exec.Command(ownProgram)
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	if _, err := startDeaf(cmd); err != nil {
		return err
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	return nil
}

const ownProgram = "/proc/self/exe"

// endLimit bounds the wait for the output of what a killed process has started.
const endLimit = time.Second

func (l *launch) kill() {
	_ = l.cmd.Process.Kill()
	if l.cmd.WaitDelay == 0 {
		l.cmd.WaitDelay = endLimit
	}
	_ = l.cmd.Wait() // it was killed
}

// attach patches one program after the other and lets go of the last one.
func (l *launch) attach(t *tracee, descriptor uint64) error {
	if _, err := t.wait(); err != nil {
		if errors.Is(err, endSignal(unix.SIGSYS)) {
			return fmt.Errorf("%w (%w)", ErrPtrace, err)
		}
		return err
	}
	if err := t.signalMask(ptraceSetSigmask, &l.mask); err != nil {
		return fmt.Errorf("%w (set the signal mask: %w)", ErrPtrace, err)
	}
	// Whatever happens to this process, no half-made one stays.
	options := unix.PTRACE_O_EXITKILL
	if l.options.Execs > 0 {
		options |= unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACECLONE
	}
	if err := unix.PtraceSetOptions(t.pid, options); err != nil {
		return fmt.Errorf("%w (set options: %w)", ErrPtrace, err)
	}
	for i := 0; ; i++ {
		last := i >= l.options.Execs
		p := &patched{t: t, descriptor: descriptor}
		if err := p.patch(l.code, last); err != nil {
			return err
		}
		if last {
			return l.release(p)
		}
		descriptor = p.descriptor
		if err := t.untilExec(); err != nil {
			return fmt.Errorf("after %d of %d calls of exec: %w", i, l.options.Execs, err)
		}
	}
}

// release lets the process run, and sends it what it would have got meanwhile.
func (l *launch) release(p *patched) error {
	if l.instead != nil {
		return l.instead(p)
	}
	pid := p.t.pid
	if err := l.control.admit(pid, func() error { return unix.PtraceDetach(pid) }); err != nil {
		return err
	}
	for _, s := range p.t.held {
		// Nobody can have waited for it yet, so the number is still its own.
		_ = unix.Kill(pid, s)
	}
	return nil
}

// A patched is a stopped program whose clock functions were replaced.
type patched struct {
	t          *tracee
	descriptor uint64
	registers  unix.PtraceRegs // as it stopped
	vdso       uint64          // where it is mapped
	image      *vdsoImage      // as it was found
	page       uint64          // the control page
	code       uint64
}

// atSysinfoEHDR is the entry of the auxiliary vector that says where the vDSO is.
const atSysinfoEHDR = 33

// patch leaves the program as it stopped, but for its clock functions.
func (p *patched) patch(code []byte, last bool) (err error) {
	if p.registers, err = p.t.registers(); err != nil {
		return fmt.Errorf("%w (%w)", ErrPtrace, err)
	}
	const userCS64 = 0x33
	if p.registers.Cs != userCS64 {
		return ErrNot64Bit
	}
	if p.vdso, err = p.t.auxiliary(p.registers.Rsp, atSysinfoEHDR); errors.Is(err, unix.EIO) {
		return fmt.Errorf("%w (%w)", ErrUnreadable, err)
	}
	if err != nil {
		return err
	}
	if p.vdso == 0 {
		return ErrNoVDSO
	}
	if p.image, err = p.readImage(); err != nil {
		return err
	}
	if p.image.syscall == 0 {
		return fmt.Errorf("%w (no system call in it)", ErrNoVDSO)
	}
	p.t.gate = p.vdso + p.image.syscall
	hear, err := p.t.deaf()
	if err != nil {
		return err
	}
	if err := p.mapPages(last); err != nil {
		return err
	}
	if err := p.putCode(code); err != nil {
		return err
	}
	if err := p.repoint(); err != nil {
		return err
	}
	if err := p.selfTest(); err != nil {
		return fmt.Errorf("%w (%w)", ErrSelfTest, err)
	}
	// From the test page to the live one.
	if err := p.t.setWord(p.code+wordControl, p.page); err != nil {
		return err
	}
	if err := p.t.setRegisters(p.registers); err != nil {
		return err
	}
	return hear()
}

// readImage reads the vDSO as it is now.
func (p *patched) readImage() (*vdsoImage, error) {
	head, err := p.t.read(p.vdso, pageSize)
	if err != nil {
		return nil, err
	}
	size, err := vdsoSize(head)
	if err != nil {
		return nil, err
	}
	b, err := p.t.read(p.vdso, int(size+7)&^7)
	if err != nil {
		return nil, err
	}
	return parseVDSO(b)
}

// away is where the descriptor waits for the next program: shells use the low
// numbers.
const away = 500

// mapPages makes the program map the control and a page for code.
func (p *patched) mapPages(last bool) (err error) {
	const anywhere, none = 0, ^uint64(0)
	p.page, err = p.t.syscall(p.registers, unix.SYS_MMAP, anywhere, controlSize, unix.PROT_READ, unix.MAP_SHARED, p.descriptor, 0)
	if err != nil {
		return fmt.Errorf("map the control page: %w", err)
	}
	if m, err := p.t.word(p.page + offMagic); err != nil || m != magic {
		return fmt.Errorf("its descriptor %d is not the control page any more (%#x, %v)", p.descriptor, m, err)
	}
	p.code, err = p.t.syscall(p.registers, unix.SYS_MMAP, anywhere, pageSize, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, none, 0)
	if err != nil {
		return fmt.Errorf("map a page of code: %w", err)
	}
	old := p.descriptor
	if !last && old < away {
		if p.descriptor, err = p.t.syscall(p.registers, unix.SYS_FCNTL, old, unix.F_DUPFD, away); err != nil {
			return fmt.Errorf("move the control descriptor away: %w", err)
		}
	}
	if last || old < away {
		if _, err := p.t.syscall(p.registers, unix.SYS_CLOSE, old); err != nil {
			return fmt.Errorf("close the control descriptor: %w", err)
		}
	}
	return nil
}

// putCode writes the code, which reads the test page for now.
func (p *patched) putCode(code []byte) error {
	b := bytes.Clone(code)
	binary.LittleEndian.PutUint64(b[wordControl:], p.page+pageSize)
	for name, word := range map[string]int{
		"__vdso_clock_gettime": wordClockGettime,
		"__vdso_gettimeofday":  wordGettimeofday,
	} {
		s, ok := p.image.find(name)
		if !ok {
			return fmt.Errorf("%w (no %s)", ErrNoVDSO, name)
		}
		binary.LittleEndian.PutUint64(b[word:], p.vdso+s.value)
	}
	return p.t.write(p.code, b)
}

// repoint makes the symbols lead to the code. A value counts from the vDSO, and
// wraps around for what lies below.
func (p *patched) repoint() error {
	for _, s := range p.image.symbols {
		entry, ok := entries[s.name]
		if !ok {
			continue
		}
		to := p.code + entry - p.vdso + p.image.bias
		if err := p.t.setWord(p.vdso+s.field, to); err != nil {
			return fmt.Errorf("repoint %s: %w", s.name, err)
		}
	}
	return nil
}
