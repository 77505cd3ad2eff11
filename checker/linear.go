package checker

import (
	"context"

	"github.com/lockcheck/lockcheck/history"
)

// linearity follows the lock operations for the linearizability decision.
type linearity struct{}

func (l *linearity) start(history.Header)           {}
func (l *linearity) add(*history.Op)                {}
func (l *linearity) finish(context.Context, *Judge) {}
