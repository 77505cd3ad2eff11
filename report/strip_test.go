package report

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

var update = flag.Bool("update", false, "write the golden files anew")

func compare(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; -update writes it anew. Got\n%s\nwant\n%s", file, got, want)
	}
}

// harmless fails if a terminal would do more with the text than show it.
func harmless(t *testing.T, b []byte) {
	t.Helper()
	for _, r := range string(b) {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError) {
			t.Fatalf("%U reaches the terminal:\n%q", r, b)
		}
	}
}

func narrow(t *testing.T, b []byte, width int) {
	t.Helper()
	for _, l := range strings.Split(string(b), "\n") {
		if n := utf8.RuneCountInString(l); n > width {
			t.Errorf("a line of %d characters, width %d: %s", n, width, l)
		}
	}
}

func strip(t *testing.T, s *story, a checker.Anomaly, o StripOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Strip(&b, s.ops, a, o); err != nil {
		t.Fatal(err)
	}
	if !o.Color {
		harmless(t, b.Bytes())
		narrow(t, b.Bytes(), width(o.Width))
	}
	return b.Bytes()
}

func stripKey(t *testing.T, s *story, from, to int64, o StripOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := StripKey(&b, s.ops, s.key, from, to, o); err != nil {
		t.Fatal(err)
	}
	harmless(t, b.Bytes())
	narrow(t, b.Bytes(), width(o.Width))
	return b.Bytes()
}

// staleWrite is what the checker says of a story in which a write of grant 1
// arrives after those of grant 2.
func staleWrite(t *testing.T, s *story) checker.Anomaly {
	last := s.find(t, history.Store, history.OK, history.Write, 1)
	return checker.Anomaly{
		Kind: "stale-write", Key: s.key, Time: last.Time,
		Ops: []int{
			s.find(t, history.Store, history.OK, history.Read, 1).Index,
			s.find(t, history.Store, history.OK, history.Write, 2).Index, last.Index,
		},
		Message: "process 0 wrote under grant 1, long after its lease had ended; process 1 under grant 2 had written in between",
	}
}

func TestStripGolden(t *testing.T) {
	none, plainLock, zk, killed := gcPause(true, false), gcPause(false, false), zookeeper(), crash()
	fenced := gcPause(true, true)
	overlap := checker.Anomaly{
		Kind: "overlap", Class: "in-lease", Key: killed.key, Message: "both leases stood",
		Ops:  []int{killed.find(t, 3, history.OK, history.Acquire, 8).Index, killed.find(t, 7, history.OK, history.Acquire, 9).Index},
		Time: killed.find(t, 7, history.OK, history.Acquire, 9).Time,
	}
	for name, got := range map[string][]byte{
		"strip-none":          strip(t, none, staleWrite(t, none), StripOptions{}),
		"strip-none-60":       strip(t, none, staleWrite(t, none), StripOptions{Width: 60}),
		"strip-none-ascii":    strip(t, none, staleWrite(t, none), StripOptions{Width: 90, ASCII: true}),
		"strip-none-color":    strip(t, none, staleWrite(t, none), StripOptions{Color: true}),
		"strip-no-token-140":  strip(t, plainLock, staleWrite(t, plainLock), StripOptions{Width: 140}),
		"strip-monotonic":     stripKey(t, fenced, 0, 0, StripOptions{}),
		"strip-zookeeper":     strip(t, zk, staleWrite(t, zk), StripOptions{}),
		"strip-failover-kill": strip(t, killed, overlap, StripOptions{}),
	} {
		compare(t, name, got)
	}
}

// What the checker finds in the story is what the strip can show.
func TestStripOfWhatIsFound(t *testing.T) {
	for _, s := range []*story{gcPause(true, false), gcPause(false, false), zookeeper(), crash()} {
		r := checker.Check(context.Background(), s.ops, history.Header{TTL: 1e9})
		if r.Verdict != checker.Invalid {
			t.Errorf("%s: %v", s.key, r.Verdict)
		}
		for _, p := range r.Properties {
			for _, a := range p.Anomalies {
				if got := strip(t, s, a, StripOptions{}); bytes.Contains(got, []byte("Not in this history")) || !bytes.Contains(got, []byte("process ")) {
					t.Errorf("%s", got)
				}
			}
		}
	}
}

// Every anomaly of the checker's corpus can be drawn, at any width.
func TestStripCorpus(t *testing.T) {
	files, err := filepath.Glob("../checker/testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		ops, rd, err := history.ReadAll(f, name)
		f.Close()
		if err != nil {
			continue // it is about malformed histories
		}
		r := checker.Check(context.Background(), ops, rd.Header)
		s := &story{ops: ops}
		for _, p := range r.Properties {
			for _, a := range p.Anomalies {
				for _, o := range []StripOptions{{}, {Width: 60}, {Width: 77, ASCII: true}, {Width: 250, Reentrant: true}} {
					strip(t, s, a, o)
				}
			}
		}
		if len(ops) > 0 {
			s.key = ops[0].Key
			stripKey(t, s, 0, 0, StripOptions{})
			stripKey(t, s, 5e6, 40e6, StripOptions{Width: 60})
		}
	}
}

func TestStripOfNothing(t *testing.T) {
	empty, one := &story{key: "k"}, &story{key: "k"}
	one.event(5, 0, history.Invoke, history.Acquire)
	single := &story{key: "k"}
	single.applied(5, history.Write, grant(1), value(1))
	for _, s := range []*story{empty, one, single} {
		for _, a := range []checker.Anomaly{
			{}, {Key: "k", Ops: []int{0}}, {Kind: "stuck", Key: "k", Ops: []int{}, Time: 9e9}, {Key: "other", Ops: []int{0, 0, 7, -1}, Time: -3},
		} {
			strip(t, s, a, StripOptions{})
		}
		stripKey(t, s, 0, 0, StripOptions{})
		stripKey(t, s, 9, 3, StripOptions{})
		stripKey(t, s, 5e6, 5e6, StripOptions{})
	}
	s := gcPause(true, false)
	a := staleWrite(t, s)
	a.Ops = []int{9999, a.Ops[2], 12345}
	if got := string(strip(t, s, a, StripOptions{})); !strings.Contains(got, "Not in this history: events #9999 #12345 of the anomaly.") || !strings.Contains(got, "stale write applied") {
		t.Error(got)
	}
	a.Ops = []int{9999}
	if got := string(strip(t, s, a, StripOptions{})); !strings.Contains(got, "event #9999") || !strings.Contains(got, "grant 2") {
		t.Error(got)
	}
}

const hostile = "k\x1b[31mred\x1b[0m\r\n\tverdict: valid\u202e\u0085\x00\x7f\xff'\"“"

func TestStripHostile(t *testing.T) {
	s := gcPause(true, false)
	a := staleWrite(t, s)
	a.Key, a.Kind, a.Class, a.Message = hostile, hostile, hostile, hostile
	for i := range s.ops {
		o := &s.ops[i]
		if o.Process != history.Nemesis {
			o.Key = hostile
			if o.F == history.Write {
				o.Value = []byte(`"` + hostile + `"`)
			}
		} else {
			o.F = hostile
		}
		if o.Type == history.Fail {
			o.Error = hostile
		}
	}
	s.key = hostile
	got := strip(t, s, a, StripOptions{})
	if !bytes.Contains(got, []byte(`\x1b[31m`)) {
		t.Errorf("the key is not spelled out: %s", got)
	}
	for _, b := range strip(t, s, a, StripOptions{ASCII: true}) {
		if b >= utf8.RuneSelf {
			t.Fatalf("%#x in an ASCII strip", b)
		}
	}
	stripKey(t, s, 0, 0, StripOptions{})
}

func TestStripManyProcesses(t *testing.T) {
	s := &story{key: "k"}
	for p := range history.Process(9) {
		s.op(float64(10+5*p), p, history.Acquire, grant(uint64(p)), validMS(50))
	}
	for p := range history.Process(30) {
		s.op(float64(60+2*p), 100+p, history.Acquire, fails(history.ErrHeld))
	}
	a := checker.Anomaly{Kind: "overlap", Key: "k", Ops: []int{1, len(s.ops) - 1}, Time: 1e8}
	got := string(strip(t, s, a, StripOptions{Width: 60}))
	if n := strings.Count(got, "\nprocess "); n != maxLanes {
		t.Errorf("%d lanes:\n%s", n, got)
	}
	if !strings.Contains(got, "no lane for processes 5 6 7 8.") || !strings.Contains(got, "and 17 more") {
		t.Error(got)
	}
}

// A long history must not take long, wherever the anomaly is: a second or so.
// The bound leaves room for the race detector on a busy machine; quadratic work
// would take hours.
func TestStripLongHistory(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n /= 10
	}
	s := longHistory(n)
	a := checker.Anomaly{Kind: "stale-write", Key: "k", Ops: []int{3, n / 2, n - 10}, Time: s.ops[n-10].Time}
	begun := time.Now()
	got := strip(t, s, a, StripOptions{})
	stripKey(t, s, 0, 0, StripOptions{})
	if took := time.Since(begun); took > 2*time.Minute {
		t.Errorf("took %v", took)
	}
	if !bytes.Contains(got, []byte("Left out:")) {
		t.Errorf("says nothing of what it left out:\n%s", got)
	}
}

func longHistory(n int) *story {
	s := &story{key: "k", ops: make([]history.Op, 0, n+16)}
	for g := uint64(1); len(s.ops) < n; g++ {
		at, p := float64(g)*10, history.Process(g%7)
		s.op(at, p, history.Acquire, grant(g), token(g), validMS(100))
		s.access(at+2, p, history.Read, grant(g), token(g), value(int(g)))
		s.access(at+5, p, history.Write, grant(g), token(g), value(int(g)))
		s.op(at+7, p, history.Release, grant(g))
	}
	return s
}

func BenchmarkStrip(b *testing.B) {
	s := longHistory(1_000_000)
	for b.Loop() {
		if err := StripKey(new(bytes.Buffer), s.ops, s.key, 0, 0, StripOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestErrorsOfWriting(t *testing.T) {
	s := gcPause(true, false)
	r := checker.Results{Verdict: checker.Valid}
	for name, err := range map[string]error{
		"strip":   Strip(brokenPipe{}, s.ops, staleWrite(t, s), StripOptions{}),
		"key":     StripKey(brokenPipe{}, s.ops, s.key, 0, 0, StripOptions{}),
		"results": Results(brokenPipe{}, &r, TextOptions{}),
		"table":   DemoTable(brokenPipe{}, nil, false),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// No history makes a strip fail, spill or outgrow its width: events at random,
// most of them nonsense.
func TestStripRandom(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := &story{key: "k"}
		at := int64(0)
		for range rng.IntN(40) {
			at += []int64{0, 1, 1e3, 1e6, 1e9, math.MaxInt64 / 64}[rng.IntN(6)]
			s.ops = append(s.ops, randomOp(rng, len(s.ops), at))
		}
		pick := func() int { return rng.IntN(45) - 1 }
		a := checker.Anomaly{Kind: []string{"stale-write", "stuck", "overlap", "new"}[rng.IntN(4)], Key: "k", Time: at - int64(rng.IntN(3)), Message: "m"}
		for range rng.IntN(5) {
			a.Ops = append(a.Ops, pick())
		}
		o := StripOptions{Width: rng.IntN(120), ASCII: rng.IntN(2) == 0, Reentrant: rng.IntN(2) == 0}
		strip(t, s, a, o)
		stripKey(t, s, 0, 0, o)
		stripKey(t, s, rng.Int64N(at+1), at, o)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomOp(rng *rand.Rand, i int, at int64) history.Op {
	fs := []string{
		history.Acquire, history.Acquire, history.Renew, history.Check, history.Read, history.Write, history.Write,
		history.Release, history.Close, history.Mark, history.Renewed, history.Lost, "other",
	}
	o := history.Op{Index: i, Time: at, Process: history.Process(rng.IntN(10) - 2), Type: history.Type(1 + rng.IntN(4)), F: fs[rng.IntN(len(fs))], Key: "k"}
	if rng.IntN(4) > 0 {
		o.Grant = history.Some(uint64(rng.IntN(6)))
	}
	if rng.IntN(2) > 0 {
		o.Token = history.Some(rng.Uint64() >> rng.IntN(64))
	}
	if rng.IntN(2) > 0 {
		o.Valid = history.Some(rng.Int64() >> rng.IntN(64))
	}
	if rng.IntN(3) == 0 {
		o.From = history.Some(rng.Int64N(at + 2))
	}
	o.Session = rng.IntN(3) == 0
	o.Error = []string{"", history.ErrHeld, history.ErrNotHeld, history.ErrCrashed}[rng.IntN(4)]
	o.Value = []byte([]string{"1", "", "null", `"x"`, "-99999999999"}[rng.IntN(5)])
	if o.Process == history.Nemesis {
		o.F, o.Key = []string{"pause", "kill", "partition"}[rng.IntN(3)], ""
		phase := []string{history.Asked, history.Done, history.Healed, history.Skipped, ""}[rng.IntN(5)]
		o.Value = fmt.Appendf(nil, `{"fault":%d,"phase":%q,"targets":[%d,"n1"]}`, rng.IntN(3), phase, rng.IntN(8))
	}
	return o
}
