package runner

import (
	"context"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
)

// Faults on one kind of thing wait for each other, in the order of the plan, and
// one whose turn comes in the quiet time is recorded and not carried out.
func TestNemesisTakesTurns(t *testing.T) {
	t.Parallel()
	g := start(t, 2)
	pause := func(at, lasts time.Duration) nemesis.Step {
		return nemesis.Step{At: at, Fault: "pause", Target: nemesis.All, Duration: lasts}
	}
	const quiet = time.Second
	g.Nemesis(context.Background(), []nemesis.Step{pause(0, 50*time.Millisecond), pause(time.Millisecond, 2*quiet), pause(2*time.Millisecond, 0)}, quiet)
	var said []string
	for _, o := range g.end() {
		if o.Process == history.Nemesis {
			f, _ := history.FaultOf(&o)
			said = append(said, f.Phase+string(rune('0'+f.Fault)))
			if f.Phase == history.Skipped && f.Reason != errTooLate.Error() {
				t.Error(f.Reason)
			}
		}
	}
	want := []string{"asked1", "done1", "heal-asked1", "healed1", "asked2", "done2", "heal-asked2", "healed2", "asked3", "skipped3"}
	for i, w := range want {
		if i >= len(said) || said[i] != w {
			t.Fatalf("%v, want %v", said, want)
		}
	}
}

// What is planned to overlap may, and no more.
func TestAtOnce(t *testing.T) {
	step := func(at, lasts int) nemesis.Step {
		return nemesis.Step{At: time.Duration(at), Duration: time.Duration(lasts)}
	}
	for _, c := range []struct {
		steps []nemesis.Step
		want  int
	}{
		{nil, 1},
		{[]nemesis.Step{step(0, 5), step(6, 5), step(12, 0)}, 1},
		{[]nemesis.Step{step(0, 5), step(3, 5), step(9, 5)}, 2},
		{[]nemesis.Step{step(0, 50), step(3, 5), step(4, 5), step(20, 5)}, 3},
	} {
		if got := atOnce(c.steps); got != c.want {
			t.Errorf("%v: %d, want %d", c.steps, got, c.want)
		}
	}
}
