package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
