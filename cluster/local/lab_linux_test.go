package local

import (
	"context"
	"os/exec"
	"testing"

	"github.com/lockcheck/lockcheck/cluster"
)

func TestLab(t *testing.T) {
	for _, b := range cluster.Backends {
		t.Run(b, func(t *testing.T) {
			dir := t.TempDir()
			c, err := Lab(context.Background(), cluster.Spec{Backend: b, Workers: 2, Dir: dir, Proxy: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(c.Timing(), c.Versions(), c.Nodes(), c.Endpoints(0), c.StoreURL(0))
			cmd := exec.Command("/proc/self/exe", append([]string{helperArg, "op", b}, c.Endpoints(1)...)...)
			out := new(outBuf)
			cmd.Stderr = out
			if err := c.StartWorker(1, cmd); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err, out)
			}
			if l, err := c.Leader(context.Background()); err != nil {
				t.Log(err)
			} else {
				t.Log("leader", l)
			}
			if err := c.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

type outBuf struct{ b []byte }

func (o *outBuf) Write(p []byte) (int, error) { o.b = append(o.b, p...); return len(p), nil }
func (o *outBuf) String() string              { return string(o.b) }
