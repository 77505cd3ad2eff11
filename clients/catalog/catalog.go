// Package catalog is the one list of the locks that lockcheck can put under
// test by itself. Others come in as programs that speak the worker protocol.
package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/etcd"
	"github.com/lockcheck/lockcheck/clients/redis"
	"github.com/lockcheck/lockcheck/clients/redlock"
	"github.com/lockcheck/lockcheck/clients/zookeeper"
)

// An Entry is one lock.
type Entry struct {
	Name     string
	About    string
	Backends []string // that it runs on; it is the default client of the first it is listed for
	Tokens   bool     // it hands out fencing tokens
	Renews   bool     // it renews in the background unless told otherwise
	Waits    bool     // its acquire waits inside, rather than being one try
	New      clients.New
}

// All lists them; the first entry of a backend is its default.
var All = []Entry{
	{"redis/set-nx", "SET NX PX with an owner id; released by compare-and-delete", []string{"redis", "redis-sentinel"}, false, false, false, redis.NewSetNX},
	{"redis/set-nx-incr", "the same, with a counter as the token", []string{"redis", "redis-sentinel"}, true, false, false, redis.NewSetNXIncr},
	{"redis/set-nx-wait", "SET NX PX, believed when WAIT says that a replica has it", []string{"redis-sentinel"}, false, false, false, redis.NewSetNXWait},
	{"redlock/redlock", "SET NX PX on a majority of five independent servers", []string{"redlock"}, false, false, false, redlock.New},
	{"zookeeper/ephemeral", "ephemeral sequential node; the token is its czxid", []string{"zookeeper"}, true, true, true, zookeeper.New},
	{"etcd/lease", "lease and a transaction on create revision 0; the token is the revision", []string{"etcd"}, true, true, false, etcd.New},
}

// Find gives the entry of that name.
func Find(name string) (Entry, error) {
	var names []string
	for _, e := range All {
		if e.Name == name {
			return e, nil
		}
		names = append(names, e.Name)
	}
	return Entry{}, fmt.Errorf("client %q is not known; there are %s", name, strings.Join(names, ", "))
}

// Constructor gives the constructor of that name; it is wire.Serve's find.
func Constructor(name string) (clients.New, error) {
	e, err := Find(name)
	return e.New, err
}

// Default gives the client that a backend is tested with unless told otherwise.
func Default(backend string) (Entry, error) {
	for _, e := range All {
		if e.On(backend) {
			return e, nil
		}
	}
	return Entry{}, fmt.Errorf("backend %q has no client", backend)
}

// On reports whether the lock runs on a backend.
func (e Entry) On(backend string) bool { return slices.Contains(e.Backends, backend) }
