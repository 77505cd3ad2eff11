package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
)

// A Worker is the runner's end of one worker: a place that always has a
// process. When the outcome of one of its operations is unknown it goes on
// under a new number; when its process dies it gets another.
type Worker struct {
	r     *Runner
	index int

	mu        sync.Mutex
	process   history.Process // its number now
	told      history.Process // the number that the session on the wire was begun under
	conn      *conn           // nil when there is no process
	fresh     bool            // the session on the wire is that of process
	can       map[string]bool
	open      *Open
	nextID    uint64
	inits     map[uint64]chan wire.Message
	marks     map[uint64]int64
	held      map[uint64]*hold
	suspended bool
	closed    bool
	doomed    bool // the nemesis is about to kill it
}

// A hold is a grant that the worker has.
type hold struct {
	key   string
	token *uint64
	lost  bool
}

func newWorker(r *Runner, i int) *Worker {
	return &Worker{r: r, index: i, process: history.Process(i), told: history.Process(i), inits: map[uint64]chan wire.Message{}, marks: map[uint64]int64{}, held: map[uint64]*hold{}}
}

// A Call is an operation that a worker is to carry out.
type Call struct {
	F       string
	Key     string
	Grant   uint64        // of all but acquire and close
	Value   int64         // write
	Wait    time.Duration // acquire: how long it may wait inside
	Timeout time.Duration // 0 for the run's
}

// Done is how an operation ended.
type Done struct {
	Type  history.Type
	Error string
	Grant uint64 // acquire
	Token *uint64
	Value int64 // read
	Took  time.Duration
}

// An Open is an operation under way.
type Open struct {
	w     *Worker
	id    uint64
	call  Call
	op    history.Op
	begun time.Time
	timer *time.Timer
	done  chan Done
	lost  bool // told while it was open
}

// ErrRetired says that a worker needs a session before it can do anything.
var ErrRetired = errors.New("the worker has no session")

// ErrLost says that the grant was lost before the operation could be begun.
var ErrLost = errors.New("the grant is lost")

// grace is what an operation gets over its time-out before the runner stops
// waiting for the worker's own answer.
const grace = 500 * time.Millisecond

// Begin stamps the invocation and sends the command. A read, write or check
// under a grant that the worker was told is lost is not begun.
func (w *Worker) Begin(c Call) (*Open, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.conn == nil || !w.fresh:
		return nil, ErrRetired
	case w.open != nil:
		return nil, fmt.Errorf("worker %d: %s is still open", w.index, w.open.call.F)
	}
	if c.Timeout == 0 {
		c.Timeout = w.r.cfg.OpTimeout
		if c.F == history.Acquire {
			c.Timeout += c.Wait
		}
	}
	w.nextID++
	o := &Open{w: w, id: w.nextID, call: c, done: make(chan Done, 1)}
	cmd := wire.Command{ID: o.id, Op: c.F, Key: c.Key, Grant: c.Grant, Timeout: c.Timeout.Nanoseconds()}
	o.op = history.Op{Process: w.process, F: c.F, Key: c.Key}
	switch c.F {
	case history.Acquire:
		o.call.Grant = w.r.grants.Add(1)
		cmd.Grant, cmd.TTL, cmd.Wait = o.call.Grant, w.r.cfg.Setup.TTL, c.Wait.Nanoseconds()
	case history.Close:
	default:
		h := w.held[c.Grant]
		if h != nil && h.lost && c.F != history.Release {
			return nil, ErrLost
		}
		o.op.Grant = history.Some(c.Grant)
		if h != nil && (c.F == history.Read || c.F == history.Write) {
			cmd.Token = h.token
			if h.token != nil {
				o.op.Token = history.Some(*h.token)
			}
		}
		if c.F == history.Write {
			cmd.Value, o.op.Value = &c.Value, number(c.Value)
		}
	}
	inv := o.op
	inv.Type = history.Invoke
	if c.F == history.Acquire {
		inv.TTL = history.Some(w.r.cfg.Setup.TTL)
	}
	w.open, o.begun = o, time.Now()
	o.timer = time.AfterFunc(c.Timeout+grace, o.expire)
	w.r.cfg.Recorder.Append(inv)
	w.conn.send(cmd) // if it cannot be sent the process is gone, and its end completes the operation
	return o, nil
}

// Wait gives the outcome. If ctx ends first the operation goes on; it ends by
// itself within its time-out.
func (o *Open) Wait(ctx context.Context) (Done, error) {
	select {
	case d := <-o.done:
		return d, nil
	case <-ctx.Done():
		return Done{}, ctx.Err()
	}
}

// Lost reports whether the worker was told of a loss while the operation was
// open.
func (o *Open) Lost() bool {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	return o.lost
}

// Do begins an operation and waits for its end.
func (w *Worker) Do(ctx context.Context, c Call) (Done, error) {
	o, err := w.Begin(c)
	if err != nil {
		return Done{}, err
	}
	return o.Wait(ctx)
}

func (o *Open) expire() {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	o.w.finish(o, wire.Message{Type: wire.Info, Error: fmt.Sprintf("no answer within %v", o.call.Timeout+grace)})
}

// finish stamps the completion. w.mu is held.
func (w *Worker) finish(o *Open, m wire.Message) {
	if w.open != o {
		return
	}
	w.open = nil
	o.timer.Stop()
	if o.call.F == history.Read && m.Type == wire.OK && m.Value == nil {
		m = wire.Message{Type: wire.Info, Error: "the worker answered a read with ok and no value"}
	}
	d := Done{Type: outcome(m.Type), Error: m.Error, Grant: o.call.Grant, Token: m.Token}
	op := o.op
	op.Type, op.Error = d.Type, m.Error
	if d.Type == history.OK {
		w.completed(o, &op, m)
	}
	if m.Value != nil {
		d.Value = *m.Value
	}
	w.r.cfg.Recorder.Append(op)
	w.r.ops.Add(1)
	switch {
	case d.Type == history.Info:
		w.r.infos.Add(1)
		w.retire()
	case o.call.F == history.Acquire && d.Type == history.OK:
		w.r.granted.Add(1)
		w.held[o.call.Grant] = &hold{key: o.call.Key, token: m.Token}
	case o.call.F == history.Release, d.Error == history.ErrNotHeld:
		delete(w.held, o.call.Grant)
	case o.call.F == history.Close:
		clear(w.held)
	}
	d.Took = time.Since(o.begun)
	o.done <- d
}

// completed fills in what an ok carries.
func (w *Worker) completed(o *Open, op *history.Op, m wire.Message) {
	switch o.call.F {
	case history.Acquire:
		op.Grant = history.Some(o.call.Grant)
		if m.Token != nil {
			op.Token = history.Some(*m.Token)
		}
		w.promise(op, m)
	case history.Renew, history.Check:
		w.promise(op, m)
	case history.Read:
		if m.Value != nil {
			op.Value = number(*m.Value)
		}
	}
}

// promise turns a validity that counts from a mark into times of the history.
func (w *Worker) promise(op *history.Op, m wire.Message) {
	if m.Valid != nil {
		op.Valid = history.Some(max(0, *m.Valid))
	}
	op.Session = m.Session
	if at, ok := w.marks[m.Mark]; ok && m.Mark != 0 {
		op.From = history.Some(at)
	}
}

func outcome(t string) history.Type {
	switch t {
	case wire.OK:
		return history.OK
	case wire.Fail:
		return history.Fail
	}
	return history.Info
}

// retire gives the worker a new number. w.mu is held.
func (w *Worker) retire() {
	w.process += history.Process(len(w.r.workers))
	w.fresh, w.suspended = false, false
	clear(w.held)
}

// Holds gives the grants that the worker has.
func (w *Worker) Holds() []uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grants()
}

func (w *Worker) grants() []uint64 {
	var gs []uint64
	for g, h := range w.held {
		if !h.lost {
			gs = append(gs, g)
		}
	}
	return gs
}

// Lost reports whether the worker was told that a grant is gone.
func (w *Worker) Lost(grant uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.held[grant]
	return h == nil || h.lost
}

// Has reports whether a grant is still to be given back, lost or not.
func (w *Worker) Has(grant uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held[grant] != nil
}

// Suspended reports whether the client says that its connection is in doubt.
func (w *Worker) Suspended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.suspended
}

// Busy reports whether an operation of the worker is open.
func (w *Worker) Busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open != nil
}

// Can reports whether the client has an ability, by its name on the wire.
func (w *Worker) Can(ability string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.can[ability]
}

// Process is the worker's present number in the history.
func (w *Worker) Process() history.Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.process
}

func (w *Worker) target() (nemesis.Target, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A process that has ended keeps its place until its output has ended too.
	if w.conn == nil || !w.fresh || errors.Is(w.conn.cmd.Process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return nemesis.Target{}, false
	}
	return nemesis.Target{Worker: w.index, Process: int64(w.process), Grants: w.grants(), OS: w.conn.cmd.Process}, true
}
