package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/lockcheck/lockcheck/cluster"
)

// Names of what Find looks for.
const (
	redisServer   = "redis-server"
	redisSentinel = "redis-sentinel"
	javaProgram   = "java"
	zookeeperJar  = "zookeeper.jar"
	etcdServer    = "etcd"
)

// javaDir is where Debian's packages put jar files.
const javaDir = "/usr/share/java"

// A Missing is the error for a server that is not installed. The backend that
// needs it can only be skipped, never passed.
type Missing struct {
	Backend string
	Program string
	Remedy  string // the command that brings it
}

func (e *Missing) Error() string {
	return fmt.Sprintf("%s is missing, which %s needs: %s", e.Program, e.Backend, e.Remedy)
}

var remedies = map[string]string{
	redisServer:   "apt-get install redis-server",
	redisSentinel: "apt-get install redis-sentinel",
	javaProgram:   "apt-get install default-jre-headless",
	zookeeperJar:  "apt-get install libzookeeper-java",
	etcdServer:    "make bin/etcd",
}

// Find returns the path of each program that a backend needs, by its name. The
// error is a *Missing if there is one that is not there.
func Find(backend string) (paths map[string]string, err error) {
	needs := map[string][]string{
		cluster.Redis:     {redisServer},
		cluster.Redlock:   {redisServer},
		cluster.Sentinel:  {redisServer, redisSentinel},
		cluster.ZooKeeper: {javaProgram, zookeeperJar},
		cluster.Etcd:      {etcdServer},
	}[backend]
	if needs == nil {
		return nil, fmt.Errorf("find servers of %q: no such backend", backend)
	}
	paths = make(map[string]string)
	for _, name := range needs {
		p, err := findOne(name)
		if err != nil {
			return nil, &Missing{Backend: backend, Program: name, Remedy: remedies[name]}
		}
		paths[name] = p
	}
	return paths, nil
}

func findOne(name string) (string, error) {
	switch name {
	case zookeeperJar:
		p := filepath.Join(javaDir, name)
		_, err := os.Stat(p)
		return p, err
	case etcdServer:
		return Built(etcdServer)
	}
	return lookPath(name)
}

// Built finds a program that is built beside lockcheck. It prefers that one over
// one that happens to be installed.
func Built(program string) (string, error) {
	var dirs []string
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(exe))
	}
	for _, d := range append(dirs, "bin") {
		p, err := filepath.Abs(filepath.Join(d, program))
		if err != nil {
			continue
		}
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return lookPath(program)
}

// lookPath makes the path absolute, since servers run in directories of their
// own.
func lookPath(name string) (string, error) {
	p, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(p)
}
