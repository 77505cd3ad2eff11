// Command lockcheck-adapters offers the locks of Go libraries that people use, as
// they are, over the worker protocol. Each library has a file of its own here and
// is pinned in this module's go.mod, where a replace line puts a local checkout in
// its place (docs/validate-a-library.md).
//
// A lock stands where lockcheck's own lock of its kind would, so that lockcheck can
// ask the servers what is left of it.
//
// An adapter changes nothing about its library. It says what the library's answer
// proves, and what it cannot know from the answer it sees on the wire: whether a
// request was sent twice, and when what a lease counts from was sent.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/wire"
)

// adapters are the locks by the names that lockcheck's catalog has for them.
var adapters = map[string]clients.New{
	"redsync":                  newRedsync,
	"redsync/set-nx-on-extend": newRedsyncRefilling,
	"redislock":                newRedislock,
	"zk-lock":                  newZKLock,
	"etcd-mutex":               newEtcdMutex,
}

func main() {
	if err := wire.Serve(context.Background(), os.Stdin, os.Stdout, find); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(255)
	}
}

func find(name string) (clients.New, error) {
	if n := adapters[name]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("there is no adapter for %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(adapters)), ", "))
}

// handles are what a library gave for each grant.
type handles[T any] struct {
	mu sync.Mutex
	m  map[uint64]T
}

func (h *handles[T]) put(grant uint64, v T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[uint64]T{}
	}
	h.m[grant] = v
}

// get fails for a grant that came from elsewhere: nothing can be sent for it.
func (h *handles[T]) get(g clients.Grant) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.m[g.ID]
	if !ok {
		return v, clients.NotDone(fmt.Errorf("grant %d of %s was not handed out by this client", g.ID, g.Key))
	}
	return v, nil
}

func (h *handles[T]) drop(g clients.Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.m, g.ID)
}
