package servertest

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Etcd starts a cluster of n members.
func Etcd(t testing.TB, n int) []*Server {
	t.Helper()
	bin := etcdBinary(t)
	free := ports(t, 2*n)
	var peers []string
	for i := range n {
		peers = append(peers, fmt.Sprintf("n%d=http://%s", i, at(free[n+i])))
	}
	var all []*Server
	for i := range n {
		client, peer, dir := at(free[i]), "http://"+at(free[n+i]), t.TempDir()
		args := []string{
			"--name", fmt.Sprintf("n%d", i), "--data-dir", dir,
			"--listen-client-urls", "http://" + client, "--advertise-client-urls", "http://" + client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(peers, ","),
			"--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync",
		}
		all = append(all, launch(t, "etcd", client, func() *exec.Cmd { return exec.Command(bin, args...) },
			func() error { return etcdReady(client) }))
	}
	for _, s := range all {
		s.await()
	}
	return all
}

func etcdReady(addr string) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = c.Put(ctx, "ready", "")
	return err
}

func etcdBinary(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	built := filepath.Join(filepath.Dir(file), "..", "..", "..", "bin", "etcd")
	if p, err := exec.LookPath(built); err == nil {
		return p
	}
	return program(t, "etcd", "make bin/etcd")
}
