package local

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/skew"
)

// A server's clock is moved in the lab and on loopback; it keeps what it had when
// it is restarted, and the lab is whole only when it is right again.
func TestClock(t *testing.T) {
	for name, start := range map[string]func() (*Cluster, error){
		NetworkLab: func() (*Cluster, error) {
			return Lab(t.Context(), cluster.Spec{Backend: cluster.Redis, Workers: 1, Dir: t.TempDir(), Clocks: true})
		},
		NetworkLoopback: func() (*Cluster, error) {
			return Loopback(t.Context(), cluster.Spec{Backend: cluster.Redis, Workers: 1, Dir: t.TempDir(), Clocks: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := start()
			if err != nil {
				t.Fatal(err)
			}
			closeAtEnd(t, c)
			control, err := c.Clock(nemesis.Target{Node: "n1"})
			if err != nil {
				t.Fatal(err)
			}
			if err := control.Set(skew.Realtime, time.Hour); err != nil {
				t.Fatal(err)
			}
			ahead(t, c, time.Hour)
			if err := c.Restart(t.Context(), true, "n1"); err != nil {
				t.Fatal(err)
			}
			ahead(t, c, time.Hour)
			if err := c.Whole(t.Context()); err == nil || !strings.Contains(err.Error(), "n1: its clock is 1h0m0s ahead") {
				t.Errorf("with a clock that is an hour ahead: %v", err)
			}
			if err := control.Reset(); err != nil {
				t.Fatal(err)
			}
			ahead(t, c, 0)
			if err := c.Whole(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// ahead wants n1 to be that far ahead by its own word.
func ahead(t *testing.T, c *Cluster, d time.Duration) {
	t.Helper()
	before := time.Now()
	said, coarse, err := c.Told(t.Context(), "n1")
	after := time.Now()
	if least, most := said.Sub(after), said.Add(coarse).Sub(before); err != nil || d < least || d > most {
		t.Errorf("it is %v to %v ahead, not %v (%v)", least, most, d, err)
	}
}

// A cluster that was started without has no clocks to move.
func TestNoClock(t *testing.T) {
	c, err := Lab(t.Context(), cluster.Spec{Backend: cluster.Redis, Workers: 1, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, c)
	for _, target := range []nemesis.Target{{Node: "n1"}, {Worker: 0}} {
		if _, err := c.Clock(target); !errors.Is(err, ErrNoClocks) {
			t.Errorf("%v: %v", target, err)
		}
	}
	if err := c.Settled(0); err != nil {
		t.Error(err)
	}
	for _, target := range []nemesis.Target{{Node: "n9"}, {Worker: 7}} {
		if _, err := c.Clock(target); err == nil {
			t.Errorf("%v has a clock", target)
		}
	}
}
