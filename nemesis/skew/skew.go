// Package skew starts processes whose clocks can be moved while they run, each
// by its own amount: one server of a cluster, or one worker, lives in the past or
// in the future while everybody else keeps the time.
//
// C libraries, the JVM and the Go runtime all read the clock through functions of
// the vDSO, a small library that the kernel maps into each process, and find them
// by name in its symbol table. Launch starts a program stopped, makes those
// symbols point at a page of code of its own, proves with calls in the stopped
// process that the code answers as it should, and lets it go. The code asks the
// kernel's own function and adds what a Control says, a page of shared memory
// that the process can read and only this one can write. From then on a change of
// the clock is a write into that page: nothing is stopped, nothing is traced, and
// reading the clock costs some nanoseconds more than before.
//
// What it does not reach: a program that asks the kernel by a system call instead
// of the vDSO, the processor's own counter (rdtsc), the times of files, and what
// /proc shows. Deadlines that a program hands to the kernel as instants (futex
// waits, TIMER_ABSTIME, timerfd) are kept by the real clock. For that reason the
// realtime clock is the one to move. The monotonic clock has to be asked for by
// name, and is refused for all but static Go programs, which wait for durations
// only: a JVM with a moved monotonic clock oversleeps or spins, which is damage
// done by the instrument and not by the fault. It is not moved backwards either.
// Control.Force lifts both refusals.
//
// It never lets a process run whose clock cannot be moved: whatever fails, the
// process is dead and the error says why. It does not follow forks: a child has
// its parent's clock until it calls exec, and the real one from then on.
//
// Linux on amd64 only; elsewhere everything is an ErrUnsupported.
package skew

import (
	"errors"
	"fmt"
	"time"
)

//go:generate go run asm/generate.go asm/clock_amd64.S code_linux_amd64.go

// A Clock is a family of the kernel's clocks that move together.
type Clock int

const (
	// Realtime is the time of day: CLOCK_REALTIME with its coarse and alarm
	// forms, CLOCK_TAI, gettimeofday and time.
	Realtime Clock = iota
	// Monotonic is what durations are measured with: CLOCK_MONOTONIC with its
	// raw and coarse forms, CLOCK_BOOTTIME and its alarm form.
	Monotonic

	clocks = 2
)

func (k Clock) String() string {
	switch k {
	case Realtime:
		return "realtime"
	case Monotonic:
		return "monotonic"
	}
	return fmt.Sprintf("Clock(%d)", int(k))
}

// Why a clock cannot be moved. Each error names what can be done about it.
var (
	ErrUnsupported = errors.New("skew: moving the clock of a process works on Linux on amd64 only: leave the clock faults out, or run there")
	ErrPtrace      = errors.New("skew: ptrace is not permitted: run outside strace and gdb, with kernel.yama.ptrace_scope at 0 or 1, and in a container with a seccomp profile that allows it (docker run --cap-add SYS_PTRACE)")
	ErrNot64Bit    = errors.New("skew: not a 64-bit x86 program: install the amd64 build of it")
	ErrNoVDSO      = errors.New("skew: the process has no vDSO with a clock in it: boot without vdso=0, and not on an emulated kernel")
	ErrUnreadable  = errors.New("skew: the memory of the process is off limits: make its program file readable to the user that starts it, without set-id bits and file capabilities")
	ErrSelfTest    = errors.New("skew: the moved clock did not answer as it should, so the process was not let go: report it with the kernel's version, and leave the clock faults out")
	ErrNoExec      = errors.New("skew: the process did not call exec as often as was said: give the number of programs that start one another under the same pid (Options.Execs), or start the last one directly")
	ErrNotAttached = errors.New("skew: no running process follows this control: it has ended, or has called exec, which throws the moved clock away (start it directly, or say Options.Execs)")
	ErrDeadlines   = errors.New("skew: the program may hand monotonic deadlines to the kernel, which keeps them by the real clock: move its realtime clock instead, or force it")
	ErrBackwards   = errors.New("skew: a monotonic clock does not go backwards: slow it down instead, or force it")
	ErrRange       = errors.New("skew: out of range: keep the clock between its epoch and the year 2116, and its speed between a stop and a thousandfold")
	ErrClosed      = errors.New("skew: the control is closed")
)

// Options say how a process is launched. The zero value fits a program that is
// started directly.
type Options struct {
	// Execs is how often the process calls exec before it is the program that is
	// meant: 1 for `sh -c "exec server"`. Each program on the way has the moved
	// clock too.
	Execs int
	// Limit bounds the launch, with all that the programs on the way do; at its
	// end the process is killed. 0 is 30 s.
	Limit time.Duration
}

const defaultLimit = 30 * time.Second

// A Reading is what was found in the memory of a running process: which way its
// clock functions lead, and what the page at the end of it adds to the clock.
type Reading struct {
	Realtime   time.Duration // ahead of the real clock at the time of the reading
	Monotonic  time.Duration
	Drifting   bool   // whether one of them changes by itself
	Generation uint64 // how many changes the process has seen
	Symbols    int    // of the vDSO, all of which lead to the code
	Code       uint64 // where the code is, which leads
	Page       uint64 // to the control page
}

// Offset is the reading of one clock.
func (r Reading) Offset(k Clock) time.Duration {
	if k == Monotonic {
		return r.Monotonic
	}
	return r.Realtime
}
