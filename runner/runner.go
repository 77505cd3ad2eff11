// Package runner drives the workers and the nemesis. It is the only place with
// goroutines that drive things; it alone stamps time and it alone appends to
// the history: an invocation is stamped before the request leaves, a completion
// after the answer arrived, so that a recorded interval always contains the
// real one, whatever the clock of the worker says.
//
// It judges nothing and starts no servers.
package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/nemesis"
)

// A Place is where workers run: what the runner needs of a cluster.
type Place interface {
	Endpoints(worker int) []string
	StoreURL(worker int) string
	StartWorker(worker int, cmd *exec.Cmd) error
}

// A Settler is a Place that looks at a worker which has just begun a session, and
// may want it to be ended and started again: ErrAgain. Any other error is a
// mistake of the set-up.
type Settler interface {
	Settled(worker int) error
}

// ErrAgain asks for a worker to be started once more.
var ErrAgain = errors.New("start the worker again")

// Config is what a Runner is made from.
type Config struct {
	Place       Place
	Workers     int
	Command     func(worker int) *exec.Cmd // makes the command of a worker process, not started
	Setup       wire.Setup                 // for every session; what differs by worker is filled in
	OpTimeout   time.Duration              // after which an operation is info; acquires may wait on top
	OnSuspended string                     // Continue or Pause
	System      nemesis.System             // what faults act on, besides the workers
	Recorder    *history.Recorder
	Log         *slog.Logger
	Stderr      func(worker int) io.Writer // where a worker's standard error goes
	Over        func(context.Context)      // called when a workload is over, before anybody leaves; may be nil
}

// What a worker does with its work while its client says that the connection is
// in doubt.
const (
	Continue = "continue"
	Pause    = "pause"
)

// sessionWithin bounds how long a worker may take to begin a session; a worker
// that does not answer in that time is replaced.
const sessionWithin = 10 * time.Second

// firstSessionWithin is for the first session of a process, in which an
// interpreter or a virtual machine has yet to start and to load its libraries.
const firstSessionWithin = 30 * time.Second

// A Runner drives the workers of one run.
type Runner struct {
	cfg     Config
	workers []*Worker
	grants  atomic.Uint64
	faults  atomic.Int64
	ops     atomic.Int64
	infos   atomic.Int64
	granted atomic.Int64

	mu     sync.Mutex
	active map[int]string // faults in force, by number
	left   []error        // heals that failed
}

// New makes a Runner; nothing is started yet.
func New(cfg Config) *Runner {
	r := &Runner{cfg: cfg, active: map[int]string{}}
	for i := range cfg.Workers {
		r.workers = append(r.workers, newWorker(r, i))
	}
	return r
}

// Worker gives worker i.
func (r *Runner) Worker(i int) *Worker { return r.workers[i] }

// Count is how many workers there are.
func (r *Runner) Count() int { return len(r.workers) }

// Start starts every worker and begins a session in each. It fails if one of
// them cannot: what does not work at the start is a mistake of the set-up, not
// a fault.
func (r *Runner) Start(ctx context.Context) error {
	errs := make([]error, len(r.workers))
	var wg sync.WaitGroup
	for i, w := range r.workers {
		wg.Go(guard.Wrap(func() { errs[i] = w.Session(ctx) }))
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close ends the worker processes and waits for them.
func (r *Runner) Close() {
	for _, w := range r.workers {
		w.shut()
	}
}

// Status is what a live line shows.
type Status struct {
	Acquires int64    // ok so far
	Ops      int64    // completed so far
	Info     int64    // of them with an unknown outcome
	Faults   []string // in force
}

// Status gives the present counts.
func (r *Runner) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Acquires: r.granted.Load(), Ops: r.ops.Load(), Info: r.infos.Load()}
	for _, f := range r.active {
		s.Faults = append(s.Faults, f)
	}
	return s
}

// Unhealed gives the heals that failed: what they say is still in force.
func (r *Runner) Unhealed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.left...)
}

// Workers implements nemesis.System.
func (r *Runner) Workers() []nemesis.Target {
	var ts []nemesis.Target
	for _, w := range r.workers {
		if t, ok := w.target(); ok {
			ts = append(ts, t)
		}
	}
	return ts
}

// RecordStore files what the fenced store did; it is fencedstore's record.
func (r *Runner) RecordStore(e fencedstore.Entry) {
	o := history.Op{Process: history.Store, Type: history.OK, F: e.Op, Key: e.Key, Value: number(e.Value), Seq: history.Some(e.Seq)}
	if e.Grant != 0 {
		o.Grant = history.Some(e.Grant)
	}
	if e.Token != nil {
		o.Token = history.Some(*e.Token)
	}
	if e.Refused {
		o.Type, o.Error = history.Fail, history.ErrFenced
	}
	r.cfg.Recorder.Append(o)
}

func number(n int64) json.RawMessage { return fmt.Appendf(nil, "%d", n) }
