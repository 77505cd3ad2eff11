// Package generator decides what the workers do next: pure and seeded, so that
// one seed and the same answers give the same choices. It starts nothing and
// never looks at a clock.
package generator

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// Streams of random numbers: one for each part, so that a new draw in one does
// not shift another. Worker i uses StreamWorkers + i, and takes its orders from
// StreamOrders + i: the same ones whatever becomes of them and however the locks
// cut them up.
const (
	StreamNemesis  = 1
	StreamScenario = 2
	StreamWorkers  = 1 << 20
	StreamOrders   = 1 << 21
)

// Stream gives the random numbers of one part of a run.
func Stream(seed, part uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, part)) }

// Keys says how the locks cut up the stream of orders: one for all of them, one
// a user, one an order, or a number of keys.
type Keys struct {
	kind string
	n    int
}

// How many users and orders the workload has.
const (
	users  = 10
	orders = 1000
)

// ParseKeys reads coarse, user, order or a number from 1.
func ParseKeys(s string) (Keys, error) {
	switch s {
	case "coarse", "user", "order":
		return Keys{kind: s}, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return Keys{}, fmt.Errorf("keys %q is none of coarse, user, order, nor a number from 1", s)
	}
	return Keys{kind: "number", n: n}, nil
}

func (k Keys) String() string {
	if k.kind == "number" {
		return strconv.Itoa(k.n)
	}
	return k.kind
}

// key is the lock that protects an order.
func (k Keys) key(order int) string {
	switch k.kind {
	case "user":
		return fmt.Sprintf("orders/user-%d", order%users)
	case "order":
		return fmt.Sprintf("orders/%d", 90000+order)
	case "number":
		return fmt.Sprintf("key-%d", order%k.n)
	}
	return "orders"
}

// Config is the workload.
type Config struct {
	Workers    int
	Keys       Keys
	TTL        time.Duration
	Hold       time.Duration // mean time in the section
	Think      time.Duration // mean time between one order and the next
	RetryDelay time.Duration // mean time between two tries for the lock
	Wait       time.Duration // how long one order is tried for before the next is taken
	Writes     int           // at most so many writes in one section; at least one
	Rate       float64       // orders a second over all workers; 0 for as many as go
	LongHolds  float64       // share of the holds that are a good part of the TTL, so that faults meet holders
	Check      bool          // the client can check, so it is asked before the work
	CanWait    bool          // the client waits inside, so that a refused order is given up
}

// What an Action asks for, beside the names of operations.
const (
	// Idle only waits.
	Idle = "idle"
)

// An Action is what a worker does next, after a delay.
type Action struct {
	After time.Duration
	F     string // an operation of package history, or Idle
	Key   string
	Value int64         // write
	Wait  time.Duration // acquire: how long it may wait inside
}

// An Outcome is how the last action ended.
type Outcome struct {
	Type  history.Type
	Error string
	Value int64         // of a read
	Took  time.Duration // including the time waited before it
}

// states of a worker
type state uint8

const (
	idle state = iota
	trying
	acquired
	checked
	writing
	releasing
)

// A Worker generates the actions of one worker.
type Worker struct {
	cfg    Config
	rng    *rand.Rand
	orders *rand.Rand
	state  state
	key    string
	tried  time.Duration // for this order so far
	value  int64         // next to be written
	writes int           // left in this section
	hold   [3]time.Duration
	due    time.Duration // what the rate still demands to wait
}

// New makes the generator of worker i.
func New(seed uint64, i int, cfg Config) *Worker {
	return &Worker{cfg: cfg, rng: Stream(seed, StreamWorkers+uint64(i)), orders: Stream(seed, StreamOrders+uint64(i))}
}

// Holding reports whether the worker believes to hold a lock.
func (w *Worker) Holding() bool { return w.state >= acquired }

// Abort makes it give up what it does: the session is new, or the lock is lost.
func (w *Worker) Abort() { w.state = idle }

// Next gives the action that follows the outcome of the last one. The first
// call's outcome is ignored.
func (w *Worker) Next(o Outcome) Action {
	if o.Type == history.Info {
		w.state = idle
	}
	w.due = max(0, w.due-o.Took)
	switch w.state {
	case trying:
		return w.afterTry(o)
	case acquired:
		if o.Type != history.OK {
			return w.leave(o)
		}
		w.state = checked
		return Action{After: w.hold[0], F: history.Read, Key: w.key}
	case checked:
		if o.Type != history.OK {
			return w.leave(o)
		}
		w.value = o.Value + 1
		w.state = writing
		return w.write(w.hold[1])
	case writing:
		if o.Type != history.OK {
			return w.leave(o)
		}
		if w.writes > 0 {
			return w.write(0)
		}
		w.state = releasing
		return Action{After: w.hold[2], F: history.Release, Key: w.key}
	}
	return w.begin()
}

// begin takes the next order.
func (w *Worker) begin() Action {
	w.state = trying
	w.key = w.cfg.Keys.key(w.orders.IntN(orders))
	w.tried = 0
	after := w.around(w.cfg.Think)
	if w.cfg.Rate > 0 {
		after = max(after, w.due)
		w.due = after + w.around(time.Duration(float64(time.Second)*float64(w.cfg.Workers)/w.cfg.Rate))
	}
	return Action{After: after, F: history.Acquire, Key: w.key, Wait: w.cfg.Wait}
}

// afterTry goes on after an acquire: with the work, with another try, or with
// another order.
func (w *Worker) afterTry(o Outcome) Action {
	if o.Type == history.OK {
		w.drawSection()
		w.state = acquired
		if w.cfg.Check {
			return Action{F: history.Check, Key: w.key}
		}
		return w.Next(Outcome{Type: history.OK})
	}
	delay := w.around(w.cfg.RetryDelay)
	w.tried += o.Took + delay
	if w.cfg.CanWait || w.tried > w.cfg.Wait {
		w.state = idle
		a := w.begin()
		a.After = max(a.After, delay)
		return a
	}
	return Action{After: delay, F: history.Acquire, Key: w.key, Wait: w.cfg.Wait}
}

// drawSection decides how long the section will last and where in it the time
// goes: mostly between the read and the write, where a lost update would show.
func (w *Worker) drawSection() {
	d := w.around(w.cfg.Hold)
	if w.rng.Float64() < w.cfg.LongHolds {
		// Not longer than the TTL: that would be a fault of the workload's own.
		d = time.Duration((0.3 + 0.5*w.rng.Float64()) * float64(w.cfg.TTL))
	}
	w.hold = [3]time.Duration{}
	w.hold[[]int{0, 1, 1, 2}[w.rng.IntN(4)]] = d
	w.writes = 1 + w.rng.IntN(max(1, w.cfg.Writes))
}

func (w *Worker) write(after time.Duration) Action {
	w.writes--
	a := Action{After: after, F: history.Write, Key: w.key, Value: w.value}
	w.value++
	return a
}

// leave goes on after something in the section failed: a lock that the server
// says is gone needs no release.
func (w *Worker) leave(o Outcome) Action {
	if o.Error == history.ErrNotHeld {
		return w.begin()
	}
	w.state = releasing
	return Action{F: history.Release, Key: w.key}
}

// around draws a time between half and one and a half of d.
func (w *Worker) around(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d/2 + time.Duration(w.rng.Int64N(int64(d)+1))
}
