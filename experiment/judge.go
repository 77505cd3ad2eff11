package experiment

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

// A liveJudge judges a history while it grows, in a goroutine of its own so
// that the recorder never waits for it. A checker that crashes costs its own
// verdict and nothing else.
type liveJudge struct {
	judge *checker.Judge
	found atomic.Int64
	onBad func()

	mu    sync.Mutex
	queue []history.Op
	wake  chan struct{}
	done  chan struct{}
	crash error
}

func newLiveJudge(h history.Header, onBad func()) *liveJudge {
	l := &liveJudge{judge: checker.New(h), onBad: onBad, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go l.run()
	return l
}

// add is the recorder's sink.
func (l *liveJudge) add(o *history.Op) {
	l.mu.Lock()
	l.queue = append(l.queue, *o)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *liveJudge) run() {
	defer close(l.done)
	var batch []history.Op
	for range l.wake {
		l.mu.Lock()
		batch, l.queue = l.queue, batch[:0]
		l.mu.Unlock()
		if l.crash == nil {
			l.crash = l.take(batch)
		}
		clear(batch) // values must not be kept alive by the spare buffer
	}
}

func (l *liveJudge) take(batch []history.Op) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the checker crashed: %v\n%s", p, debug.Stack())
		}
	}()
	for i := range batch {
		l.judge.Add(&batch[i])
	}
	if n := int64(l.judge.Found()); n > l.found.Load() {
		l.found.Store(n)
		if l.onBad != nil {
			l.onBad()
		}
	}
	return nil
}

// finish waits for what was recorded to be judged and gives the judgement. The
// recorder must be closed.
func (l *liveJudge) finish(ctx context.Context) (res checker.Results, err error) {
	close(l.wake)
	<-l.done
	if l.crash == nil {
		l.crash = l.take(l.queue)
	}
	if l.crash != nil {
		return checker.Results{}, l.crash
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the checker crashed: %v\n%s", p, debug.Stack())
		}
	}()
	return l.judge.Finish(ctx), nil
}
