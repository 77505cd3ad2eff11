//go:build !linux || !amd64

package skew

import (
	"os/exec"
	"time"
)

// A Control moves the clock of processes, elsewhere.
type Control struct{}

// NewControl is an ErrUnsupported here.
func NewControl() (*Control, error) { return nil, ErrUnsupported }

// Launch is an ErrUnsupported here; the command is not started.
func Launch(*exec.Cmd, *Control, Options) error { return ErrUnsupported }

// Probe is an ErrUnsupported here.
func Probe() error { return ErrUnsupported }

// Set is an ErrUnsupported here.
func (*Control) Set(Clock, time.Duration) error { return ErrUnsupported }

// SetDrift is an ErrUnsupported here.
func (*Control) SetDrift(Clock, float64) error { return ErrUnsupported }

// Reset is an ErrUnsupported here.
func (*Control) Reset() error { return ErrUnsupported }

// Force does nothing here.
func (*Control) Force() {}

// Offset is an ErrUnsupported here.
func (*Control) Offset(Clock) (time.Duration, error) { return 0, ErrUnsupported }

// Attached is an ErrUnsupported here.
func (*Control) Attached(int) (bool, error) { return false, ErrUnsupported }

// ReadBack is an ErrUnsupported here.
func (*Control) ReadBack(int) (Reading, error) { return Reading{}, ErrUnsupported }

// Witness is an ErrUnsupported here.
func (*Control) Witness(Clock) (time.Duration, error) { return 0, ErrUnsupported }

// Close does nothing here.
func (*Control) Close() error { return nil }
