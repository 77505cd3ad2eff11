package history

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// flushEvery bounds what a killed lockcheck can lose of its history.
const flushEvery = 10 * time.Millisecond

// A Recorder stamps events and appends them to a history. It is the only source
// of times in a run: stamps are monotonic and strictly increase. It may be used
// from several goroutines.
type Recorder struct {
	start time.Time
	sinks []func(*Op)

	mu   sync.Mutex
	last int64
	next int
	buf  []byte
	over bool

	writing sync.Mutex // held while a buffer is on its way to w, so that lines keep their order
	spare   []byte
	w       io.Writer
	err     error

	stop chan struct{}
	done chan struct{}
}

// NewRecorder writes the header and then events to w as they come, at the
// latest ten milliseconds after they happened. Each sink is called with each
// event, in order, while the recorder is locked: it must be quick and must not
// record.
func NewRecorder(w io.Writer, h Header, start time.Time, sinks ...func(*Op)) (*Recorder, error) {
	h.Version = Version
	line, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("history header: %w", err)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("write history: %w", err)
	}
	r := &Recorder{start: start, sinks: sinks, last: -1, w: w, stop: make(chan struct{}), done: make(chan struct{})}
	go r.flushLoop()
	return r, nil
}

// Append stamps o, numbers it and records it. It gives the stamp. What comes
// after Close is no part of the history.
func (r *Recorder) Append(o Op) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.append(&o)
}

func (r *Recorder) append(o *Op) int64 {
	if r.over {
		return r.last
	}
	o.Time = max(time.Since(r.start).Nanoseconds(), r.last+1)
	r.last = o.Time
	o.Index = r.next
	r.next++
	r.buf = append(AppendJSON(r.buf, o), '\n')
	for _, sink := range r.sinks {
		sink(o)
	}
	return o.Time
}

// Len is how many events there are so far.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// Flush hands everything recorded so far to the writer. It gives the first
// error that writing met, now or earlier.
func (r *Recorder) Flush() error {
	r.writing.Lock()
	defer r.writing.Unlock()
	if r.err != nil {
		return r.err
	}
	r.mu.Lock()
	out := r.buf
	r.buf = r.spare[:0]
	r.mu.Unlock()
	if len(out) > 0 {
		if _, err := r.w.Write(out); err != nil {
			r.err = fmt.Errorf("write history: %w", err)
		}
	}
	r.spare = out
	return r.err
}

// Err gives the error that keeps the history from being written, if any.
func (r *Recorder) Err() error {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.err
}

func (r *Recorder) flushLoop() {
	defer close(r.done)
	t := time.NewTicker(flushEvery)
	defer t.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-t.C:
			if r.Flush() != nil {
				return
			}
		}
	}
}

// Close flushes and ends the recorder. It does not close the writer.
func (r *Recorder) Close() error {
	select {
	case <-r.stop:
	default:
		close(r.stop)
	}
	<-r.done
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	return r.Flush()
}
