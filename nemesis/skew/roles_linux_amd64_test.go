package skew

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// roles are what the test's binary does when it is started with one of these
// words: some things need a process of their own, with fewer rights.
var roles = map[string]func(args []string) int{
	roleLaunch:    launchOne,
	roleNoPtrace:  func(args []string) int { return filtered(unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM), args) },
	roleKillsDead: func(args []string) int { return filtered(unix.SECCOMP_RET_KILL_THREAD, args) },
}

const (
	roleLaunch    = "skew-launch"
	roleNoPtrace  = "skew-no-ptrace"
	roleKillsDead = "skew-ptrace-kills"
)

// launchOne launches a program an hour ahead, lets it read its clock, and prints
// how that went: "ok", or the name of the error.
func launchOne(args []string) int {
	c, err := NewControl()
	if err == nil {
		err = c.Set(Realtime, time.Hour)
	}
	cmd := exec.Command(args[0], args[1:]...)
	if err == nil {
		// It runs until the end of its input, which is not before it was looked at.
		_, err = cmd.StdinPipe()
	}
	if err == nil {
		err = Launch(cmd, c, Options{})
	}
	if err == nil {
		var r Reading
		r, err = c.ReadBack(cmd.Process.Pid)
		if err == nil && r.Realtime != time.Hour {
			err = fmt.Errorf("read back %+v", r)
		}
		err = errors.Join(err, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	}
	if cmd.Process != nil && unix.Kill(cmd.Process.Pid, 0) != unix.ESRCH {
		err = errors.Join(err, errors.New("the process is still there"))
	}
	fmt.Println(nameOf(err), err)
	return 0
}

func nameOf(err error) string {
	if err == nil {
		return "ok"
	}
	for name, e := range map[string]error{
		"ErrPtrace": ErrPtrace, "ErrNot64Bit": ErrNot64Bit, "ErrNoVDSO": ErrNoVDSO, "ErrUnreadable": ErrUnreadable, "ErrSelfTest": ErrSelfTest,
	} {
		if errors.Is(err, e) {
			return name
		}
	}
	return "other"
}

// filtered takes the right to call ptrace from this process and goes on with
// launchOne.
func filtered(verdict uint32, args []string) int {
	runtime.LockOSThread()
	const number = 0 // of the system call, in what the filter sees
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PTRACE, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: verdict},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		fmt.Fprintln(os.Stderr, e)
		return 1
	}
	return launchOne(args)
}
