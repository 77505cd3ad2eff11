package local

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// A process is a started server. err may be read once done is closed.
type process struct {
	cmd     *exec.Cmd
	box     Server // in place of cmd, but for its Process; nil for one of our own
	logFrom int64  // where its part of the log begins
	done    chan struct{}
	err     error
}

// watch waits for a started command in the background.
func watch(cmd *exec.Cmd, logFrom int64) *process {
	p := &process{cmd: cmd, logFrom: logFrom, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends the process at once and waits until it is gone. A stopped process
// dies of SIGKILL like any other.
func (p *process) kill() {
	// The only failure is that it ended before.
	if p.box != nil {
		_ = p.box.Kill()
	} else {
		_ = p.cmd.Process.Kill()
	}
	<-p.done
}

const (
	tailBytes = 4096
	tailLines = 8
)

// logTail returns the last lines of a log from an offset on, indented for an
// error message.
func logTail(file string, from int64) string {
	b, err := readTail(file, from)
	if err != nil {
		return "  (no log: " + err.Error() + ")"
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return "  (its log is empty)"
	}
	lines := strings.Split(string(b), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return "  " + strings.Join(lines, "\n  ")
}

func readTail(file string, from int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from = max(from, st.Size()-tailBytes)
	return io.ReadAll(io.NewSectionReader(f, from, tailBytes))
}

// A Died is the error for a server that ended while it should have started.
type Died struct {
	Node   string
	Server string // e.g. "redis-server"
	State  string // e.g. "exit status 1"
	Log    string // the last lines of its log
}

func (e *Died) Error() string {
	return fmt.Sprintf("%s on %s ended during its start (%s); its log ends:\n%s", e.Server, e.Node, e.State, e.Log)
}
