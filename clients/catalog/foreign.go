package catalog

import (
	"github.com/lockcheck/lockcheck/adapters"
)

// A ForeignEntry is a lock in another language.
type ForeignEntry struct {
	Entry
	Program adapters.Program
}

func python(script string, needs ...adapters.Need) adapters.Program {
	return adapters.Program{Script: script, Needs: needs}
}

func curator(class string) adapters.Program {
	needs := []adapters.Need{}
	for _, n := range []struct{ jar, pkg string }{
		{"curator-recipes.jar", "libcurator-recipes-java"}, {"curator-framework.jar", "libcurator-framework-java"}, {"curator-client.jar", "libcurator-client-java"},
		{"zookeeper.jar", "libzookeeper-java"}, {"guava.jar", "libguava-java"}, {"slf4j-api.jar", "libslf4j-java"}, {"slf4j-simple.jar", "libslf4j-java"},
		{"jackson-databind.jar", "libjackson2-databind-java"}, {"jackson-core.jar", "libjackson2-core-java"}, {"jackson-annotations.jar", "libjackson2-annotations-java"},
	} {
		needs = append(needs, adapters.Library(n.jar, n.pkg))
	}
	return adapters.Program{Class: class, Needs: needs}
}

var (
	redisPy = adapters.Module("redis", "python3-redis")
	kazoo   = adapters.Module("kazoo", "python3-kazoo")
	etcd3Py = adapters.Module("etcd3", "python3-etcd3")
)

// Foreign lists the locks of other languages. None of them is a default.
var Foreign = []ForeignEntry{
	{Entry{"redis-py", "redis-py's Lock", []string{"redis", "redis-sentinel"}, false, false, false, nil}, python("redis_lock.py", redisPy)},
	{Entry{"kazoo", "kazoo's Lock; the token is the czxid of the contender's node", []string{"zookeeper"}, true, true, true, nil}, python("kazoo_lock.py", kazoo)},
	{Entry{"etcd3-py", "python-etcd3's Lock", []string{"etcd"}, false, true, true, nil}, python("etcd3_lock.py", etcd3Py)},
	{Entry{"curator-mutex", "Curator's InterProcessMutex; the token is the czxid of the contender's node", []string{"zookeeper"}, true, true, true, nil}, curator("CuratorMutex")},
	{Entry{"curator-semaphore", "Curator's InterProcessSemaphoreMutex; the token is the czxid of the contender's node", []string{"zookeeper"}, true, true, true, nil}, curator("CuratorSemaphore")},
	{Entry{"article/redis", "the article's SET NX PX: three tries, 200 ms apart", []string{"redis", "redis-sentinel"}, false, false, true, nil}, python("article/redis_lock.py", redisPy)},
	{Entry{"article/redlock", "the article's Redlock", []string{"redlock"}, false, false, true, nil}, python("article/redlock.py", redisPy)},
	{Entry{"article/zookeeper", "the article's lock on kazoo; the token is the czxid of the lock's parent", []string{"zookeeper"}, true, false, true, nil}, python("article/zookeeper_lock.py", kazoo)},
	{Entry{"article/etcd", "the article's lock on python-etcd3, reading the revision where it is", []string{"etcd"}, true, true, false, nil}, python("article/etcd_lock.py", etcd3Py)},
	{Entry{"article/etcd-as-printed", "the same as printed, which fails after the lock was taken", []string{"etcd"}, true, true, false, nil}, python("article/etcd_as_printed.py", etcd3Py)},
}

// Foreigner gives the program of a lock in another language, and whether there is
// one of that name.
func Foreigner(name string) (adapters.Program, bool) {
	for _, e := range Foreign {
		if e.Name == name {
			return e.Program, true
		}
	}
	return adapters.Program{}, false
}

// ForeignEntries are those of Foreign.
func ForeignEntries() []Entry {
	var es []Entry
	for _, e := range Foreign {
		es = append(es, e.Entry)
	}
	return es
}
