package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A stage is what a re-executed process is for. It is named in the environment,
// but believed only together with a hello on helloFD, so that a variable that
// somebody left behind cannot turn an ordinary process into PID 1's work.
const (
	stageEnv   = "LOCKCHECK_STAGE"
	stageInit  = "init"
	stageLab   = "lab"
	stageProbe = "probe"

	helloFD = 3 // where exec.Cmd puts the first of ExtraFiles
)

// hello is written into the pipe before the process that reads it starts, in one
// write of less than PIPE_BUF, so that one read gets all of it or nothing.
type hello struct {
	Stage   string `json:"stage"`
	Started int64  `json:"started"` // CLOCK_MONOTONIC of the command's start; all namespaces share it
}

var (
	staged  bool          // Stage was called
	inside  bool          // this process is the lab stage
	started = monotonic() // the start of the command, as near as package initialisation comes
)

// Stage does this process's part of a re-execution. It must be called before
// anything else in main. When done is true the process was a helper and must
// exit with code; otherwise main goes on, as an ordinary process or inside the
// lab (see Inside). It takes the stage out of the environment, so that no worker
// or server inherits it.
func Stage() (code int, done bool) {
	staged = true
	name, set := os.LookupEnv(stageEnv)
	if !set {
		return 0, false
	}
	os.Unsetenv(stageEnv)
	h, ok := readHello(name)
	if !ok {
		return 0, false
	}
	started = h.Started
	switch {
	case name == stageInit && os.Getpid() == 1:
		return runInit(), true
	case name == stageProbe && os.Getpid() == 1:
		return runProbe(os.Stdout), true
	case name == stageLab && os.Getppid() == 1:
		unix.Close(helloFD)
		inside = true
		setComm(filepath.Base(os.Args[0]))
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, "lab:", err)
			return exitFailed, true
		}
	}
	return 0, false
}

// Inside reports whether this process runs in the lab's namespaces.
func Inside() bool { return inside }

// readHello takes the hello from helloFD if there is a pipe with one in it.
func readHello(stage string) (hello, bool) {
	var st unix.Stat_t
	if unix.Fstat(helloFD, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return hello{}, false
	}
	p := []unix.PollFd{{Fd: helloFD, Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 0); n != 1 || err != nil || p[0].Revents&unix.POLLIN == 0 {
		return hello{}, false
	}
	b := make([]byte, 4096)
	n, err := unix.Read(helloFD, b)
	if err != nil || n <= 0 {
		return hello{}, false
	}
	var h hello
	if json.Unmarshal(b[:n], &h) != nil || h.Stage != stage {
		return hello{}, false
	}
	unix.CloseOnExec(helloFD)
	return h, true
}

// helloPipe returns a pipe that already holds the hello of a stage.
func helloPipe(stage string) (r, w *os.File, err error) {
	r, w, err = os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("pipe to %s stage: %w", stage, err)
	}
	b, err := json.Marshal(hello{Stage: stage, Started: started})
	if err == nil {
		_, err = w.Write(b)
	}
	if err != nil {
		r.Close()
		w.Close()
		return nil, nil, fmt.Errorf("write to %s stage: %w", stage, err)
	}
	return r, w, nil
}

// stageCommand is this program again, as the named stage. /proc/self/exe is
// right even when the file was replaced since.
func stageCommand(stage string, r *os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stageEnv+"="+stage)
	cmd.ExtraFiles = []*os.File{r}
	return cmd
}

// setComm gives the process a name for ps: an exec of /proc/self/exe is called
// "exe" otherwise. It is cosmetic, so a failure is nobody's business.
func setComm(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// loopbackUp makes 127.0.0.1 work in the lab's own network namespace.
func loopbackUp() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	return linkUp(h, "lo")
}

func monotonic() int64 {
	var ts unix.Timespec
	// Cannot fail with a clock that exists and an address that is ours.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

func sinceStarted() time.Duration { return time.Duration(monotonic() - started) }

// errnoOf is the errno inside an error, or 0.
func errnoOf(err error) syscall.Errno {
	var n syscall.Errno
	errors.As(err, &n)
	return n
}

func readOwn(file string) string {
	b, _ := os.ReadFile(file)
	return strings.TrimSpace(string(b))
}
