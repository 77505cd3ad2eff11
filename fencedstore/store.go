// Package fencedstore is the protected resource: a register per key that a
// fencing token can guard. It is served over HTTP so that a worker in any
// language can write to it, and it keeps a total order of its own of what it
// applied and what it refused.
//
// It knows nothing of locks: all it sees are keys, values and tokens.
package fencedstore

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/lockcheck/lockcheck/clients/wire"
)

// A Policy says which accesses are refused.
type Policy string

const (
	None      Policy = "none"      // nothing is refused
	Monotonic Policy = "monotonic" // any access raises the fence to its token; a lower token is refused
	Strict    Policy = "strict"    // the article's: writes only, and a lower or equal token is refused
)

// Policies lists them.
var Policies = []Policy{None, Monotonic, Strict}

// ParsePolicy checks a policy's name.
func ParsePolicy(s string) (Policy, error) {
	for _, p := range Policies {
		if string(p) == s {
			return p, nil
		}
	}
	return "", fmt.Errorf("store %q is none of none, monotonic, strict", s)
}

// An Entry is what the store did with one request.
type Entry struct {
	Op      string // read or write
	Key     string
	Grant   uint64 // 0 where the request had none
	Token   *uint64
	Value   int64
	Seq     uint64 // the store's total order, from 1
	Refused bool
}

// A Store holds the registers. Record is called with each entry in the store's
// order, before the answer leaves.
type Store struct {
	policy Policy
	record func(Entry)

	mu   sync.Mutex
	seq  uint64
	keys map[string]*register
}

type register struct {
	value  int64
	fence  uint64
	fenced bool // a token has been seen
}

// New makes a store. record is called while the store is locked.
func New(p Policy, record func(Entry)) *Store {
	return &Store{policy: p, record: record, keys: map[string]*register{}}
}

// Access carries out one request and gives the entry.
func (s *Store) Access(op string, r wire.StoreRequest) Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	reg := s.keys[r.Key]
	if reg == nil {
		reg = &register{}
		s.keys[r.Key] = reg
	}
	s.seq++
	e := Entry{Op: op, Key: r.Key, Grant: r.Grant, Token: r.Token, Seq: s.seq, Refused: !s.admit(reg, op, r.Token)}
	switch {
	case op == wire.Write:
		e.Value = *r.Value
		if !e.Refused {
			reg.value = e.Value
		}
	default:
		e.Value = reg.value
	}
	s.record(e)
	return e
}

// admit decides by the policy and raises the fence. A fence that only writes
// raised would let the old holder write between the new holder's read and its
// write. An access without a token cannot be fenced and passes.
func (s *Store) admit(reg *register, op string, token *uint64) bool {
	if token == nil {
		return true
	}
	t := *token
	switch {
	case s.policy == Monotonic && reg.fenced && t < reg.fence:
		return false
	case s.policy == Strict && op == wire.Write && reg.fenced && t <= reg.fence:
		return false
	}
	if s.policy == Monotonic || op == wire.Write {
		reg.fence, reg.fenced = max(reg.fence, t), true
	}
	return true
}

// maxBody bounds a request.
const maxBody = 1 << 16

// ServeHTTP answers POST /read and POST /write.
func (s *Store) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	op := req.URL.Path[1:]
	if req.Method != http.MethodPost || (op != wire.Read && op != wire.Write) {
		answer(w, http.StatusNotFound, wire.StoreReply{Error: "POST /read or /write"})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	var r wire.StoreRequest
	if err == nil {
		err = json.Unmarshal(body, &r)
	}
	switch {
	case err != nil:
		answer(w, http.StatusBadRequest, wire.StoreReply{Error: "a request that is not understood: " + err.Error()})
		return
	case op == wire.Write && r.Value == nil:
		answer(w, http.StatusBadRequest, wire.StoreReply{Error: "a write without a value"})
		return
	}
	e := s.Access(op, r)
	if e.Refused {
		answer(w, http.StatusConflict, wire.StoreReply{Seq: e.Seq, Error: "fenced"})
		return
	}
	answer(w, http.StatusOK, wire.StoreReply{Value: &e.Value, Seq: e.Seq})
}

func answer(w http.ResponseWriter, code int, r wire.StoreReply) {
	b, err := json.Marshal(r)
	if err != nil {
		code, b = http.StatusInternalServerError, []byte(`{"error":"the answer could not be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(b) // a reader that is gone has lost the answer, which is what we test
}
