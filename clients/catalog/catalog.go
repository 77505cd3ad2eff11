// Package catalog is the one list of the locks that lockcheck can put under
// test by itself. Others come in as programs that speak the worker protocol.
package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/clients/etcd"
	"github.com/lockcheck/lockcheck/clients/faulty"
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

// Adapters is the program that offers the locks of Libraries.
const Adapters = "lockcheck-adapters"

// All lists them; the first entry of a backend is its default.
var All = []Entry{
	{"redis/set-nx", "SET NX PX with an owner id; released by compare-and-delete", []string{"redis", "redis-sentinel"}, false, false, false, redis.NewSetNX},
	{"redis/set-nx-incr", "the same, with a counter as the token", []string{"redis", "redis-sentinel"}, true, false, false, redis.NewSetNXIncr},
	{"redis/set-nx-wait", "SET NX PX, believed when WAIT says that a replica has it", []string{"redis-sentinel"}, false, false, false, redis.NewSetNXWait},
	{"redlock/redlock", "SET NX PX on a majority of five independent servers", []string{"redlock"}, false, false, false, redlock.New},
	{"zookeeper/ephemeral", "ephemeral sequential node; the token is its czxid", []string{"zookeeper"}, true, true, true, zookeeper.New},
	{"etcd/lease", "lease and a transaction on create revision 0; the token is the revision", []string{"etcd"}, true, true, false, etcd.New},
	{"etcd/queue", "a key on a lease for each contender, the oldest has the lock; the token is its create revision", []string{"etcd"}, true, true, true, etcd.NewQueue},
}

// Libraries lists locks that people use, as they are. They come in a program of
// their own, so that what they need is none of lockcheck's, and have no New here.
var Libraries = []Entry{
	{"redsync", "go-redsync/redsync 4.18.1 over go-redis v9, with their defaults", []string{"redlock", "redis", "redis-sentinel"}, false, false, false, nil},
	{"redsync/set-nx-on-extend", "the same with the option WithSetNXOnExtend", []string{"redlock", "redis", "redis-sentinel"}, false, false, false, nil},
	{"redislock", "bsm/redislock 0.9.4 over go-redis v9, with their defaults", []string{"redis", "redis-sentinel"}, false, false, false, nil},
	{"zk-lock", "go-zookeeper/zk 1.0.4, its Lock", []string{"zookeeper"}, false, false, true, nil},
	{"etcd-mutex", "etcd clientv3/concurrency 3.7.3, a Mutex on a Session; the token is its header's revision", []string{"etcd"}, true, true, true, nil},
}

// Faulty lists the locks that are broken on purpose, for lockcheck to be tried
// on. None of them is a default.
var Faulty = []Entry{
	{"faulty/unsafe-unlock", "redis/set-nx that deletes without comparing the owner", []string{"redis", "redis-sentinel"}, false, false, false, faulty.UnsafeUnlock},
	{"faulty/get-then-del", "redis/set-nx that compares and deletes in two steps", []string{"redis", "redis-sentinel"}, false, false, false, faulty.GetThenDel},
	{"faulty/setnx-then-expire", "redis/set-nx that sets the key and its expiry in two steps", []string{"redis", "redis-sentinel"}, false, false, false, faulty.SetnxThenExpire},
	{"faulty/clock-token", "redis/set-nx-incr with the client's clock as the token", []string{"redis", "redis-sentinel"}, true, false, false, faulty.ClockToken},
	{"faulty/extend-recreates", "redis/set-nx whose renewal sets an expired key again", []string{"redis", "redis-sentinel"}, false, false, false, faulty.ExtendRecreates},
	{"faulty/extend-other", "redis/set-nx whose renewal compares no owner", []string{"redis", "redis-sentinel"}, false, false, false, faulty.ExtendOther},
	{"faulty/minority-redlock", "redlock/redlock on n/2 servers", []string{"redlock"}, false, false, false, faulty.MinorityRedlock},
	{"faulty/redlock-no-validity", "redlock/redlock that claims the whole TTL, whatever acquiring took", []string{"redlock"}, false, false, false, faulty.RedlockNoValidity},
	{"faulty/redlock-no-cleanup", "redlock/redlock that leaves the keys of a failed round", []string{"redlock"}, false, false, false, faulty.RedlockNoCleanup},
	{"faulty/redlock-max-token", "redlock/redlock with the highest of the servers' counters as the token", []string{"redlock"}, true, false, false, faulty.RedlockMaxToken},
	{"faulty/etcd-no-recheck", "etcd/queue that does not look at its own key after the wait", []string{"etcd"}, true, true, true, faulty.EtcdNoRecheck},
	{"faulty/etcd-lease-token", "etcd/lease with the lease's ID as the token", []string{"etcd"}, true, true, false, faulty.EtcdLeaseToken},
	{"faulty/etcd-no-keepalive", "etcd/lease that never renews and never looks", []string{"etcd"}, true, false, false, faulty.EtcdNoKeepalive},
	{"faulty/zk-parent-token", "zookeeper/ephemeral with the parent's czxid as the token", []string{"zookeeper"}, true, true, true, faulty.ZKParentToken},
	{"faulty/zk-persistent", "zookeeper/ephemeral on nodes that outlive their session", []string{"zookeeper"}, true, true, true, faulty.ZKPersistent},
	{"faulty/zk-ignore-expiry", "zookeeper/ephemeral that goes on after its session expired", []string{"zookeeper"}, true, true, true, faulty.ZKIgnoreExpiry},
	{"faulty/zk-orphan", "zookeeper/ephemeral that forgets a node whose creation got no answer", []string{"zookeeper"}, true, true, true, faulty.ZKOrphan},
}

// Reported lists the locks that only the public reports are told with
// (docs/reports.md): failing forms and their twins.
var Reported = []Entry{
	{"report/watch-del", "redis/set-nx that releases by WATCH, GET and DEL without a transaction", []string{"redis", "redis-sentinel"}, false, false, false, faulty.WatchDel},
	{"report/watch-multi", "redis/set-nx that releases by WATCH, GET and DEL in a transaction", []string{"redis", "redis-sentinel"}, false, false, false, faulty.WatchMulti},
	{"report/renew-until-error", "redis/set-nx that renews until a renewal fails, and never again", []string{"redis", "redis-sentinel"}, false, true, false, faulty.RenewUntilError},
}

// Find gives the entry of that name.
func Find(name string) (Entry, error) {
	var names []string
	for _, e := range slices.Concat(All, Libraries, Faulty, Reported) {
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
	if err == nil && e.New == nil {
		err = fmt.Errorf("client %s is offered by %s", name, e.Program())
	}
	return e.New, err
}

// Program is the name of the program that offers the lock; "" for lockcheck itself.
func (e Entry) Program() string {
	if e.New == nil {
		return Adapters
	}
	return ""
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
