package local

import (
	"context"
	"errors"
	"fmt"
)

// Networks that Choose knows, as the command line spells them.
const (
	NetworkAuto     = "auto"
	NetworkLab      = "lab"
	NetworkLoopback = "loopback"
)

var (
	// ErrNoNamespaces is returned by what the loopback network cannot do.
	ErrNoNamespaces = errors.New("local: needs the lab's namespaces, and this cluster is on loopback")
	// ErrNoRules is returned where this process may not drop a container's packets.
	ErrNoRules = errors.New("local: packets of containers can be dropped by root on the engine's own machine only")
	// ErrOutside is returned when the lab is asked for outside its namespaces.
	ErrOutside = errors.New("local: not inside the lab's namespaces; call Enter first")
	// ErrNoStage is returned by a program that would start itself for ever.
	ErrNoStage = errors.New("local: main must call Stage before anything else")
)

// Unavailable says why this machine cannot run the lab, and what would mend it.
type Unavailable struct {
	Step   string // what was tried, e.g. "create namespaces"
	Err    error  // what the kernel said
	Remedy string // one command or setting, in words
}

func (e *Unavailable) Error() string {
	return fmt.Sprintf("lab not available: %s: %v (%s)", e.Step, e.Err, e.Remedy)
}

func (e *Unavailable) Unwrap() error { return e.Err }

// Choose turns "auto", "lab" or "loopback" into one of the last two. With
// "auto", a machine that cannot run the lab gets loopback together with the
// reason, which is to be printed and recorded; with "lab" the reason is the
// error.
func Choose(ctx context.Context, want string) (network string, reason *Unavailable, err error) {
	switch want {
	case NetworkLoopback:
		return NetworkLoopback, nil, nil
	case NetworkLab, NetworkAuto:
	default:
		return "", nil, fmt.Errorf("choose network %q: want auto, lab or loopback", want)
	}
	if Inside() {
		return NetworkLab, nil, nil
	}
	err = Probe(ctx)
	if err == nil {
		return NetworkLab, nil, nil
	}
	if want == NetworkAuto && errors.As(err, &reason) {
		return NetworkLoopback, reason, nil
	}
	return "", nil, err
}
