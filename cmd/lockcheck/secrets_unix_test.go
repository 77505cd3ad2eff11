//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
)

// certName is whom the servers' certificates are for; their addresses are not in it.
const certName = "locks.test"

// guarded BACKEND FILE starts a server that asks for a password, which is in the
// variable PASSWORD, and, but for ZooKeeper, speaks TLS only. FILE becomes what
// --external takes, and other-FILE the same for a server of another name.
func guarded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: guarded BACKEND FILE")
	}
	dir := ts.MkAbs(args[0] + ".d")
	ts.Check(os.MkdirAll(dir, 0o755))
	g := &guardedServer{ts: ts, dir: dir, password: ts.Getenv("PASSWORD"), user: "root"}
	switch args[0] {
	case cluster.Redis:
		g.redis()
	case cluster.Etcd:
		g.etcd()
	case cluster.ZooKeeper:
		g.zookeeper()
	}
	file := g.config(args[0])
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(file), 0o644))
	other := strings.ReplaceAll(file, certName, "other.test")
	ts.Check(os.WriteFile(ts.MkAbs("other-"+args[1]), []byte(other), 0o644))
}

type guardedServer struct {
	ts             *testscript.TestScript
	dir            string
	user, password string
	addrs          []string
	ca             string // file; "" for plain text
}

// config is the file for --external.
func (g *guardedServer) config(backend string) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "backend: %s\nnodes:\n", backend)
	for i, a := range g.addrs {
		fmt.Fprintf(b, "  - {name: n%d, endpoint: %q}\n", i+1, a)
	}
	fmt.Fprintf(b, "access:\n  password_env: PASSWORD\n")
	if g.user != "" {
		fmt.Fprintf(b, "  user: %s\n", g.user)
	}
	if g.ca != "" {
		fmt.Fprintf(b, "  tls: true\n  ca: %s\n  server_name: %s\n", g.ca, certName)
	}
	return b.String()
}

func (g *guardedServer) redis() {
	cert, key := g.certificate()
	g.user = ""
	addr := freeAddr(g.ts)
	_, port, _ := net.SplitHostPort(addr)
	g.start("redis-server", "--port", "0", "--tls-port", port, "--bind", "127.0.0.1", "--dir", g.dir, "--save", "",
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", g.ca, "--tls-auth-clients", "no",
		"--requirepass", g.password)
	g.listening(addr)
}

func (g *guardedServer) etcd() {
	cert, key := g.certificate()
	addr, peer := freeAddr(g.ts), "http://"+freeAddr(g.ts)
	url := "https://" + addr
	g.start("etcd", "--name", "n1", "--data-dir", filepath.Join(g.dir, "data"), "--log-level", "error",
		"--listen-client-urls", url, "--advertise-client-urls", url, "--cert-file", cert, "--key-file", key,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "n1="+peer)
	g.listening(addr)
	// The certificate is not for the address.
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, TLS: &tls.Config{InsecureSkipVerify: true}, Logger: zap.NewNop()})
	g.ts.Check(err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = c.UserAdd(ctx, g.user, g.password)
	g.ts.Check(err)
	_, err = c.RoleAdd(ctx, "root")
	g.ts.Check(err)
	_, err = c.UserGrantRole(ctx, g.user, "root")
	g.ts.Check(err)
	_, err = c.AuthEnable(ctx)
	g.ts.Check(err)
}

// zookeeper starts an ensemble as it is: whoever makes a node says who may touch it.
func (g *guardedServer) zookeeper() {
	g.user = "locker"
	c, err := local.Loopback(context.Background(), cluster.Spec{Backend: cluster.ZooKeeper, Workers: 1, Dir: g.dir})
	g.ts.Check(err)
	g.ts.Defer(func() { c.Close(context.Background()) })
	g.addrs = c.Endpoints(0)
}

// start runs a server until the script ends.
func (g *guardedServer) start(name string, args ...string) {
	path := ""
	for _, dir := range filepath.SplitList(g.ts.Getenv("PATH")) {
		if p := filepath.Join(dir, name); path == "" {
			if info, err := os.Stat(p); err == nil && info.Mode()&0o111 != 0 {
				path = p
			}
		}
	}
	if path == "" {
		g.ts.Fatalf("%s is missing: make deps-test", name)
	}
	log, err := os.Create(filepath.Join(g.dir, "log"))
	g.ts.Check(err)
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	g.ts.Check(cmd.Start())
	g.ts.Defer(func() {
		cmd.Process.Signal(syscall.SIGKILL)
		cmd.Wait()
		log.Close()
	})
}

// listening waits for a server that was started.
func (g *guardedServer) listening(addr string) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			g.addrs = append(g.addrs, addr)
			return
		}
		if time.Now().After(end) {
			g.ts.Fatalf("%v: see %s", err, filepath.Join(g.dir, "log"))
		}
	}
}

func freeAddr(ts *testscript.TestScript) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	defer l.Close()
	return l.Addr().String()
}

// certificate makes one that signs itself, for certName.
func (g *guardedServer) certificate() (cert, key string) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.ts.Check(err)
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{certName}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		// etcd's own gateway is a client of it.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &k.PublicKey, k)
	g.ts.Check(err)
	secret, err := x509.MarshalECPrivateKey(k)
	g.ts.Check(err)
	cert, key = filepath.Join(g.dir, "cert.pem"), filepath.Join(g.dir, "key.pem")
	g.ts.Check(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	g.ts.Check(os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600))
	g.ca = cert
	return cert, key
}

// hidden DIR wants the variable PASSWORD in no file below DIR and in nothing that
// was printed.
func hidden(ts *testscript.TestScript, neg bool, args []string) {
	secret := ts.Getenv("PASSWORD")
	for _, out := range []string{"stdout", "stderr"} {
		if strings.Contains(ts.ReadFile(out), secret) {
			ts.Fatalf("the password was printed to %s", out)
		}
	}
	files := 0
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(secret)) {
			err = fmt.Errorf("the password is in %s", path)
		}
		return err
	}))
	if files < 5 {
		ts.Fatalf("only %d files below %s", files, args[0])
	}
}
