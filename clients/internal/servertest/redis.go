package servertest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// MasterName is what the sentinels call their master.
const MasterName = "lockcheck"

// Redis starts one redis-server.
func Redis(t testing.TB) *Server {
	t.Helper()
	s := redisServer(t)
	s.await()
	return s
}

// Redises starts n independent ones.
func Redises(t testing.TB, n int) []*Server {
	t.Helper()
	var all []*Server
	for range n {
		all = append(all, redisServer(t))
	}
	for _, s := range all {
		s.await()
	}
	return all
}

func redisServer(t testing.TB, more ...string) *Server {
	t.Helper()
	bin := program(t, "redis-server", "apt-get install redis-server")
	port := ports(t, 1)[0]
	args := append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir(),
		"--repl-diskless-sync-delay", "0"}, more...)
	return launch(t, "redis-server", at(port), func() *exec.Cmd { return exec.Command(bin, args...) },
		func() error { return answers(at(port), "PING", "+PONG") })
}

// Sentinel starts a master, a replica and a sentinel that watches them.
func Sentinel(t testing.TB) (master *Server, sentinels []*Server) {
	t.Helper()
	master = Redis(t)
	_, port, _ := net.SplitHostPort(master.Addr)
	Replica(t, master.Addr)
	Eventually(t, "the replica follows", func() bool { return answers(master.Addr, "INFO replication", "state=online") == nil })
	bin := program(t, "redis-sentinel", "apt-get install redis-sentinel")
	p := ports(t, 1)[0]
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\nsentinel monitor %s 127.0.0.1 %s 1\nsentinel down-after-milliseconds %s 500\n"+
		"sentinel failover-timeout %s 2000\n", p, MasterName, port, MasterName, MasterName)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := launch(t, "redis-sentinel", at(p), func() *exec.Cmd { return exec.Command(bin, conf) },
		func() error { return answers(at(p), "SENTINEL replicas "+MasterName, "flags") })
	s.await()
	return master, []*Server{s}
}

// answers sends one inline command and looks for what must be in the answer.
func answers(addr, command, want string) error {
	got, err := ask(addr, command+"\r\n", want)
	if err == nil && !strings.Contains(got, want) {
		err = fmt.Errorf("%s answered %q", command, got)
	}
	return err
}

// ask sends text and reads until the answer has what is wanted, or ends.
func ask(addr, text, want string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte(text)); err != nil {
		return "", err
	}
	var got strings.Builder
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		got.WriteString(line)
		if err != nil || strings.Contains(line, want) {
			return got.String(), nil
		}
	}
}

// Replica starts one that follows addr and takes no writes.
func Replica(t testing.TB, addr string) *Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	s := redisServer(t, "--replicaof", host+" "+port)
	s.await()
	return s
}

// Calls says how often the server has carried out a command.
func Calls(t testing.TB, s *Server, command string) int {
	t.Helper()
	got, err := ask(s.Addr, "INFO commandstats\r\nPING\r\n", "+PONG")
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if _, after, ok := strings.Cut(got, "cmdstat_"+command+":calls="); ok {
		fmt.Sscanf(after, "%d", &n)
	}
	return n
}
