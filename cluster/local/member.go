package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// A host is a place for processes: a namespace of the lab, or this machine.
type host interface {
	addr() string // an IPv4 address
	start(*exec.Cmd, starter) error
}

// A starter starts a command on the thread that it is called on, as
// (*exec.Cmd).Start does.
type starter func(*exec.Cmd) error

// A role is one kind of server in a backend.
type role struct {
	server string // the program, e.g. "redis-sentinel"
	ports  []int  // those it listens on in the lab; clients use the first
}

// A member is one server node: one process in one place, with one directory.
type member struct {
	name  string
	role  role
	host  host
	ports []int // as role.ports, but free ones on loopback
	dir   string
	log   string
	clock *clock

	mu   sync.Mutex
	proc *process
}

// errNotRunning is wrapped by what needs a live server.
var errNotRunning = errors.New("not running")

// door is the address at which this process reaches what clients reach: in a box
// that may be another than the servers have among themselves.
func (m *member) door() string {
	if h, ok := m.host.(*boxHost); ok {
		return h.door
	}
	return m.addr(0)
}

// addr is the address of the member's i-th port.
func (m *member) addr(i int) string {
	return net.JoinHostPort(m.host.addr(), strconv.Itoa(m.ports[i]))
}

func (m *member) dataDir() string { return filepath.Join(m.dir, "data") }

// markFile tells one life of a member's data from the next. Servers take no
// notice of it.
const markFile = "lockcheck.id"

var marks atomic.Int64

// mark gives data that is new a number of its own.
func (m *member) mark() error {
	if err := os.MkdirAll(m.dataDir(), 0o700); err != nil {
		return fmt.Errorf("create data directory of %s: %w", m.name, err)
	}
	file := filepath.Join(m.dataDir(), markFile)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	if err := os.WriteFile(file, fmt.Append(nil, marks.Add(1)), 0o600); err != nil {
		return fmt.Errorf("mark the data of %s: %w", m.name, err)
	}
	return nil
}

// start runs cmd as this member's server, its output appended to the log.
func (m *member) start(cmd *exec.Cmd) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc != nil && m.proc.running() {
		return fmt.Errorf("start %s: already running", m.name)
	}
	f, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", m.name, err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("open log of %s: %w", m.name, err)
	}
	if h, ok := m.host.(*boxHost); ok {
		p, err := h.run(cmd, m.dir, f, st.Size())
		if err != nil {
			return fmt.Errorf("start %s on %s: %w", m.role.server, m.name, err)
		}
		m.proc = p
		return nil
	}
	defer f.Close()
	cmd.Dir, cmd.Stdout, cmd.Stderr = m.dir, f, f
	if err := m.host.start(cmd, m.clock.starter()); err != nil {
		return fmt.Errorf("start %s on %s: %w", m.role.server, m.name, err)
	}
	m.proc = watch(cmd, st.Size())
	return nil
}

// process returns the member's live process.
func (m *member) process() (*process, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc == nil || !m.proc.running() {
		return nil, fmt.Errorf("%s on %s: %w", m.role.server, m.name, errNotRunning)
	}
	return m.proc, nil
}

// last returns the process that was started last, or nil.
func (m *member) last() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proc
}

// kill ends the server if it runs, and waits until it is gone.
func (m *member) kill() {
	if p, err := m.process(); err == nil {
		p.kill()
	}
}

// died describes the end of p.
func (m *member) died(p *process) *Died {
	state := "exit status 0"
	if p.err != nil {
		state = p.err.Error()
	}
	return &Died{Node: m.name, Server: m.role.server, State: state, Log: logTail(m.log, p.logFrom)}
}

// logTails quotes the end of every member's log.
func logTails(ms []*member) string {
	var b strings.Builder
	for _, m := range ms {
		if p := m.last(); p != nil {
			fmt.Fprintf(&b, "the log of %s ends:\n%s\n", m.name, logTail(m.log, p.logFrom))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
