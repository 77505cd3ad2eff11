package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/guard"
)

// A conn is one worker process and its pipes.
type conn struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	in  io.WriteCloser

	waited chan struct{} // closed when the process has been waited for
	gone   chan struct{} // closed when its end has been filed, too
}

// lingerWithin is how long a child that outlives its worker may keep the
// worker's output open.
const lingerWithin = 500 * time.Millisecond

// end kills the process and its children, unless it was waited for.
func (c *conn) end() { killGroup(c.cmd.Process) }

// maxLine is the longest line that a worker may print.
const maxLine = 1 << 20

// readWithin is how long a worker may leave its input unread when the pipe is
// full. A stopped worker never fills it: it is sent one operation at a time.
const readWithin = 2 * time.Second

// send writes one command. A process that cannot take it is gone, or is ended
// here; whoever reads its output then completes what is open.
func (c *conn) send(cmd wire.Command) {
	b, err := json.Marshal(cmd)
	if err == nil {
		c.mu.Lock()
		if p, ok := c.in.(interface{ SetWriteDeadline(time.Time) error }); ok {
			p.SetWriteDeadline(time.Now().Add(readWithin)) // where pipes have no deadline the write just waits
		}
		_, err = c.in.Write(append(b, '\n'))
		c.mu.Unlock()
	}
	if err != nil {
		c.end()
	}
}

// Session makes sure that the worker has a process and a session under its
// present number. A process that does not answer is replaced.
func (w *Worker) Session(ctx context.Context) error {
	for {
		c, err := w.session(ctx)
		if c == nil || err != nil {
			return err
		}
		err = w.settled()
		if !errors.Is(err, ErrAgain) {
			return err
		}
		c.end()
		<-c.gone
	}
}

// settled asks the place about a worker that has just begun a session.
func (w *Worker) settled() error {
	s, ok := w.r.cfg.Place.(Settler)
	if !ok {
		return nil
	}
	return s.Settled(w.index)
}

// session begins a session, unless there is one. It gives the process if it is a
// new session.
func (w *Worker) session(ctx context.Context) (*conn, error) {
	w.mu.Lock()
	if w.fresh && w.conn != nil {
		w.mu.Unlock()
		return nil, nil
	}
	within := sessionWithin
	if w.conn == nil {
		within = firstSessionWithin
	}
	c, err := w.ensureProcess()
	if err != nil {
		w.mu.Unlock()
		return nil, err
	}
	w.nextID++
	id, number := w.nextID, w.process
	w.told = number // what is printed from here on is the new session's, or nobody's
	answer := make(chan wire.Message, 1)
	w.inits[id] = answer
	w.mu.Unlock()

	set := w.r.cfg.Setup
	set.Protocol, set.Worker, set.Process = wire.Version, w.index, int64(number)
	set.Endpoints, set.Store = w.r.cfg.Place.Endpoints(w.index), w.r.cfg.Place.StoreURL(w.index)
	if p, ok := w.r.cfg.Place.(routed); ok {
		set.Routes = p.Routes(w.index)
	}
	c.send(wire.Command{ID: id, Op: wire.Init, Init: &set, Timeout: within.Nanoseconds()})
	return c, w.awaitSession(ctx, c, id, within, answer)
}

func (w *Worker) awaitSession(ctx context.Context, c *conn, id uint64, within time.Duration, answer <-chan wire.Message) error {
	defer func() {
		w.mu.Lock()
		delete(w.inits, id)
		w.mu.Unlock()
	}()
	timeout := time.NewTimer(within + grace)
	defer timeout.Stop()
	select {
	case m := <-answer:
		if m.Type != wire.OK {
			return fmt.Errorf("worker %d could not begin a session: %s", w.index, m.Error)
		}
	case <-c.gone:
		return fmt.Errorf("worker %d ended before it had begun a session: %v", w.index, c.cmd.ProcessState)
	case <-timeout.C:
		c.end()
		<-c.gone
		return fmt.Errorf("worker %d did not answer init within %v and was replaced", w.index, within)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// begun notes a session on the wire. w.mu is held. It is done by the reader, so
// that what the worker prints next is filed under the new number.
func (w *Worker) begun(m wire.Message, answer chan wire.Message) {
	if m.Type == wire.OK {
		w.fresh, w.suspended = true, false
		w.can = map[string]bool{}
		for _, a := range m.Can {
			w.can[a] = true
		}
		clear(w.marks)
	}
	answer <- m
}

// ensureProcess starts a process if there is none. w.mu is held.
func (w *Worker) ensureProcess() (*conn, error) {
	if w.closed {
		return nil, fmt.Errorf("worker %d: the run is over", w.index)
	}
	if w.conn != nil {
		return w.conn, nil
	}
	cmd := w.r.cfg.Command(w.index)
	if w.r.cfg.Stderr != nil {
		cmd.Stderr = w.r.cfg.Stderr(w.index)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("worker %d: %w", w.index, err)
	}
	// A pipe of our own, since exec's would be closed with lines still in it.
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("worker %d: %w", w.index, err)
	}
	cmd.Stdout = theirs
	cmd.WaitDelay = lingerWithin
	leadGroup(cmd)
	err = w.r.cfg.Place.StartWorker(w.index, cmd)
	theirs.Close()
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("start worker %d (%s): %w", w.index, cmd.Path, err)
	}
	c := &conn{cmd: cmd, in: in, waited: make(chan struct{}), gone: make(chan struct{})}
	w.conn = c
	go guard.Wrap(func() {
		c.cmd.Wait() // the state says how it ended
		close(c.waited)
		out.SetReadDeadline(time.Now().Add(lingerWithin))
	})()
	go guard.Wrap(func() { w.read(c, out) })()
	return c, nil
}

// read takes what one process prints until it ends.
func (w *Worker) read(c *conn, out io.ReadCloser) {
	defer out.Close()
	sc := bufio.NewScanner(out)
	sc.Buffer(make([]byte, 4096), maxLine)
	why := ""
	for sc.Scan() {
		var m wire.Message
		if err := json.Unmarshal(sc.Bytes(), &m); err != nil {
			why = fmt.Sprintf("it printed what is no message: %.200q", sc.Bytes())
			break
		}
		w.receive(c, m)
	}
	if errors.Is(sc.Err(), bufio.ErrTooLong) {
		why = fmt.Sprintf("it printed a line of more than %d bytes", maxLine)
	}
	c.end() // it may only have closed its output
	<-c.waited
	w.ended(c, why)
	close(c.gone)
}

// ended files the death of a worker's process.
func (w *Worker) ended(c *conn, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != c {
		return
	}
	w.conn = nil
	if why == "" {
		why = c.cmd.ProcessState.String()
	}
	if w.closed {
		return
	}
	w.r.cfg.Log.Warn("worker ended", "worker", w.index, "process", int64(w.process), "why", why)
	text := history.ErrCrashed + ": " + why
	if w.doomed {
		text = "the worker was killed: " + why
	}
	w.doomed = false
	switch {
	case w.open != nil:
		w.finish(w.open, wire.Message{Type: wire.Info, Error: text})
	case len(w.held) > 0: // what it held has no operation whose end could tell
		op := history.Op{Process: w.process, Type: history.Invoke, F: history.Close}
		w.r.cfg.Recorder.Append(op)
		op.Type, op.Error = history.Info, text
		w.r.cfg.Recorder.Append(op)
		w.retire()
	default:
		w.retire()
	}
}

// receive takes one message.
func (w *Worker) receive(c *conn, m wire.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case m.Event == wire.MarkEvent:
		w.marks[m.Mark] = w.r.cfg.Recorder.Append(w.single(history.Mark, m))
		c.send(wire.Command{Op: wire.Ack, Mark: m.Mark})
	case m.Event != "":
		w.event(m)
	case m.ID != 0:
		if o := w.open; o != nil && o.id == m.ID {
			w.finish(o, m)
		} else if answer := w.inits[m.ID]; answer != nil {
			w.begun(m, answer)
		} else {
			w.r.cfg.Log.Info("late answer", "worker", w.index, "id", m.ID, "type", m.Type, "error", m.Error)
		}
	}
	if m.Log != "" {
		w.r.cfg.Log.Info("worker says", "worker", w.index, "log", m.Log)
	}
}

func (w *Worker) single(f string, m wire.Message) history.Op {
	o := history.Op{Process: w.told, Type: history.Info, F: f, Key: m.Key, Error: m.Error}
	if m.Grant != 0 {
		o.Grant = history.Some(m.Grant)
	}
	return o
}

// event files what a worker tells without being asked. w.mu is held.
func (w *Worker) event(m wire.Message) {
	if !history.Single(m.Event) {
		w.r.cfg.Log.Warn("unknown event", "worker", w.index, "event", m.Event)
		return
	}
	o := w.single(m.Event, m)
	if m.Event == history.Renewed {
		w.promise(&o, m)
	}
	w.r.cfg.Recorder.Append(o)
	switch m.Event {
	case history.Suspended:
		w.suspended = true
	case history.Connected:
		w.suspended = false
	case history.Lost:
		w.suspended = false
		if w.open != nil {
			w.open.lost = true
		}
		for g, h := range w.held {
			if (m.Grant == 0 || m.Grant == g) && (m.Key == "" || m.Key == h.key) {
				h.lost = true
			}
		}
	}
}

// shutWithin is how long a worker gets to end by itself when its input ends.
const shutWithin = time.Second

// shut ends the worker's process for good.
func (w *Worker) shut() {
	w.mu.Lock()
	w.closed = true
	c := w.conn
	w.mu.Unlock()
	if c == nil {
		return
	}
	c.mu.Lock()
	c.in.Close()
	c.mu.Unlock()
	select {
	case <-c.gone:
	case <-time.After(shutWithin):
		c.end()
		<-c.gone
	}
}

// routed is a Place whose servers tell of addresses that a worker reaches another
// way.
type routed interface {
	Routes(worker int) map[string]string
}
