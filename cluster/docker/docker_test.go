//go:build docker

package docker

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/contract"
	"github.com/lockcheck/lockcheck/cluster/external"
	"github.com/lockcheck/lockcheck/cluster/local"
)

// TestMain is a guardian, or a lockcheck that is to be killed, when it is told so.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "guardian":
		if err := Guard(context.Background(), os.Stdin, os.Args[2]); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) > 2 && os.Args[1] == "victim":
		_, err := Start(context.Background(), cluster.Spec{Backend: cluster.Redis, Workers: 1, Dir: os.Args[2]}, Options{Guardian: guardianOfTest})
		if err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("ready\n")
		select {}
	}
	bin, err := filepath.Abs("../../bin")
	if err == nil {
		err = os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func guardianOfTest(args ...string) *exec.Cmd {
	return exec.Command("/proc/self/exe", append([]string{"guardian"}, args...)...)
}

// leftOf counts containers, networks and volumes of one process's runs.
func leftOf(t *testing.T, pid int) int {
	all, err := Find(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range all {
		if l.PID == pid {
			n++
		}
	}
	return n
}

func provide(o Options) contract.Provider {
	o.Guardian = guardianOfTest
	p := contract.Provider{
		Backends: cluster.Backends,
		Start:    func(ctx context.Context, spec cluster.Spec) (cluster.Cluster, error) { return Start(ctx, spec, o) },
		Left:     func(t *testing.T) int { return leftOf(t, os.Getpid()) },
	}
	if o.NoRules || PacketRules() != nil {
		p.NoCuts = local.ErrNoRules
	}
	return p
}

func TestDockerProvider(t *testing.T) { contract.Run(t, provide(Options{})) }

// As with Docker Desktop: by published ports only, and without packet rules.
func TestDockerProviderFarAway(t *testing.T) {
	contract.Run(t, provide(Options{Publish: true, NoRules: true}))
}

func TestLoopbackProvider(t *testing.T) {
	contract.Run(t, contract.Provider{
		Start: func(ctx context.Context, spec cluster.Spec) (cluster.Cluster, error) {
			return local.Loopback(ctx, spec)
		},
		NoCuts: local.ErrNoNamespaces,
	})
}

// An external cluster, which is one in containers that somebody else has started.
func TestExternalProvider(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	there, err := Start(ctx, cluster.Spec{Backend: cluster.Etcd, Workers: 1, Dir: t.TempDir()}, Options{Guardian: guardianOfTest})
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close(context.Background())
	contract.Run(t, contract.Provider{
		NotOffered: external.ErrNotOffered,
		Start: func(ctx context.Context, spec cluster.Spec) (cluster.Cluster, error) {
			cfg := &external.Config{}
			for _, a := range there.Endpoints(0) {
				cfg.Nodes = append(cfg.Nodes, external.Node{Endpoint: a})
			}
			if err := cfg.Settle(cluster.Etcd); err != nil {
				return nil, err
			}
			return external.Start(ctx, cfg, spec)
		},
	})
}

// A kill -9 leaves nothing behind, because of the guardian.
func TestGuardian(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "victim", t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	if _, err := io.ReadFull(out, b); err != nil || !strings.HasPrefix(string(b), "ready") {
		cmd.Process.Kill()
		t.Fatalf("the victim says %q: %v", b, err)
	}
	if leftOf(t, cmd.Process.Pid) == 0 {
		t.Error("nothing was there to be left")
	}
	cmd.Process.Kill()
	cmd.Wait()
	for end := time.Now().Add(time.Minute); leftOf(t, cmd.Process.Pid) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d things are left after a kill -9", leftOf(t, cmd.Process.Pid))
		}
	}
}
