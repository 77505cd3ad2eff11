// Package history records what clients, the nemesis and the fenced store did,
// in the order in which the runner saw it. Times are monotonic offsets from the
// start of the run, never wall clock, so a clock fault cannot reorder them.
//
// It judges nothing. It refuses only what has no meaning: a completion without
// an invocation, a process used again after its end, time that runs backwards.
package history

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Type says what an event tells about its operation.
type Type uint8

const (
	Invoke Type = iota + 1 // the request is about to leave
	OK                     // it happened, between the two stamps
	Fail                   // it did not happen and never will
	Info                   // it may have happened, may still happen, or may never happen
)

var typeNames = [...]string{Invoke: "invoke", OK: "ok", Fail: "fail", Info: "info"}

func (t Type) String() string {
	if int(t) < len(typeNames) && t > 0 {
		return typeNames[t]
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// MarshalText and UnmarshalText make a Type a word in JSON.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText accepts invoke, ok, fail and info.
func (t *Type) UnmarshalText(b []byte) error {
	for i, n := range typeNames {
		if n != "" && n == string(b) {
			*t = Type(i)
			return nil
		}
	}
	return fmt.Errorf("type %q is none of invoke, ok, fail, info", b)
}

// A Process is who did it: a worker's number, the nemesis or the fenced store.
type Process int64

const (
	Nemesis Process = -1 // faults
	Store   Process = -2 // what the fenced store applied or refused, in its own order
)

// Worker reports whether p is a worker process rather than the nemesis or the store.
func (p Process) Worker() bool { return p >= 0 }

func (p Process) String() string {
	switch p {
	case Nemesis:
		return "nemesis"
	case Store:
		return "store"
	}
	return strconv.FormatInt(int64(p), 10)
}

// MarshalJSON writes a number, "nemesis" or "store".
func (p Process) MarshalJSON() ([]byte, error) {
	if p.Worker() {
		return strconv.AppendInt(nil, int64(p), 10), nil
	}
	return strconv.AppendQuote(nil, p.String()), nil
}

// UnmarshalJSON reads a number, "nemesis" or "store".
func (p *Process) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case `"nemesis"`:
		*p = Nemesis
		return nil
	case `"store"`:
		*p = Store
		return nil
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf(`process %s is neither a number from 0 nor "nemesis" nor "store"`, b)
	}
	*p = Process(n)
	return nil
}

// The operations (f) that the checkers know. Others are kept and passed over.
const (
	Acquire = "acquire"
	Renew   = "renew"
	Check   = "check"
	Read    = "read"
	Write   = "write"
	Release = "release"
	Close   = "close"

	// Single info events of a worker: they neither open an operation nor end
	// the process.
	Mark        = "mark"         // the worker is about to send what a lease will count from
	Renewed     = "renewed"      // a background renewal succeeded
	RenewFailed = "renew-failed" // a background renewal failed
	Suspended   = "suspended"    // the client's listener: the connection is in doubt
	Lost        = "lost"         // the lock or its session is gone
	Connected   = "connected"    // the client's listener: connected (again)
)

// Single reports whether f is an event that stands alone.
func Single(f string) bool {
	switch f {
	case Mark, Renewed, RenewFailed, Suspended, Lost, Connected:
		return true
	}
	return false
}

// The errors that prove something; see design of the verdicts in docs/history.md.
const (
	ErrHeld     = "held"      // acquire: the server said that somebody holds it
	ErrNotHeld  = "not-held"  // renew, release, check: the server said that this grant does not
	ErrNoQuorum = "no-quorum" // a Redlock round that the client abandoned
	ErrAhead    = "ahead"     // acquire: the client left a queue in which somebody stood ahead of it
	ErrFenced   = "fenced"    // the store refused the token
	// ErrCrashed begins the error of an operation whose worker died: its section
	// ended with the last thing that was heard from it.
	ErrCrashed = "worker crashed"
)

// Opt is a value that may be absent: a token of zero is not the same as none.
type Opt[T any] struct {
	V   T
	Set bool
}

// Some is a value that is there.
func Some[T any](v T) Opt[T] { return Opt[T]{v, true} }

// IsZero makes omitzero leave an absent value out.
func (o Opt[T]) IsZero() bool { return !o.Set }

// MarshalJSON writes the value.
func (o Opt[T]) MarshalJSON() ([]byte, error) { return json.Marshal(o.V) }

// UnmarshalJSON reads the value; null counts as absent.
func (o *Opt[T]) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*o = Opt[T]{}
		return nil
	}
	o.Set = true
	return json.Unmarshal(b, &o.V)
}

// Or gives the value, or d when it is absent.
func (o Opt[T]) Or(d T) T {
	if o.Set {
		return o.V
	}
	return d
}

// An Op is one event. Times and durations are nanoseconds.
type Op struct {
	Index   int                        // its place in the history
	Time    int64                      // since the start of the run
	Process Process                    // who
	Type    Type                       // invoke, ok, fail or info
	F       string                     // what: acquire, write, ... or a fault's name
	Key     string                     // of the lock and of the register that it protects
	Grant   Opt[uint64]                // which grant of the lock; unique in the run
	Token   Opt[uint64]                // the fencing token, where the lock gives one
	TTL     Opt[int64]                 // asked for by an acquire
	Valid   Opt[int64]                 // length of the lease that is promised, counted from From
	From    Opt[int64]                 // time of the mark that Valid counts from; else the invoke
	Session bool                       // held while a session lives that may end unannounced
	Value   json.RawMessage            // of a read or write; what a fault did
	Seq     Opt[uint64]                // the store's own order
	Error   string                     // why it failed, or why nobody knows
	Extra   map[string]json.RawMessage // fields that this version does not know, kept as they were
}

// Int gives the value of a read or write as an integer.
func (o *Op) Int() (int64, bool) {
	n, err := strconv.ParseInt(string(o.Value), 10, 64)
	return n, err == nil
}

// Phases of a fault.
const (
	Asked     = "asked"      // about to be injected
	Done      = "done"       // in force, with evidence
	HealAsked = "heal-asked" // about to be healed
	Healed    = "healed"     // no longer in force
	Skipped   = "skipped"    // not injected, or without evidence: gives no exposure
)

// A Fault is the value of a nemesis event.
type Fault struct {
	Fault    int               `json:"fault"`              // number that the events of one fault share
	Phase    string            `json:"phase,omitempty"`    // asked, done, heal-asked, healed or skipped
	Targets  []json.RawMessage `json:"targets,omitempty"`  // process numbers or node names
	Grants   []uint64          `json:"grants,omitempty"`   // that the targets held
	Evidence map[string]any    `json:"evidence,omitempty"` // read back by another route than the injection
	Reason   string            `json:"reason,omitempty"`   // why it was skipped
}

// Processes gives the targets that are worker processes.
func (f *Fault) Processes() []Process {
	var ps []Process
	for _, t := range f.Targets {
		if n, err := strconv.ParseInt(string(t), 10, 64); err == nil && n >= 0 {
			ps = append(ps, Process(n))
		}
	}
	return ps
}

// FaultOf reads the value of a nemesis event. A bare list or number, as other
// tools write it, is taken as the targets. The second result is false when the
// value says nothing about targets or phases.
func FaultOf(o *Op) (Fault, bool) {
	var f Fault
	if len(o.Value) == 0 {
		return f, false
	}
	switch o.Value[0] {
	case '{':
		if json.Unmarshal(o.Value, &f) != nil {
			return Fault{}, false
		}
		return f, true
	case '[':
		return f, json.Unmarshal(o.Value, &f.Targets) == nil
	default:
		f.Targets = []json.RawMessage{o.Value}
		return f, true
	}
}

// A Header is the first line of a history file. Everything in it is optional.
type Header struct {
	Version   int             `json:"lockcheck"`
	Require   []string        `json:"require,omitempty"`   // properties that the verdict is made of
	TTL       int64           `json:"ttl,omitempty"`       // ns, where the acquires do not say
	Reentrant bool            `json:"reentrant,omitempty"` // a process may acquire again what it holds
	Params    json.RawMessage `json:"params,omitempty"`    // of the run, for people
	Order     string          `json:"order,omitempty"`     // "file": times are advisory, the order of the lines counts
}

// OrderOfFile is the Order of a history whose times are advisory, such as one
// that was converted from what another tool recorded.
const OrderOfFile = "file"

// Workers is how many workers there were, as the parameters have it; 0 if they do
// not tell.
func (h *Header) Workers() int {
	var p struct {
		Workers int `json:"workers"`
	}
	if json.Unmarshal(h.Params, &p) != nil { // parameters of another tool
		return 0
	}
	return max(p.Workers, 0)
}

func (h *Header) fileOrder() bool { return h.Order == OrderOfFile }

// Version of the event format.
const Version = 1
