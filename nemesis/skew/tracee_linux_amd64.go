package skew

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A tracee is a process that is stopped, and that takes orders from the thread
// which started it, and from no other. Nothing here takes the end of the process
// off its parent: that is for exec.Cmd to wait for.
type tracee struct {
	pid  int
	gate uint64        // where it has a syscall instruction
	held []unix.Signal // what was sent to it meanwhile and could not be blocked
}

// A stop is what waitid tells about a stopped thread: a signal, and above it the
// ptrace event that it stands for.
type stop int32

func (s stop) signal() unix.Signal { return unix.Signal(s & 0x7f) }
func (s stop) event() int          { return int(s >> 8) }

// A childInfo is a siginfo_t as waitid fills it in.
type childInfo struct {
	signo, errno, code, _ int32
	pid                   int32
	uid                   uint32
	status                int32
	_                     [100]byte
}

const (
	cldExited = 1 + iota
	cldKilled
	cldDumped
	cldTrapped
)

// waitid looks for a change of one thread. ok is false if there is none, which
// happens with WNOHANG only.
func waitid(tid, options int) (i childInfo, ok bool, err error) {
	for {
		i = childInfo{}
		err := unix.Waitid(unix.P_PID, tid, (*unix.Siginfo)(unsafe.Pointer(&i)), options|unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		return i, i.pid != 0, err
	}
}

// wait waits until the process stops.
func (t *tracee) wait() (stop, error) {
	s, _, err := t.poll(0)
	return s, err
}

// poll is wait, or with WNOHANG a look.
func (t *tracee) poll(hang int) (stop, bool, error) {
	for {
		i, ok, err := waitid(t.pid, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT|hang)
		if err != nil {
			return 0, false, fmt.Errorf("wait for process %d: %w", t.pid, err)
		}
		if !ok {
			return 0, false, nil
		}
		if i.code == cldExited {
			return 0, false, fmt.Errorf("it has ended with status %d", i.status)
		}
		if i.code == cldKilled || i.code == cldDumped {
			return 0, false, fmt.Errorf("it was ended: %w", endSignal(i.status))
		}
		// Take the stop, and only a stop: it may have been killed meanwhile.
		i, ok, err = waitid(t.pid, unix.WSTOPPED|unix.WNOHANG)
		if err != nil {
			return 0, false, fmt.Errorf("wait for process %d: %w", t.pid, err)
		}
		if ok {
			return stop(i.status), true, nil
		}
	}
}

// An endSignal is the error for a process that a signal has ended.
type endSignal unix.Signal

func (s endSignal) Error() string { return unix.SignalName(unix.Signal(s)) }

// trapped resumes the process until it stops with a trap. Signals that reach it
// on the way are held back, but for those that injected code brings on itself.
func (t *tracee) trapped(resume func(pid int) error) error {
	for {
		if err := resume(t.pid); err != nil {
			return fmt.Errorf("resume it: %w", err)
		}
		s, err := t.wait()
		if err != nil {
			return err
		}
		switch sig := s.signal(); sig {
		case unix.SIGTRAP:
			return nil
		case unix.SIGSEGV, unix.SIGBUS, unix.SIGILL, unix.SIGFPE, unix.SIGSYS:
			return fmt.Errorf("the code that was put into it raised %s", unix.SignalName(sig))
		default:
			t.held = append(t.held, sig)
		}
	}
}

// deaf makes the process block signals, so that they wait in the kernel while it
// does what it is told; a stream of them would keep it from ever doing it. Those
// that injected code brings on itself stay, and SIGSTOP cannot be blocked: held is
// for that. hear puts back what was blocked before.
func (t *tracee) deaf() (hear func() error, err error) {
	var before uint64
	if err := t.signalMask(ptraceGetSigmask, &before); err != nil {
		return nil, fmt.Errorf("read its signal mask: %w", err)
	}
	all := uint64(blockable)
	if err := t.signalMask(ptraceSetSigmask, &all); err != nil {
		return nil, fmt.Errorf("block its signals: %w", err)
	}
	return func() error {
		if err := t.signalMask(ptraceSetSigmask, &before); err != nil {
			return fmt.Errorf("unblock its signals: %w", err)
		}
		return nil
	}, nil
}

// blockable is every signal but those that code brings on itself.
const blockable = ^uint64(1<<(unix.SIGTRAP-1) | 1<<(unix.SIGSEGV-1) | 1<<(unix.SIGBUS-1) |
	1<<(unix.SIGILL-1) | 1<<(unix.SIGFPE-1) | 1<<(unix.SIGSYS-1))

const (
	ptraceGetSigmask = 0x420a
	ptraceSetSigmask = 0x420b
)

func (t *tracee) signalMask(request uintptr, mask *uint64) error {
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, request, uintptr(t.pid), unsafe.Sizeof(*mask), uintptr(unsafe.Pointer(mask)), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

func running(pid int) error { return unix.PtraceCont(pid, 0) }

func untilSyscall(pid int) error { return unix.PtraceSyscall(pid, 0) }

// read copies n bytes out of the process.
func (t *tracee) read(addr uint64, n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := unix.PtracePeekData(t.pid, uintptr(addr), b); err != nil {
		return nil, fmt.Errorf("read %d bytes at %#x: %w", n, addr, err)
	}
	return b, nil
}

func (t *tracee) word(addr uint64) (uint64, error) {
	b, err := t.read(addr, 8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// write copies into the process, whatever the rights of the page: a private one
// is copied for it first. /proc/PID/mem can be forbidden to do the same.
func (t *tracee) write(addr uint64, b []byte) error {
	if _, err := unix.PtracePokeData(t.pid, uintptr(addr), b); err != nil {
		return fmt.Errorf("write %d bytes at %#x: %w", len(b), addr, err)
	}
	return nil
}

func (t *tracee) setWord(addr, v uint64) error {
	return t.write(addr, binary.LittleEndian.AppendUint64(nil, v))
}

func (t *tracee) registers() (unix.PtraceRegs, error) {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(t.pid, &r); err != nil {
		return r, fmt.Errorf("read its registers: %w", err)
	}
	return r, nil
}

func (t *tracee) setRegisters(r unix.PtraceRegs) error {
	// Or the kernel takes what is in rax for the result of a system call that was
	// interrupted, and winds rip back to repeat it.
	r.Orig_rax = ^uint64(0)
	if err := unix.PtraceSetRegs(t.pid, &r); err != nil {
		return fmt.Errorf("set its registers: %w", err)
	}
	return nil
}

// syscall makes the process do one system call.
func (t *tracee) syscall(r unix.PtraceRegs, number uint64, args ...uint64) (uint64, error) {
	r.Rax, r.Rip = number, t.gate
	for i, p := range []*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9} {
		*p = 0
		if i < len(args) {
			*p = args[i]
		}
	}
	if err := t.setRegisters(r); err != nil {
		return 0, err
	}
	if err := t.trapped(unix.PtraceSingleStep); err != nil {
		return 0, err
	}
	r, err := t.registers()
	if err != nil {
		return 0, err
	}
	const syscallSize = 2
	if r.Rip != t.gate+syscallSize {
		return 0, fmt.Errorf("system call %d in it ended at %#x instead of %#x", number, r.Rip, t.gate+syscallSize)
	}
	if e := -int64(r.Rax); e > 0 && e < pageSize {
		return 0, fmt.Errorf("system call %d in it: %w", number, unix.Errno(e))
	}
	return r.Rax, nil
}

// call makes the process call a function, which returns to a trap at back.
func (t *tracee) call(r unix.PtraceRegs, function, back uint64, args [2]uint64) (uint64, error) {
	// As after a call instruction: 8 off a multiple of 16. There is nothing below
	// the stack pointer of a program that has not begun.
	r.Rsp = scratch(r) - 8
	r.Rip, r.Rdi, r.Rsi = function, args[0], args[1]
	// A new program's registers are all 0, and one would pass for another.
	for i, p := range []*uint64{&r.Rbx, &r.Rbp, &r.R12, &r.R13, &r.R14, &r.R15, &r.Rax, &r.Rcx, &r.Rdx, &r.R8, &r.R9, &r.R10, &r.R11} {
		*p = registerMark + uint64(i)
	}
	if err := t.setWord(r.Rsp, back); err != nil {
		return 0, err
	}
	if err := t.setRegisters(r); err != nil {
		return 0, err
	}
	if err := t.trapped(running); err != nil {
		return 0, err
	}
	end, err := t.registers()
	if err != nil {
		return 0, err
	}
	if end.Rip != back+1 || end.Rsp != r.Rsp+8 {
		return 0, fmt.Errorf("function %#x ended at %#x instead of %#x, the stack off by %d",
			function, end.Rip, back+1, int64(end.Rsp-r.Rsp-8))
	}
	if end.Rbx != r.Rbx || end.Rbp != r.Rbp || end.R12 != r.R12 || end.R13 != r.R13 || end.R14 != r.R14 || end.R15 != r.R15 {
		return 0, fmt.Errorf("function %#x changed registers that are its caller's", function)
	}
	return end.Rax, nil
}

const registerMark = 0xdeadbeef_00c0ffee

// scratch is a place for results on the stack: 16 bytes, aligned, with room below
// for a function.
func scratch(r unix.PtraceRegs) uint64 { return (r.Rsp - 256) &^ 15 }

// auxiliary reads an entry of the auxiliary vector, which lies above arguments
// and environment on the stack of a program that has not begun. 0 if it has none.
func (t *tracee) auxiliary(sp, key uint64) (uint64, error) {
	argc, err := t.word(sp)
	if err != nil {
		return 0, err
	}
	const most = 1 << 20 // words; the kernel's own limit is 6 MB of both
	at := sp + 8 + argc*8 + 8
	for range most {
		v, err := t.word(at)
		if err != nil {
			return 0, err
		}
		at += 8
		if v == 0 {
			break
		}
	}
	for range most {
		k, err := t.word(at)
		if err != nil || k == 0 {
			return 0, err
		}
		if k == key {
			return t.word(at + 8)
		}
		at += 16
	}
	return 0, errors.New("its stack is not understood")
}

// threadPoll is how often the threads of a program are looked at that has several
// and has yet to call exec.
const threadPoll = 200 * time.Microsecond

// untilExec lets the process run, its signals passed on, until it has called exec
// and the new program is about to begin. Any of its threads may call exec and is
// then the process, so all of them are followed; one that was not would run the
// new program untraced.
func (t *tracee) untilExec() error {
	begun := map[int]bool{t.pid: true} // by thread: whether its first stop is over
	if err := running(t.pid); err != nil {
		return fmt.Errorf("resume it: %w", err)
	}
	for {
		hang := 0
		if len(begun) > 1 {
			hang = unix.WNOHANG
		}
		s, ok, err := t.poll(hang)
		if err != nil {
			return fmt.Errorf("%w (%w)", ErrNoExec, err)
		}
		if ok {
			if s.event() == unix.PTRACE_EVENT_EXEC {
				// This stop is inside exec; the registers are the new program's
				// own when it returns.
				return t.trapped(untilSyscall)
			}
			if err := goOn(t.pid, s, begun); err != nil {
				return fmt.Errorf("resume it: %w", err)
			}
			continue
		}
		if !pollThreads(t.pid, begun) {
			time.Sleep(threadPoll)
		}
	}
}

// pollThreads looks at all threads but the first, resumes those that stopped, and
// says whether there were any. Those that ended must be taken off the kernel:
// exec waits for it.
func pollThreads(pid int, begun map[int]bool) bool {
	any := false
	for tid := range begun {
		if tid == pid {
			continue
		}
		i, ok, err := waitid(tid, unix.WEXITED|unix.WSTOPPED|unix.WNOHANG)
		switch {
		case err != nil: // gone with an exec
			delete(begun, tid)
		case !ok:
			continue
		case i.code == cldTrapped:
			// It fails if the thread was killed, and the next look tells.
			_ = goOn(tid, stop(i.status), begun)
		default:
			delete(begun, tid)
		}
		any = true
	}
	return any
}

// goOn resumes a thread of a program that runs, with the signal that it stopped
// for, and notes a new thread.
func goOn(tid int, s stop, begun map[int]bool) error {
	sig := s.signal()
	switch {
	case s.event() == unix.PTRACE_EVENT_CLONE:
		id, err := unix.PtraceGetEventMsg(tid)
		if err != nil {
			return err
		}
		begun[int(id)] = false
		sig = 0
	case s.event() != 0:
		sig = 0
	case sig == unix.SIGSTOP && !begun[tid]:
		begun[tid], sig = true, 0
	}
	return unix.PtraceCont(tid, int(sig))
}
