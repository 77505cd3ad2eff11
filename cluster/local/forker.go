package local

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
)

// A forker starts processes from one thread that lives as long as they may,
// because a parent-death signal is sent when the forking thread ends, not the
// process.
type forker struct {
	jobs chan func()
	once sync.Once
	stop chan struct{}
}

var errForkerClosed = errors.New("the cluster is closed")

func newForker() *forker {
	f := &forker{jobs: make(chan func()), stop: make(chan struct{})}
	go func() {
		// Never unlocked: when the goroutine ends, so does the thread, and with
		// it whatever was started and still runs.
		runtime.LockOSThread()
		for {
			select {
			case job := <-f.jobs:
				job()
			case <-f.stop:
				return
			}
		}
	}()
	return f
}

// start starts cmd so that it ends with this process.
func (f *forker) start(cmd *exec.Cmd) error {
	dieWithParent(cmd)
	err := make(chan error, 1)
	select {
	case f.jobs <- func() { err <- cmd.Start() }:
		return <-err
	case <-f.stop:
		return errForkerClosed
	}
}

func (f *forker) close() { f.once.Do(func() { close(f.stop) }) }
