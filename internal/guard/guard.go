// Package guard keeps a crash of lockcheck from looking like a verdict: a Go
// panic exits with 2, which would mean "unknown".
package guard

import (
	"fmt"
	"os"
	"runtime/debug"
)

// Failed is the exit code of a lockcheck that failed itself.
const Failed = 255

// exit is replaced in the test.
var exit = os.Exit

// Wrap gives f for a goroutine: if it panics, the process says so and exits
// with Failed.
func Wrap(f func()) func() {
	return func() {
		defer Recover()
		f()
	}
}

// Recover is to be deferred where a goroutine begins.
func Recover() {
	if p := recover(); p != nil {
		fmt.Fprintf(os.Stderr, "lockcheck failed: %v\n%s", p, debug.Stack())
		exit(Failed)
	}
}
