// Package wire is the protocol between the runner and its workers: JSON lines
// on the worker's standard input and output, written down in docs/protocol.md.
// A worker never tells the time; the runner stamps what it sends and receives.
package wire

import "github.com/lockcheck/lockcheck/clients"

// Version of the protocol, told in init.
const Version = 1

// Commands that the runner sends.
const (
	Init    = "init"
	Acquire = "acquire"
	Renew   = "renew"
	Check   = "check"
	Read    = "read"
	Write   = "write"
	Release = "release"
	Close   = "close"
	Ack     = "ack" // the answer to a mark
)

// Outcomes of a command.
const (
	OK   = "ok"   // it happened
	Fail = "fail" // it did not happen and never will
	Info = "info" // nobody knows
)

// MarkEvent asks the runner to stamp "now"; the other events are those of clients.Event.
const MarkEvent = "mark"

// Abilities that a worker may declare in its answer to init.
const (
	CanRenew = "renew"
	CanCheck = "check"
)

// A Command is one line from the runner to the worker. Durations are in
// nanoseconds.
type Command struct {
	ID      uint64  `json:"id,omitempty"` // to be repeated in the answer; none for ack
	Op      string  `json:"op"`
	Key     string  `json:"key,omitempty"`
	Grant   uint64  `json:"grant,omitempty"`   // acquire: the number that the grant will have
	Token   *uint64 `json:"token,omitempty"`   // read, write: to be sent to the store
	Value   *int64  `json:"value,omitempty"`   // write
	TTL     int64   `json:"ttl,omitempty"`     // acquire
	Wait    int64   `json:"wait,omitempty"`    // acquire: how long it may wait inside
	Timeout int64   `json:"timeout,omitempty"` // after which the runner counts the operation as info
	Mark    uint64  `json:"mark,omitempty"`    // ack
	Init    *Setup  `json:"init,omitempty"`
}

// Setup begins a session: the worker drops whatever it had and connects anew.
type Setup struct {
	Protocol  int      `json:"protocol"`
	Worker    int      `json:"worker"`
	Process   int64    `json:"process"` // the number of this session in the history
	Backend   string   `json:"backend"`
	Client    string   `json:"client"`
	Endpoints []string `json:"endpoints"`
	Master    string   `json:"master,omitempty"` // redis-sentinel: the master's name
	// Routes say where this worker reaches the servers that other servers tell of,
	// by the addresses that they tell.
	Routes map[string]string `json:"routes,omitempty"`
	// Prefix comes before the name of every lock, on the servers only.
	Prefix string `json:"prefix,omitempty"`
	// Access is what the servers ask of a client. It is secret.
	Access      *clients.Access `json:"access,omitempty"`
	Store       string          `json:"store"` // URL of the fenced store
	TTL         int64           `json:"ttl"`
	RetryDelay  int64           `json:"retry_delay"`
	NodeTimeout int64           `json:"node_timeout,omitempty"`
	Renew       bool            `json:"renew"`
	Seed        uint64          `json:"seed"`
	// Options are what a single client knows and the others leave alone.
	Options map[string]string `json:"options,omitempty"`
}

// A Message is one line from the worker to the runner: the answer to a command
// (with its id), an event (with event), or a line for the log.
type Message struct {
	ID      uint64   `json:"id,omitempty"`
	Type    string   `json:"type,omitempty"` // ok, fail or info
	Error   string   `json:"error,omitempty"`
	Token   *uint64  `json:"token,omitempty"`
	Valid   *int64   `json:"valid,omitempty"` // without it, and without session, the lock never expires
	Session bool     `json:"session,omitempty"`
	Mark    uint64   `json:"mark,omitempty"` // the mark that valid counts from; the number of a mark event
	Value   *int64   `json:"value,omitempty"`
	Event   string   `json:"event,omitempty"` // mark, renewed, renew-failed, suspended, lost, connected
	Key     string   `json:"key,omitempty"`
	Grant   uint64   `json:"grant,omitempty"`
	Can     []string `json:"can,omitempty"` // answer to init: renew, check
	Log     string   `json:"log,omitempty"`
}
