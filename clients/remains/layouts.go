package remains

import (
	"regexp"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockcheck/lockcheck/clients/etcd"
	"github.com/lockcheck/lockcheck/clients/internal/redisdb"
	"github.com/lockcheck/lockcheck/clients/zookeeper"
)

// directories are where contenders for a lock have their nodes on ZooKeeper: those
// of lockcheck's clients and go-zookeeper's Lock, of kazoo's Lock, of Curator's
// recipes, of the article. InterProcessSemaphoreMutex has two: who holds it has a node
// in leases, and who has one in locks is the next to try
// (https://curator.apache.org/docs/recipes-shared-semaphore/).
func directories(key string) []string {
	flat := strings.ReplaceAll(key, "/", "%2F") // as adapters/python and adapters/java name it
	return []string{
		zookeeper.Dir(key), "/kazoo/" + flat, "/curator/" + flat + "/leases", "/curator/" + flat + "/locks", "/curator/" + flat, "/article/" + flat,
	}
}

// sequential is how the name of a sequential node ends.
var sequential = regexp.MustCompile(`[0-9]{10}$`)

// isContender tells a place in a queue from a directory.
func isContender(node string) bool { return sequential.MatchString(node) }

// A place is a key of etcd's, or what the keys of a queue begin with.
type place struct {
	name    string
	options []clientv3.OpOption
}

// etcdPlaces are where a lock is on etcd: the key of lockcheck's clients and of the
// article, the queue of etcd/queue and of clientv3/concurrency's Mutex, and the key of
// python-etcd3's Lock.
func etcdPlaces(key string) []place {
	return []place{
		{name: etcd.LockKey(key)},
		{name: etcd.QueueDir(key), options: []clientv3.OpOption{clientv3.WithPrefix()}},
		{name: "/locks/" + key},
	}
}

// redisKeys are the keys of a lock on Redis: of the clients in Go, and of redis-py's
// Lock and the article, which take the name as it is.
func redisKeys(key string) []string { return []string{redisdb.LockKey(key), key} }
