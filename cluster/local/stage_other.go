//go:build !linux

package local

import (
	"context"
	"errors"
	"time"

	"github.com/lockcheck/lockcheck/cluster"
)

const exitFailed = 255 // Jepsen's code for "the tool itself failed"

var started = time.Now()

func sinceStarted() time.Duration { return time.Since(started) }

// Stage has nothing to do where there are no namespaces.
func Stage() (code int, done bool) { return 0, false }

// Inside is false where there are no namespaces.
func Inside() bool { return false }

// Enter always fails where there are no namespaces.
func Enter() (code int, err error) { return exitFailed, noLinux() }

// Probe always fails where there are no namespaces.
func Probe(context.Context) error { return noLinux() }

// Lab always fails where there are no namespaces.
func Lab(context.Context, cluster.Spec) (*Cluster, error) { return nil, noLinux() }

func noLinux() *Unavailable {
	return &Unavailable{
		Step:   "create namespaces",
		Err:    errors.ErrUnsupported,
		Remedy: "the lab needs Linux; use --network loopback",
	}
}
