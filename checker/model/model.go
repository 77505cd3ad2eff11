// Package model judges histories that others recorded against the sequential
// models which their own tools know: mutexes of several kinds, and registers.
//
// It reads a history as those tools do. The order of the events is that of the
// file. An operation that failed did not happen; one whose outcome is unknown, or
// that is still open at the end, may take effect at any time from its invoke on,
// or never. Each key is a lock or a register of its own. What other processes
// than workers did is no part of the history.
//
// It judges nothing but the order of operations: leases, sections and the fenced
// store are the business of package checker, and lease-lock is decided there.
package model

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/history"
)

// The models, by the names that the command line knows.
const (
	LeaseLock            = "lease-lock"             // ours; decided by package checker
	Mutex                = "mutex"                  // held or free; anybody may release it
	OwnerMutex           = "owner-mutex"            // only who holds it may release it
	ReentrantMutex       = "reentrant-mutex"        // who holds it may acquire it again, up to a limit
	FencedMutex          = "fenced-mutex"           // an owner-mutex whose fences grow
	ReentrantFencedMutex = "reentrant-fenced-mutex" // the same, re-entrant: a re-entry carries the same fence
	CASRegister          = "cas-register"           // read, write, compare-and-set
	Register             = "register"               // read, write
)

// Names lists the models.
var Names = []string{LeaseLock, Mutex, OwnerMutex, ReentrantMutex, FencedMutex, ReentrantFencedMutex, CASRegister, Register}

// DefaultReentry is how often a holder may hold a re-entrant lock unless Options
// say otherwise: the limit of the published tests of Hazelcast.
const DefaultReentry = 2

// Guess gives the model that an event of a foreign history speaks of, or "" if
// it does not tell. An event with what only our own locks have is ours.
func Guess(o *history.Op) string {
	if !o.Process.Worker() {
		return ""
	}
	switch o.F {
	case "acquire", "release":
		if o.TTL.Set || o.Grant.Set || o.Valid.Set || o.Session {
			return LeaseLock
		}
		return Mutex
	case "renew":
		return LeaseLock
	case "cas", "read", "write":
		return CASRegister
	}
	return ""
}

// kind is what an operation does.
type kind uint8

const (
	acquire kind = iota + 1
	release
	expire // a lease that had ended: the second reading of a release that found it gone
	read
	write
	cas
)

// input is an operation as the models see it.
type input struct {
	kind  kind
	owner int32 // who, where the model asks; 0 is nobody
	value int32 // read or written; of a cas, what is expected
	to    int32 // of a cas
	fence int64 // of an acquire; 0 is none
}

// state is what the lock or register is; each model uses what it needs.
type state struct {
	owner int32 // 0 is free
	count int32 // how often it is held
	value int32
	fence int64 // of the present hold; 0 is none
	top   int64 // the highest fence seen
}

// step carries out one operation, or refuses.
func step(model string, limit int32, s state, in *input) (state, bool) {
	switch in.kind {
	case read:
		return s, s.value == in.value
	case write:
		s.value = in.value
		return s, true
	case cas:
		if s.value != in.value {
			return s, false
		}
		s.value = in.to
		return s, true
	case expire:
		if s.owner != in.owner {
			return s, false
		}
		s.owner, s.count, s.fence = 0, 0, 0
		return s, true
	case release:
		if s.owner == 0 || model != Mutex && s.owner != in.owner {
			return s, false
		}
		if s.count--; s.count == 0 {
			s.owner, s.fence = 0, 0
		}
		return s, true
	}
	return stepAcquire(model, limit, s, in)
}

// tryStep is step for an operation of a search for orders: one of unknown outcome
// that is refused did not happen.
func tryStep(model string, limit int32, s state, o *op) (state, bool) {
	next, ok := step(model, limit, s, &o.in)
	if !ok && o.ret == never {
		return s, true
	}
	return next, ok
}

func stepAcquire(model string, limit int32, s state, in *input) (state, bool) {
	again := s.owner == in.owner && (model == ReentrantMutex || model == ReentrantFencedMutex) && s.count < limit
	if s.owner != 0 && !again {
		return s, false
	}
	if model == FencedMutex || model == ReentrantFencedMutex {
		switch {
		case in.fence == 0: // the lock was not told of a fence, or it is unknown
		case s.fence != 0: // a re-entry
			if in.fence != s.fence {
				return s, false
			}
		case in.fence <= s.top:
			return s, false
		default:
			s.fence, s.top = in.fence, in.fence
		}
	}
	s.owner = in.owner
	s.count++
	return s, true
}

// isLock reports whether the model is one of a lock.
func isLock(model string) bool { return strings.HasSuffix(model, "mutex") }

// named reports whether the model asks who holds.
func named(model string) bool { return isLock(model) && model != Mutex }

// An op is one operation of one key. Its stamps are places in the history.
type op struct {
	call, ret int // ret is never for an operation whose outcome is unknown
	in        input
	process   history.Process
	invoked   int // index in the history, or -1
	completed int // the same
}

const never = math.MaxInt

// describe names the operation, for people.
func (b *Judge) describe(o *op) string {
	what := map[kind]string{acquire: "acquire", release: "release", expire: "the end of its lease", read: "read of ", write: "write of ", cas: "compare-and-set of "}[o.in.kind]
	switch o.in.kind {
	case read, write:
		what += b.valueName(o.in.value)
	case cas:
		what += b.valueName(o.in.value) + " to " + b.valueName(o.in.to)
	case acquire:
		if o.in.fence != 0 && strings.Contains(b.model, "fenced") {
			what += fmt.Sprintf(" with fence %d", o.in.fence)
		}
	}
	return fmt.Sprintf("process %d's %s", o.process, what)
}

// describeState says what the lock or register is.
func (b *Judge) describeState(s state) string {
	if !isLock(b.model) {
		return "it is " + b.valueName(s.value)
	}
	text := "it is free"
	if s.owner != 0 {
		text = "it is held by " + b.owners.names[s.owner]
		if s.count > 1 {
			text += fmt.Sprintf(", %d times", s.count)
		}
	}
	if s.top != 0 {
		text += fmt.Sprintf(", the highest fence is %d", s.top)
	}
	return text
}

func (b *Judge) valueName(v int32) string {
	if v == 0 {
		return "nothing"
	}
	return b.values.names[v]
}

// texts numbers strings from 1.
type texts struct {
	ids   map[string]int32
	names []string
}

func newTexts() texts { return texts{map[string]int32{}, []string{""}} }

func (t *texts) id(s string) int32 {
	n, ok := t.ids[s]
	if !ok {
		n = int32(len(t.names))
		t.ids[s] = n
		t.names = append(t.names, s)
	}
	return n
}

// Known reports whether there is such a model.
func Known(name string) bool { return slices.Contains(Names, name) }
