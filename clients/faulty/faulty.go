// Package faulty holds locks that are broken on purpose. Each is an honest client
// with one thing changed, and runs on the real servers, to prove that lockcheck
// finds what is wrong; `lockcheck verify` plays each beside its honest twin. It
// refuses to be anybody's default.
package faulty

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/clients"
)

// ClockOffsets is the option that tells each worker by how much its clock is
// wrong, e.g. "10s,0s" for workers 0 and 1. It stands in for a clock fault.
const ClockOffsets = "clock-offsets"

// offset is how wrong this worker's clock is.
func offset(cfg clients.Config) (time.Duration, error) {
	all := cfg.Options[ClockOffsets]
	if all == "" {
		return 0, nil
	}
	each := strings.Split(all, ",")
	if cfg.Worker >= len(each) {
		return 0, nil
	}
	d, err := time.ParseDuration(each[cfg.Worker])
	if err != nil {
		return 0, fmt.Errorf("option %s of worker %d: %w", ClockOffsets, cfg.Worker, err)
	}
	return d, nil
}

// deaf is an observer that hears of everything but a loss.
type deaf struct{ clients.Observer }

func (d deaf) Tell(e clients.Event) {
	if e.F != clients.Lost {
		d.Observer.Tell(e)
	}
}
