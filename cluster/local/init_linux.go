package local

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// runInit is PID 1 of the lab: it mounts /proc, starts the lab stage, reaps
// orphans and passes signals on. It must stay a process of its own: a wait for
// any child takes the exit that an exec.Cmd in the same process waits for.
func runInit() int {
	setComm("lockcheck-init")
	go dieWithOuter()
	if err := privateProc(); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		return exitFailed
	}
	sig := make(chan os.Signal, 16)
	signal.Notify(sig, notIgnored()...)
	lab, err := startLab()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		return exitFailed
	}
	go func() {
		for s := range sig {
			_ = unix.Kill(lab, s.(syscall.Signal))
		}
	}()
	return reapUntil(lab)
}

// dieWithOuter ends init when the write end of the liveness pipe closes. The
// parent-death signal does the same faster, unless outer died before init had
// asked for it.
func dieWithOuter() {
	b := make([]byte, 1)
	for {
		n, err := unix.Read(helloFD, b)
		if n > 0 || err == unix.EINTR {
			continue
		}
		os.Exit(128 + int(syscall.SIGKILL))
	}
}

// privateProc makes the mounts private and mounts a /proc of this PID namespace:
// through the old one, a child's state would be some other process's.
func privateProc() error {
	// A mount namespace made by root without a user namespace is still shared.
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return unavailable("make mounts private", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return unavailable("mount /proc", err)
	}
	return nil
}

func startLab() (pid int, err error) {
	r, w, err := helloPipe(stageLab)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	w.Close()
	cmd := stageCommand(stageLab, r)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start lab stage: %w", err)
	}
	return cmd.Process.Pid, nil
}

// reapUntil waits for every child until pid ends, and returns its exit code.
// When init then exits, the kernel kills what is left.
func reapUntil(pid int) int {
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			fmt.Fprintln(os.Stderr, "lab: wait for children:", err)
			return exitFailed
		case got != pid:
		case ws.Signaled():
			return 128 + int(ws.Signal())
		default:
			return ws.ExitStatus()
		}
	}
}
