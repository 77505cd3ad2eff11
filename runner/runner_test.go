package runner

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/generator"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
)

// TestMain is also the workers of these tests: programs that keep to the
// protocol until the key of an acquire tells them how to misbehave.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "misbehave" {
		misbehave()
		return
	}
	os.Exit(m.Run())
}

func misbehave() {
	out := json.NewEncoder(os.Stdout)
	sc := bufio.NewScanner(os.Stdin)
	var waiting uint64
	for sc.Scan() {
		var c wire.Command
		if json.Unmarshal(sc.Bytes(), &c) != nil {
			os.Exit(9)
		}
		ok := wire.Message{ID: c.ID, Type: wire.OK}
		switch {
		case c.Op == wire.Ack:
			valid := int64(1e9)
			out.Encode(wire.Message{ID: waiting, Type: wire.OK, Valid: &valid, Mark: c.Mark})
			continue
		case c.Op == wire.Acquire && c.Key == "garbage":
			fmt.Println("Traceback (most recent call last):")
			continue
		case c.Op == wire.Acquire && c.Key == "flood":
			fmt.Println(strings.Repeat("x", maxLine+2))
			continue
		case c.Op == wire.Acquire && c.Key == "die":
			os.Exit(3)
		case c.Op == wire.Acquire && c.Key == "hang":
			continue
		case c.Op == wire.Acquire && c.Key == "orphan": // its child keeps the output open
			child := exec.Command("sleep", "600")
			child.Stdout = os.Stdout
			if child.Start() != nil {
				os.Exit(8)
			}
			os.Exit(4)
		case c.Op == wire.Acquire && c.Key == "parent":
			child := exec.Command("sleep", "600")
			child.Stdout = os.Stdout
			if child.Start() != nil {
				os.Exit(8)
			}
		case c.Op == wire.Read && c.Key == "no value":
			out.Encode(ok)
			continue
		case c.Op == wire.Acquire && c.Key == "late":
			time.AfterFunc(1200*time.Millisecond, func() { out.Encode(ok) })
			continue
		case c.Op == wire.Acquire && c.Key == "mark":
			waiting = c.ID
			out.Encode(wire.Message{Event: wire.MarkEvent, Mark: 77, Key: c.Key, Grant: c.Grant})
			continue
		case c.Op == wire.Acquire && c.Key == "lost":
			out.Encode(ok)
			out.Encode(wire.Message{Event: "lost", Grant: c.Grant, Key: c.Key})
			out.Encode(wire.Message{Event: "no-such-event"})
			continue
		case c.Op == wire.Check && c.Key == "die idle":
			out.Encode(ok)
			time.Sleep(10 * time.Millisecond)
			os.Exit(0)
		case c.Op == wire.Init:
			ok.Can = []string{wire.CanCheck}
		case c.Op == wire.Read:
			v := int64(1)
			ok.Value = &v
		}
		out.Encode(ok)
	}
}

type here struct{}

func (here) Endpoints(int) []string               { return []string{"127.0.0.1:1"} }
func (here) StoreURL(int) string                  { return "http://127.0.0.1:1" }
func (here) StartWorker(_ int, c *exec.Cmd) error { return c.Start() }

// record collects a history that is being written.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

type rig struct {
	*Runner
	rec *history.Recorder
	out *record
	t   *testing.T
}

func start(t *testing.T, workers int) *rig {
	t.Helper()
	g := &rig{out: &record{}, t: t}
	var err error
	if g.rec, err = history.NewRecorder(g.out, history.Header{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	g.Runner = New(Config{
		Place: here{}, Workers: workers, Setup: wire.Setup{Client: "test", TTL: 1e9}, OpTimeout: 500 * time.Millisecond,
		Recorder: g.rec, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Command: func(int) *exec.Cmd { return exec.Command(os.Args[0], "misbehave") },
	})
	t.Cleanup(g.Close)
	if err := g.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	return g
}

// end closes everything and reads the history back: it must be well-formed
// whatever the workers did.
func (g *rig) end() []history.Op {
	g.t.Helper()
	g.Close()
	if err := g.rec.Close(); err != nil {
		g.t.Fatal(err)
	}
	ops, _, err := history.ReadAll(&g.out.b, "history")
	if err != nil {
		g.t.Fatal(err)
	}
	return ops
}

func (g *rig) acquire(key string) Done {
	g.t.Helper()
	d, err := g.Worker(0).Do(context.Background(), Call{F: history.Acquire, Key: key})
	if err != nil {
		g.t.Fatal(err)
	}
	return d
}

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// Whatever a worker does instead of answering is an info, and the worker goes
// on under a new number with a new session.
func TestMisbehaviour(t *testing.T) {
	for key, want := range map[string]string{
		"garbage": "worker crashed: it printed what is no message: \"Traceback",
		"flood":   "worker crashed: it printed a line of more than",
		"die":     "worker crashed: exit status 3",
		"hang":    "no answer within 1s",
		"orphan":  "worker crashed: exit status 4",
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			g := start(t, 2)
			d := g.acquire(key)
			if d.Type != history.Info || !strings.HasPrefix(d.Error, want) {
				t.Errorf("ended as %v: %s", d.Type, d.Error)
			}
			if _, err := g.Worker(0).Begin(Call{F: history.Acquire, Key: "k"}); !errors.Is(err, ErrRetired) {
				t.Errorf("went on without a session: %v", err)
			}
			if err := g.Worker(0).Session(context.Background()); err != nil {
				t.Fatal(err)
			}
			if p := g.Worker(0).Process(); p != 2 {
				t.Errorf("process %d, want 2", p)
			}
			if d := g.acquire("k"); d.Type != history.OK {
				t.Errorf("the new session: %+v", d)
			}
			g.end()
		})
	}
}

// An answer that comes after the runner has given up on it belongs to nobody.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	if d := g.acquire("late"); d.Type != history.Info {
		t.Fatal(d)
	}
	if err := g.Worker(0).Session(context.Background()); err != nil {
		t.Fatal(err)
	}
	d := g.acquire("k")
	time.Sleep(400 * time.Millisecond) // the late answer comes meanwhile
	if e, err := g.Worker(0).Do(context.Background(), Call{F: history.Release, Key: "k", Grant: d.Grant}); err != nil || e.Type != history.OK {
		t.Error(e, err)
	}
	g.end()
}

// What a dead worker held ends with what was last heard from it.
func TestDeathWhileIdle(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	d := g.acquire("die idle")
	if _, err := g.Worker(0).Do(context.Background(), Call{F: history.Check, Key: "die idle", Grant: d.Grant}); err != nil {
		t.Fatal(err)
	}
	until(t, "the death is noticed", func() bool { return len(g.Worker(0).Holds()) == 0 })
	ops := g.end()
	last := ops[len(ops)-1]
	if last.F != history.Close || last.Type != history.Info || !strings.HasPrefix(last.Error, history.ErrCrashed) {
		t.Errorf("the history ends with %+v", last)
	}
}

// Between the end of a process and the end of its output, which a child may keep
// open, no fault may be aimed at it: it would be skipped, although a moment later
// there is a new process to hit.
func TestDeadIsNoTarget(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	g.acquire("parent")
	p := g.Workers()[0].OS
	if err := p.Kill(); err != nil { // the leader alone: its child lives on
		t.Fatal(err)
	}
	until(t, "the process is waited for", func() bool { return errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) })
	if ts := g.Workers(); len(ts) != 0 {
		t.Errorf("dead, and still a target: %v", ts)
	}
	g.end()
}

func TestReadWithoutValue(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	d := g.acquire("no value")
	if d, err := g.Worker(0).Do(context.Background(), Call{F: history.Read, Key: "no value", Grant: d.Grant}); err != nil || d.Type != history.Info {
		t.Error(d, err)
	}
	g.end()
}

func TestMarkBecomesFrom(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	g.acquire("mark")
	ops := g.end()
	var mark int64
	for _, o := range ops {
		if o.F == history.Mark {
			mark = o.Time
		}
		if o.F == history.Acquire && o.Type == history.OK && (o.From.V != mark || mark == 0 || o.Valid.V != 1e9) {
			t.Errorf("from %v, mark %d", o.From, mark)
		}
	}
}

// Once the worker is told of a loss, no work is begun under the grant.
func TestLost(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	d := g.acquire("lost")
	until(t, "the loss is told", func() bool { return g.Worker(0).Lost(d.Grant) })
	if _, err := g.Worker(0).Begin(Call{F: history.Write, Key: "lost", Grant: d.Grant}); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	g.end()
}

func TestKillAndPause(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	g := start(t, 2)
	d := g.acquire("k")
	in := g.Inject(ctx, nemesis.Step{Fault: "pause", Target: nemesis.Holder})
	if in.Err != nil {
		t.Fatal(in.Err)
	}
	o, err := g.Worker(0).Begin(Call{F: history.Release, Key: "k", Grant: d.Grant, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if s := g.Status(); len(s.Faults) != 1 {
		t.Errorf("%+v", s)
	}
	in.Heal(ctx)
	in.Heal(ctx)
	if e, err := o.Wait(ctx); err != nil || e.Type != history.OK {
		t.Error(e, err)
	}
	g.acquire("k")
	if in := g.Inject(ctx, nemesis.Step{Fault: "kill", Target: nemesis.Holder}); in.Err != nil {
		t.Fatal(in.Err)
	}
	until(t, "the death is noticed", func() bool { return len(g.Worker(0).Holds()) == 0 })
	if in := g.InjectOn(ctx, nemesis.Pause{Stop: func(*os.Process) error { return errors.New("no") }}, g.Workers()...); in.Err == nil {
		t.Error("a fault that failed was believed")
	}
	phases := map[string][]string{}
	for _, o := range g.end() {
		if o.Process == history.Nemesis {
			f, _ := history.FaultOf(&o)
			phases[o.F] = append(phases[o.F], f.Phase)
		}
	}
	want := map[string]string{"pause": "[asked done heal-asked healed asked skipped]", "kill": "[asked done]"}
	for f, w := range want {
		if got := fmt.Sprint(phases[f]); got != w {
			t.Errorf("%s: phases %s, want %s", f, got, w)
		}
	}
	if err := g.Unhealed(); err != nil {
		t.Error(err)
	}
}

// The workload against workers that grant everything: the history is
// well-formed, and everything that was acquired is released.
func TestWorkload(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	keys, _ := generator.ParseKeys("2")
	g.Workload(context.Background(), 1, generator.Config{Workers: 3, Keys: keys, TTL: time.Second, Hold: time.Millisecond, Writes: 2}, 300*time.Millisecond)
	n := map[string]int{}
	for _, o := range g.end() {
		if o.Type == history.OK {
			n[o.F]++
		}
	}
	if n[history.Acquire] == 0 || n[history.Acquire] != n[history.Release] || n[history.Close] != 3 {
		t.Errorf("%v", n)
	}
}

func TestRecordStore(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	tok := uint64(5)
	g.RecordStore(fencedstore.Entry{Op: "write", Key: "k", Grant: 3, Token: &tok, Value: 9, Seq: 1, Refused: true})
	ops := g.end()
	o := ops[len(ops)-1]
	if o.Process != history.Store || o.Type != history.Fail || o.Error != history.ErrFenced || o.Token.V != 5 || string(o.Value) != "9" {
		t.Errorf("%+v", o)
	}
}

func TestNoSuchWorker(t *testing.T) {
	r := New(Config{Place: here{}, Workers: 1, Command: func(int) *exec.Cmd { return exec.Command("/no/such/program") }, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err := r.Start(context.Background()); err == nil || !strings.Contains(err.Error(), "start worker 0 (/no/such/program)") {
		t.Error(err)
	}
}
