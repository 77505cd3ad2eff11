package linear

import (
	"fmt"
	"math"
)

// The ends of time. No stamp of a real history comes near them.
const (
	Dawn    = math.MinInt64 // before everything: the deadline of a session
	Forever = math.MaxInt64 // after everything: the end of an indeterminate operation
)

// Kind is what an operation does to the lock.
type Kind uint8

const (
	Acquire Kind = iota + 1
	Release
	Renew
)

func (k Kind) String() string {
	if k < Acquire || k > Renew {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return [...]string{Acquire: "acquire", Release: "release", Renew: "renew"}[k]
}

// Outcome is what is known about an operation afterwards.
type Outcome uint8

const (
	OK     Outcome = iota + 1 // it took effect between its two stamps
	Denied                    // an acquire was told "held", any other operation "not-held"
	Info                      // it may take effect at any time from its call on, or never
)

func (o Outcome) String() string {
	if o < OK || o > Info {
		return fmt.Sprintf("outcome(%d)", uint8(o))
	}
	return [...]string{OK: "ok", Denied: "denied", Info: "info"}[o]
}

// Cause is where an operation comes from when no worker asked for it.
type Cause uint8

const (
	Asked      Cause = iota // the worker invoked it
	Background              // the client's own renewal
	Closed                  // the process ended its session
	Retired                 // the outcome of one of its operations is unknown
	Killed                  // the nemesis killed it
	Crashed                 // its worker died
	Reentry                 // it acquired again what it held
)

// NoGrant is the grant of an acquire that was denied.
const NoGrant = -1

// An Op is one lock operation of one key: 56 bytes, since a history has millions
// of them. Its interval is closed, and equal stamps are concurrent.
type Op struct {
	Call, Return int64  // Return is Forever when the outcome is Info
	Deadline     int64  // of an acquire or renewal: from then on the grant may end by itself
	Token        uint64 // counts only if HasToken: zero is a token
	Process      int64
	Invoked      int32 // index in the history, or -1: of the invoke
	Completed    int32 // ... of the completion
	Grant        int32 // counted from 0 within the key; NoGrant for a denied acquire
	Kind         Kind
	Outcome      Outcome
	Cause        Cause
	HasToken     bool
}

// add is a sum that stops at the ends of time.
func add(t, d int64) int64 {
	switch {
	case t == Dawn || t == Forever:
		return t
	case d > 0 && t > Forever-d:
		return Forever
	case d < 0 && t < Dawn-d:
		return Dawn
	}
	return t + d
}
