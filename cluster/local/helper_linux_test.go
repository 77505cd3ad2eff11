package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/lockcheck/lockcheck/cluster"
	"golang.org/x/sys/unix"
)

// namespaceHelpers are the helpers that re-execute themselves or must not.
func namespaceHelper(ctx context.Context, name string, args []string) (code int, known bool) {
	var err error
	switch name {
	case "ordinary":
		if !Inside() && os.Getpid() != 1 {
			fmt.Println("ordinary")
		}
	case "hold":
		return hold(ctx, args[0], args[1]), true
	case "exit":
		return inLab(func() int { return exitAs(args[0]) }), true
	case "terminal":
		return inLab(notTerminals), true
	case "first-operation":
		return inLab(func() int { return firstOperation(ctx, args[0]) }), true
	case "forbidden":
		err = forbidden(ctx, args[0], args[1])
	case "no-user-namespace":
		if !Inside() {
			err = os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
		}
		if err == nil {
			return inLab(func() int { return firstOperation(ctx, args[0]) }), true
		}
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// inLab runs f inside, as a main does.
func inLab(f func() int) int {
	if Inside() {
		return f()
	}
	code, err := Enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

func exitAs(arg string) int {
	if code, err := strconv.Atoi(arg); err == nil {
		return code
	}
	_ = syscall.Kill(os.Getpid(), unix.SignalNum("SIG"+arg))
	select {}
}

func notTerminals() (n int) {
	for fd := range 3 {
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil {
			n++
		}
	}
	return n
}

func firstOperation(ctx context.Context, dir string) int {
	c, err := Lab(ctx, cluster.Spec{Backend: cluster.Redis, Workers: 1, Proxy: true, Dir: dir})
	if err == nil {
		err = tryOperation(c, cluster.Redis, 0)
	}
	if err == nil {
		err = c.Close(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var in, out, size int
	fmt.Sscan(readOwn("/proc/self/uid_map"), &in, &out, &size)
	fmt.Printf("uid %d, map %d %d %d\n", os.Getuid(), in, out, size)
	return 0
}

// hold starts a cluster and workers and waits for a signal. It then exits with 7
// if the server still answers.
func hold(ctx context.Context, network, dir string) int {
	if network == NetworkLab && !Inside() {
		return inLab(nil)
	}
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, forwarded...)
	begin := Lab
	if network == NetworkLoopback {
		begin = Loopback
	}
	c, err := begin(ctx, cluster.Spec{Backend: cluster.Redis, Workers: 2, Proxy: true, Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	const deaf = "trap '' TERM INT HUP QUIT; exec sleep 1000"
	hiding := exec.Command("sh", "-c", deaf)
	if network == NetworkLab {
		// Only a PID namespace catches one that has left session and parent.
		hiding = exec.Command("sh", "-c", "setsid sh -c \""+deaf+"\" & "+deaf)
	}
	stopped := exec.Command("sleep", "1000")
	for i, cmd := range []*exec.Cmd{hiding, stopped} {
		if err := c.StartWorker(i, cmd); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	_ = stopped.Process.Signal(syscall.SIGSTOP)
	fmt.Println("held")
	fmt.Println("got", <-ch)
	if err := setOnce(ctx, c.members[0].addr(0)); err != nil {
		fmt.Fprintln(os.Stderr, "after the signal:", err)
		return 1
	}
	return 7
}

// forbidden takes namespaces away from this process and its children, and then
// goes the way of a main that is told "auto".
func forbidden(ctx context.Context, how, dir string) error {
	if err := forbid(how); err != nil {
		return fmt.Errorf("forbid by %s: %w", how, err)
	}
	_, _, err := Choose(ctx, NetworkLab)
	fmt.Println("lab: error", err)
	network, reason, err := Choose(ctx, NetworkAuto)
	if err != nil {
		return err
	}
	fmt.Printf("auto: %s, because %v\n", network, reason)
	if _, err := Enter(); how != "covered-proc" && err == nil {
		return fmt.Errorf("entered a lab that is forbidden")
	}
	c, err := Loopback(ctx, cluster.Spec{Backend: cluster.Redis, Workers: 1, Proxy: true, Dir: dir})
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	if err := tryOperation(c, cluster.Redis, 0); err != nil {
		return err
	}
	fmt.Println("first operation on", c.Versions()["network"])
	return nil
}

func forbid(how string) error {
	switch how {
	case "limit":
		for _, kind := range []string{"user", "net"} {
			if err := os.WriteFile("/proc/sys/user/max_"+kind+"_namespaces", []byte("0"), 0); err != nil {
				return err
			}
		}
		return nil
	case "covered-proc":
		return unix.Mount("tmpfs", "/proc/bus", "tmpfs", 0, "")
	case "seccomp":
		return forbidClone()
	}
	return fmt.Errorf("no way %q", how)
}

// forbidClone is what Docker's default seccomp profile does to clone and unshare,
// for every thread of this process.
func forbidClone() error {
	const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP
	const deny = 0x00050000 // SECCOMP_RET_ERRNO
	const allow = 0x7fff0000
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	prog := []unix.SockFilter{
		load(0), // the system call's number
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 5, 0),
		jump(unix.BPF_JEQ, unix.SYS_CLONE, 1, 0),
		jump(unix.BPF_JEQ, unix.SYS_UNSHARE, 0, 2),
		load(16), // the low half of its first argument: the flags
		jump(unix.BPF_JSET, namespaces, 2, 0),
		ret(allow),
		ret(deny | uint32(unix.ENOSYS)),
		ret(deny | uint32(unix.EPERM)),
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	const setModeFilter, tsync = 1, 1
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, tsync, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return errno
	}
	return nil
}
