package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const zookeeperJar = "/usr/share/java/zookeeper.jar"

// ZooKeeper starts a single server, or an ensemble of n. A tick is 200 ms, so
// that a session lasts at least 400 ms; more lines of configuration may be
// added.
func ZooKeeper(t testing.TB, n int, more ...string) []*Server {
	t.Helper()
	java := program(t, "java", "apt-get install default-jre-headless zookeeper")
	if _, err := os.Stat(zookeeperJar); err != nil {
		t.Fatalf("%s is missing: apt-get install zookeeper", zookeeperJar)
	}
	free := ports(t, 3*n)
	conf := append([]string{"tickTime=200", "initLimit=50", "syncLimit=25", "clientPortAddress=127.0.0.1",
		"admin.enableServer=false", "maxClientCnxns=0", "4lw.commands.whitelist=srvr"}, more...)
	for i := range n {
		if n > 1 {
			conf = append(conf, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", i, free[n+i], free[2*n+i]))
		}
	}
	var all []*Server
	for i := range n {
		all = append(all, zookeeper(t, java, i, free[i], conf))
	}
	for _, s := range all {
		s.await()
	}
	return all
}

func zookeeper(t testing.TB, java string, id, port int, conf []string) *Server {
	t.Helper()
	dir := t.TempDir()
	text := strings.Join(conf, "\n") + fmt.Sprintf("\ndataDir=%s\nclientPort=%d\n", dir, port)
	file := filepath.Join(dir, "zoo.cfg")
	for name, b := range map[string]string{file: text, filepath.Join(dir, "myid"): fmt.Sprint(id)} {
		if err := os.WriteFile(name, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return launch(t, "zookeeper", at(port), func() *exec.Cmd {
		return exec.Command(java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true",
			"-Dzookeeper.forceSync=no", "-cp", zookeeperJar+":/usr/share/java/slf4j-simple.jar", "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	}, func() error { return answers(at(port), "srvr", "Mode:") })
}
