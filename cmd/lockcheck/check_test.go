package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

// What check says of a file is what the checker says of its events when it has
// them all at once: nothing may hold on to an event after it was handed over.
func TestStreamEqualsBatch(t *testing.T) {
	files, err := filepath.Glob("../../checker/testdata/*.jsonl")
	if err != nil || len(files) < 80 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		ops, rd, err := history.ReadAll(bytes.NewReader(b), file)
		got, _ := judgeFile(t, b)
		if err != nil {
			if got.Error == "" {
				t.Errorf("%s: judged, though %v", file, err)
			}
			continue
		}
		want := checker.Check(context.Background(), ops, rd.Header)
		a, _ := json.Marshal(got.Results)
		c, _ := json.Marshal(want)
		if !reflect.DeepEqual(a, c) {
			t.Errorf("%s\nstream %s\nbatch  %s", file, a, c)
		}
	}
}

func judgeFile(t testing.TB, b []byte) (checked, int) {
	t.Helper()
	a := &app{in: bytes.NewReader(b), out: io.Discard, err: io.Discard}
	return a.checkFile(context.Background(), &checkFlags{timeout: time.Minute, reentry: 2}, "-")
}

// crashedAcquires is D11: fourteen acquires whose client died, clean pairs, and
// near the end a second holder without a release.
func crashedAcquires(second bool) []byte {
	var b []byte
	n := 0
	put := func(o history.Op) {
		n++
		o.Index, o.Time, o.Key = n-1, int64(n)*1_000_000, "k"
		b = append(history.AppendJSON(b, &o), '\n')
	}
	for p := range history.Process(14) {
		put(history.Op{Process: 100 + p, Type: history.Invoke, F: history.Acquire})
		put(history.Op{Process: 100 + p, Type: history.Info, F: history.Acquire, Error: "timeout"})
	}
	const pairs = 200
	for i := range uint64(pairs) {
		p, g := history.Process(i%5), history.Some(i)
		put(history.Op{Process: p, Type: history.Invoke, F: history.Acquire})
		put(history.Op{Process: p, Type: history.OK, F: history.Acquire, Grant: g})
		if i == pairs-5 {
			other, of := history.Process(50), history.Some(uint64(9999))
			if !second {
				put(history.Op{Process: p, Type: history.Invoke, F: history.Release, Grant: g})
				put(history.Op{Process: p, Type: history.OK, F: history.Release, Grant: g})
			}
			put(history.Op{Process: other, Type: history.Invoke, F: history.Acquire})
			put(history.Op{Process: other, Type: history.OK, F: history.Acquire, Grant: of})
			if second {
				continue
			}
			put(history.Op{Process: other, Type: history.Invoke, F: history.Release, Grant: of})
			put(history.Op{Process: other, Type: history.OK, F: history.Release, Grant: of})
			continue
		}
		put(history.Op{Process: p, Type: history.Invoke, F: history.Release, Grant: g})
		put(history.Op{Process: p, Type: history.OK, F: history.Release, Grant: g})
	}
	return b
}

// D11: a verdict within a second and 200 MB, where a search exhausted 128 GB.
func TestD11CrashedAcquires(t *testing.T) {
	for _, second := range []bool{true, false} {
		b := crashedAcquires(second)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		r, _ := judgeFile(t, b)
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		if r.Error != "" {
			t.Fatal(r.Error)
		}
		want := checker.Valid
		if second {
			want = checker.Invalid
		}
		for _, p := range []string{checker.Lease, checker.Linearizable} {
			got := r.Properties[p]
			if second && got.Verdict != want || !second && got.AnomalyCount > 0 {
				t.Errorf("second holder %v: %s is %v: %s", second, p, got.Verdict, got.Reason)
			}
		}
		if took > time.Second || after.TotalAlloc-before.TotalAlloc > 200<<20 {
			t.Errorf("took %v and %d MB", took, (after.TotalAlloc-before.TotalAlloc)>>20)
		}
	}
}

// An event of a gigabyte on standard input is refused, not read.
func TestHugeLine(t *testing.T) {
	a := &app{in: io.MultiReader(strings.NewReader(`{"time":1,"f":"`), &zeros{left: 1 << 30}), out: io.Discard, err: io.Discard}
	r, code := a.checkFile(context.Background(), &checkFlags{timeout: time.Minute, reentry: 2}, "-")
	if code != exitUsage || !strings.Contains(r.Error, "-:1: a line of more than 16 MB") {
		t.Errorf("%d %s", code, r.Error)
	}
}

type zeros struct{ left int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), z.left)
	for i := range p[:n] {
		p[i] = 'x'
	}
	z.left -= n
	return n, nil
}

// service writes the events of an honest lock: keys in turn, holders that read,
// write and release, others that are refused, and the store's entries.
func service(events int) []byte {
	var b []byte
	at, index, seq, grant := int64(0), 0, uint64(0), uint64(0)
	put := func(o history.Op) {
		at += 137_913
		o.Index, o.Time = index, at
		index++
		b = append(history.AppendJSON(b, &o), '\n')
	}
	values := map[string]int{}
	for index < events {
		key := fmt.Sprintf("orders/%d", 10_000+grant%4)
		p, other := history.Process(grant%20), history.Process((grant+7)%20)
		grant++
		g, token := history.Some(grant), history.Some(grant)
		put(history.Op{Process: p, Type: history.Invoke, F: history.Acquire, Key: key, TTL: history.Some(int64(1e9))})
		put(history.Op{Process: p, Type: history.OK, F: history.Acquire, Key: key, Grant: g, Token: token, Valid: history.Some(int64(988_000_000))})
		put(history.Op{Process: other, Type: history.Invoke, F: history.Acquire, Key: key, TTL: history.Some(int64(1e9))})
		put(history.Op{Process: other, Type: history.Fail, F: history.Acquire, Key: key, Error: history.ErrHeld})
		for _, f := range []string{history.Read, history.Write} {
			o := history.Op{Process: p, Type: history.Invoke, F: f, Key: key, Grant: g, Token: token}
			if f == history.Write {
				values[key]++
				o.Value = json.RawMessage(fmt.Sprint(values[key]))
			}
			put(o)
			seq++
			o.Type, o.Value = history.OK, json.RawMessage(fmt.Sprint(values[key]))
			applied := o
			applied.Process, applied.Seq = history.Store, history.Some(seq)
			put(applied)
			put(o)
		}
		put(history.Op{Process: p, Type: history.Invoke, F: history.Release, Key: key, Grant: g})
		put(history.Op{Process: p, Type: history.OK, F: history.Release, Key: key, Grant: g})
	}
	return b
}

// The verdict on each file of the corpus is the known one, also where nobody says
// which model it is of.
func TestCorpus(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; filepath.Dir(dir) != dir; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "shared", "corpus")); err == nil {
			break
		}
	}
	tables, _ := filepath.Glob(filepath.Join(dir, "shared", "corpus", "*", "expected.tsv"))
	if len(tables) == 0 {
		t.Skip("the corpus is not there")
	}
	for _, table := range tables {
		text, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			name, want, _ := strings.Cut(strings.TrimSpace(line), "\t")
			a := &app{out: io.Discard, err: io.Discard}
			r, code := a.checkFile(context.Background(), &checkFlags{timeout: time.Minute, reentry: 2}, filepath.Join(filepath.Dir(table), name))
			if r.Results == nil || r.Verdict.String() != want || code != codeOf(r.Verdict) || !r.Guessed {
				t.Errorf("%s: %d %s, want %s", name, code, r.Error, want)
			}
		}
	}
}

// leased is a lock with leases and tokens, and clients that take it in turns. Some
// of their outcomes are unknown; the client then goes on as another process.
type leased struct {
	*rand.Rand
	now    int64
	out    []byte
	n      int
	grants uint64
	locks  []leasedLock
	info   float64
}

type leasedLock struct {
	holder   uint64 // grant
	deadline int64
	stated   int64 // the end of the lease as its holder was told it
	token    uint64
}

type leasedClient struct {
	process history.Process
	doing   string // the open operation
	key     int
	grant   uint64 // that it holds
	since   int64
}

const leasedTTL = 50_000_000

func (l *leased) put(c *leasedClient, t history.Type, f string, with func(*history.Op)) {
	o := history.Op{Index: l.n, Time: l.now, Process: c.process, Type: t, F: f, Key: fmt.Sprint("key-", c.key)}
	l.n++
	with(&o)
	l.out = append(history.AppendJSON(l.out, &o), '\n')
}

func (l *leased) step(c *leasedClient, clients int, lie bool) {
	lock := &l.locks[c.key]
	granted := func(o *history.Op) { o.Grant = history.Some(c.grant) }
	switch {
	case c.doing == "" && c.grant == 0:
		c.key, c.doing, c.since = l.IntN(len(l.locks)), history.Acquire, l.now
		l.put(c, history.Invoke, history.Acquire, func(o *history.Op) { o.TTL = history.Some(int64(leasedTTL)) })
	case c.doing == "":
		c.doing = history.Release
		l.put(c, history.Invoke, history.Release, granted)
	case l.Float64() < l.info:
		if applies := l.IntN(2) == 0; applies && c.doing == history.Acquire && l.free(lock) {
			l.grants++
			*lock = leasedLock{l.grants, l.now + leasedTTL, 0, lock.token + 1}
		} else if applies && c.doing == history.Release && lock.holder == c.grant {
			lock.holder = 0
		}
		l.put(c, history.Info, c.doing, func(o *history.Op) { o.Error = "timeout" })
		*c = leasedClient{process: c.process + history.Process(clients)}
	case c.doing == history.Acquire:
		c.doing = ""
		if !l.free(lock) && !lie {
			l.put(c, history.Fail, history.Acquire, func(o *history.Op) { o.Error = history.ErrHeld })
			return
		}
		l.grants++
		c.grant = l.grants
		*lock = leasedLock{c.grant, l.now + leasedTTL, c.since + leasedTTL, lock.token + 1}
		l.put(c, history.OK, history.Acquire, func(o *history.Op) {
			o.Grant, o.Token, o.Valid = history.Some(c.grant), history.Some(lock.token), history.Some(int64(leasedTTL))
		})
	default:
		c.doing = ""
		if mine := lock.holder == c.grant && !l.free(lock); mine {
			lock.holder = 0
			l.put(c, history.OK, history.Release, granted)
		} else {
			l.put(c, history.Fail, history.Release, func(o *history.Op) { granted(o); o.Error = history.ErrNotHeld })
		}
		c.grant = 0
	}
}

func (l *leased) free(k *leasedLock) bool { return k.holder == 0 || k.deadline < l.now }

// run gives a history; with lie one acquire is granted although the lock is held.
func (l *leased) run(keys, clients, events int, lie bool) []byte {
	l.locks = make([]leasedLock, keys)
	l.out = []byte(`{"lockcheck":1,"require":["lease","fencing","release","progress","linearizable"]}` + "\n")
	cs := make([]leasedClient, clients)
	for i := range cs {
		cs[i].process = history.Process(i)
	}
	for l.n < events {
		l.now += 1 + l.Int64N(1_000_000)
		c := &cs[l.IntN(clients)]
		k := l.locks[c.key]
		now := lie && l.n > events/2 && c.doing == history.Acquire && k.holder != 0 && min(k.stated, c.since+leasedTTL) > l.now+1
		before := l.grants
		l.step(c, clients, now)
		lie = lie && (!now || l.grants == before)
	}
	return l.out
}

// One key or many, fifty clients, whatever share of the outcomes is unknown: there
// is a verdict, and it is the right one.
func TestVerdictInAllCases(t *testing.T) {
	for _, keys := range []int{1, 200} {
		for _, info := range []float64{0, 0.01, 0.1} {
			for _, lie := range []bool{false, true} {
				l := &leased{Rand: rand.New(rand.NewPCG(1, uint64(keys))), info: info}
				text := l.run(keys, 50, 30_000, lie)
				want := checker.Valid
				if lie {
					want = checker.Invalid
				}
				r, _ := judgeFile(t, text)
				if r.Results == nil || r.Verdict != want {
					b, _ := json.Marshal(r)
					t.Errorf("%d keys, %v unknown, a lie %v: %s", keys, info, lie, b)
				}
			}
		}
	}
}

func TestFeedStops(t *testing.T) {
	text := service(10_000)
	src := history.NewReader(bytes.NewReader(text), "h")
	n := 0
	enough := errors.New("enough")
	if err := feed(src, func(*history.Op) error {
		if n++; n == 700 {
			return enough
		}
		return nil
	}); !errors.Is(err, enough) || n != 700 {
		t.Error(n, err)
	}
	n = 0
	if err := feed(history.NewReader(bytes.NewReader(text), "h"), func(*history.Op) error { n++; return nil }); err != nil || n < 10_000 {
		t.Error(n, err)
	}
}
