package local

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
)

// A forker starts processes from one thread that lives as long as this process,
// because a parent-death signal is sent when the forking thread ends.
type forker struct {
	jobs chan func()
	stop chan struct{}

	mu      sync.Mutex
	closed  bool
	started []*exec.Cmd
}

var errClosed = errors.New("the cluster is closed")

func newForker() *forker {
	f := &forker{jobs: make(chan func()), stop: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		for {
			select {
			case job := <-f.jobs:
				job()
			case <-f.stop:
				// Everything is killed already. Still locked, so that no other
				// goroutine inherits this thread and with it a child's fate.
				return
			}
		}
	}()
	return f
}

// start starts cmd, in the way that it is told, so that it ends with this process
// or with the forker.
func (f *forker) start(cmd *exec.Cmd, how starter) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errClosed
	}
	dieWithParent(cmd)
	err := make(chan error, 1)
	f.jobs <- func() { err <- how(cmd) }
	if err := <-err; err != nil {
		return err
	}
	f.started = append(f.started, cmd)
	return nil
}

// close kills what still runs, together with what that has started itself. It
// does not count on the end of the thread: Go keeps the main thread when a
// goroutine that was locked to it returns.
func (f *forker) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	for _, cmd := range f.started {
		killGroup(cmd)
	}
	close(f.stop)
}
