package local

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

// exitFailed is Jepsen's code for "the tool itself failed".
const exitFailed = 255

// newNamespaces are those of the lab, the user namespace apart.
const newNamespaces = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID

var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// Enter runs this program again, with the same arguments and standard files,
// inside new namespaces, and waits for it. The caller must then exit with code,
// which is 128 plus the signal's number if a signal ended it. An error means
// that nothing ran; it is an *Unavailable when the machine does not permit it.
//
// The calling goroutine keeps its thread until the end, because the kernel's
// parent-death signal belongs to the thread that forked.
func Enter() (code int, err error) {
	switch {
	case !staged:
		return exitFailed, ErrNoStage
	case inside:
		return exitFailed, errors.New("enter lab: already inside")
	}
	// Before the child exists: a signal in between would end us and not it.
	sig := make(chan os.Signal, 16)
	signal.Notify(sig, notIgnored()...)
	defer signal.Stop(sig)

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, alive, err := startNamespaced(stageInit, os.Stdout)
	if err != nil {
		return exitFailed, err
	}
	defer alive.Close()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case s := <-sig:
				// It may have ended meanwhile; then there is nobody to tell.
				_ = cmd.Process.Signal(s)
			case <-ended:
				return
			}
		}
	}()
	return exitCode(cmd.Wait(), cmd.ProcessState)
}

// notIgnored leaves out what nohup or a shell's & made this process ignore.
func notIgnored() []os.Signal {
	var out []os.Signal
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			out = append(out, s)
		}
	}
	return out
}

func exitCode(err error, st *os.ProcessState) (int, error) {
	if st == nil {
		return exitFailed, fmt.Errorf("wait for lab: %w", err)
	}
	ws := st.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return ws.ExitStatus(), nil
}

// startNamespaced starts a stage in new namespaces from the calling thread,
// which must be locked. The stage ends when alive is closed, be it by the end of
// this process.
func startNamespaced(stage string, out *os.File) (cmd *exec.Cmd, alive *os.File, err error) {
	var first error
	for _, attr := range attempts() {
		cmd, alive, err = tryNamespaced(stage, out, attr)
		if err == nil {
			return cmd, alive, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, nil, unavailable("create namespaces", first)
}

// attempts are the ways to get the namespaces, best first. An ordinary user has
// one; root can map its whole id range, so that files keep their owners, and
// can do without a user namespace where those are forbidden.
func attempts() []*syscall.SysProcAttr {
	own := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
	}
	single := &syscall.SysProcAttr{
		Cloneflags:  newNamespaces | syscall.CLONE_NEWUSER,
		UidMappings: own(os.Getuid()),
		GidMappings: own(os.Getgid()),
	}
	if os.Getuid() != 0 {
		return []*syscall.SysProcAttr{single}
	}
	full := &syscall.SysProcAttr{
		Cloneflags:                 newNamespaces | syscall.CLONE_NEWUSER,
		UidMappings:                identity("/proc/self/uid_map"),
		GidMappings:                identity("/proc/self/gid_map"),
		GidMappingsEnableSetgroups: true,
	}
	bare := &syscall.SysProcAttr{Cloneflags: newNamespaces}
	return []*syscall.SysProcAttr{full, single, bare}
}

// identity maps every id that this user namespace has onto itself. What it has
// may be a few ranges: root in a rootless container is not root of everything.
func identity(file string) []syscall.SysProcIDMap {
	var maps []syscall.SysProcIDMap
	sc := bufio.NewScanner(strings.NewReader(readOwn(file)))
	for sc.Scan() {
		var in, out, size int
		if n, _ := fmt.Sscan(sc.Text(), &in, &out, &size); n == 3 {
			maps = append(maps, syscall.SysProcIDMap{ContainerID: in, HostID: in, Size: size})
		}
	}
	return maps
}

func tryNamespaced(stage string, out *os.File, attr *syscall.SysProcAttr) (*exec.Cmd, *os.File, error) {
	r, w, err := helloPipe(stage)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	cmd := stageCommand(stage, r)
	attr.Pdeathsig = syscall.SIGKILL
	// Ctrl-C goes to the whole foreground process group, and redis obeys it.
	attr.Setsid = true
	cmd.SysProcAttr = attr
	// The files themselves, so that a terminal stays a terminal.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, os.Stderr
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, nil, err
	}
	return cmd, w, nil
}
