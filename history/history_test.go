package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func read(t *testing.T, text string) ([]Op, *Reader, error) {
	t.Helper()
	return ReadAll(strings.NewReader(text), "h.jsonl")
}

// The lines that the design shows must survive a round trip unchanged.
const example = `{"index":12,"time":104233871,"process":3,"type":"invoke","f":"acquire","key":"orders/99999","ttl":1000000000}
{"index":13,"time":104233872,"process":3,"type":"ok","f":"acquire","key":"orders/99999","grant":12,"token":18446744073709551615,"valid":1000000000}
{"index":14,"time":104301002,"process":3,"type":"invoke","f":"write","key":"orders/99999","grant":12,"token":7,"value":41}
{"index":15,"time":104399120,"process":"store","type":"ok","f":"write","key":"orders/99999","grant":12,"token":7,"value":41,"seq":19}
{"index":16,"time":104420007,"process":3,"type":"ok","f":"write","key":"orders/99999","grant":12,"token":7,"value":41}
{"index":17,"time":105310000,"process":"nemesis","type":"info","f":"pause","value":{"fault":4,"phase":"done","targets":[3],"grants":[12],"evidence":{"state":"T"}}}
{"index":18,"time":106900000,"process":3,"type":"info","f":"renewed","key":"orders/99999","grant":12,"from":106880000,"valid":1000000000,"note":[1,{"a":"\u003c"}]}
`

func TestRoundTrip(t *testing.T) {
	ops, _, err := read(t, example)
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for i := range ops {
		b = append(AppendJSON(b, &ops[i]), '\n')
	}
	if string(b) != example {
		t.Errorf("got\n%s\nwant\n%s", b, example)
	}
	f, ok := FaultOf(&ops[5])
	if !ok || f.Phase != Done || f.Processes()[0] != 3 || f.Evidence["state"] != "T" {
		t.Errorf("fault %+v %v", f, ok)
	}
}

func TestMalformed(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"completion without invocation": {`{"time":1,"process":1,"type":"ok","f":"acquire","key":"k"}`, "h.jsonl:1: completion without an invocation"},
		"two open":                      {`{"time":1,"process":1,"type":"invoke","f":"acquire"}` + "\n" + `{"time":2,"process":1,"type":"invoke","f":"acquire"}`, "h.jsonl:2: process 1 invokes acquire while its acquire of line 1 is still open"},
		"after info":                    {`{"time":1,"process":1,"type":"invoke","f":"acquire"}` + "\n" + `{"time":2,"process":1,"type":"info","f":"acquire"}` + "\n" + `{"time":3,"process":1,"type":"invoke","f":"acquire"}`, "h.jsonl:3: process 1 invokes acquire although its operation of line 2 ended as info"},
		"time backwards":                {`{"time":5,"process":1,"type":"invoke","f":"acquire"}` + "\n" + `{"time":4,"process":2,"type":"invoke","f":"acquire"}`, "h.jsonl:2: time runs backwards: 4 ns after 5 ns"},
		"broken line":                   {`{"time":5,"process":1,` + "\n" + `{"time":4,"process":2,"type":"invoke","f":"acquire"}`, "h.jsonl:1: not JSON"},
		"binary":                        {"\x00\x01\x02", "h.jsonl:1: not JSON"},
		"wrong field":                   {`{"time":"x","process":1,"type":"invoke","f":"acquire"}` + "\n", `h.jsonl:1: field "time" holds a string`},
		"no process":                    {`{"time":1,"type":"invoke","f":"acquire"}` + "\n", "h.jsonl:1: an event without a process"},
		"a list":                        {"[1]\n", "h.jsonl:1: a JSON array where an event"},
		"type":                          {`{"time":1,"process":1,"type":"maybe","f":"acquire"}` + "\n", `type "maybe" is none of`},
		"version":                       {`{"lockcheck":9}` + "\n", "format version 9 is not known"},
		"other completion":              {`{"time":1,"process":1,"type":"invoke","f":"acquire"}` + "\n" + `{"time":2,"process":1,"type":"ok","f":"release"}`, "completes release while its open operation is acquire"},
		"negative grant":                {`{"time":1,"process":1,"type":"invoke","f":"release","grant":-1}` + "\n", `field "grant" holds a number -1`},
	} {
		_, _, err := read(t, c.text)
		var m *MalformedError
		if !errors.As(err, &m) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestLastLineCutShort(t *testing.T) {
	whole := example + `{"index":19,"time":106900001,"process":5,"type":"invoke","f":"acquire","key":"k"}`
	for n := len(example) + 1; n < len(whole); n++ {
		ops, rd, err := read(t, whole[:n])
		if err != nil || len(ops) != 7 || rd.Truncated == "" {
			t.Fatalf("cut at %d: %d events, %v, %q", n, len(ops), err, rd.Truncated)
		}
	}
	if ops, rd, err := read(t, whole); err != nil || len(ops) != 8 || rd.Truncated != "" {
		t.Errorf("a whole last line without its end: %d %v %q", len(ops), err, rd.Truncated)
	}
}

func TestHeaderAndIndexes(t *testing.T) {
	ops, rd, err := read(t, "\xef\xbb\xbf"+`{"lockcheck":1,"require":["lease"],"ttl":5,"reentrant":true,"other":1}`+"\r\n\r\n"+
		`{"time":5,"process":1,"type":"invoke","f":"acquire"}`+"\r\n"+`{"time":5,"process":1,"type":"ok","f":"acquire"}`+"\r\n")
	if err != nil || len(ops) != 2 || ops[1].Index != 1 || rd.Header.TTL != 5 || !rd.Header.Reentrant || rd.Header.Require[0] != "lease" {
		t.Errorf("%+v %+v %v", ops, rd.Header, err)
	}
	if _, _, err := read(t, ""); err != nil {
		t.Error(err)
	}
}

// Another case is another name, which encoding/json would not see.
func TestNamesInAnotherCase(t *testing.T) {
	line := `{"index":0,"time":1,"process":2,"type":"invoke","f":"acquire","Key":"k","TIME":{"a":1},"\u017fession":3}` + "\n"
	ops, _, err := read(t, line)
	if err != nil || ops[0].Time != 1 || ops[0].Key != "" || len(ops[0].Extra) != 3 {
		t.Errorf("%+v %v", ops, err)
	}
	if _, _, err := read(t, `{"Time":1,"process":1,"type":"invoke","f":"acquire"}`); err == nil || !strings.Contains(err.Error(), "an event without a time") {
		t.Error(err)
	}
}

func TestLongLine(t *testing.T) {
	r := NewReader(io.MultiReader(strings.NewReader(`{"a":"`), endless{}), "big")
	_, err := r.Next()
	if err == nil || !strings.Contains(err.Error(), "big:1: a line of more than 16 MB") {
		t.Error(err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestRecorderStampsStrictlyIncrease(t *testing.T) {
	var out bytes.Buffer
	var seen []int64
	r, err := NewRecorder(&out, Header{TTL: 7}, time.Now(), func(o *Op) { seen = append(seen, o.Time) })
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for p := range 8 {
		wg.Go(func() {
			for range 500 {
				r.Append(Op{Process: Process(p), Type: Invoke, F: Acquire, Key: "k"})
				r.Append(Op{Process: Process(p), Type: Fail, F: Acquire, Key: "k", Error: ErrHeld})
			}
		})
	}
	wg.Wait()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	ops, rd, err := ReadAll(&out, "h")
	if err != nil || len(ops) != 8000 || rd.Header.TTL != 7 {
		t.Fatal(len(ops), err)
	}
	for i := range ops {
		if ops[i].Index != i || ops[i].Time != seen[i] || i > 0 && ops[i].Time <= ops[i-1].Time {
			t.Fatalf("event %d: %+v", i, ops[i])
		}
	}
}

type fullDisk struct{ left int }

func (f *fullDisk) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(p), nil
}

func TestRecorderFullDisk(t *testing.T) {
	r, err := NewRecorder(&fullDisk{100}, Header{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		r.Append(Op{Type: Invoke, F: Acquire})
	}
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
	if _, err := NewRecorder(&fullDisk{1}, Header{}, time.Now()); err == nil {
		t.Error("no error from a header that could not be written")
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(`{"lockcheck":1}` + "\n" + `{"time":1,"process":"store","type":"ok","f":"write","value":null,"error":["a",1]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		ops, _, err := ReadAll(bytes.NewReader(b), "fuzz")
		if err != nil {
			return
		}
		var again []byte
		for i := range ops {
			again = append(AppendJSON(again, &ops[i]), '\n')
			if !json.Valid(again[bytes.LastIndexByte(again[:len(again)-1], '\n')+1:]) {
				t.Fatalf("wrote what is not JSON: %s", again)
			}
		}
		back, _, err := ReadAll(bytes.NewReader(again), "again")
		if err != nil || len(back) != len(ops) {
			t.Fatalf("what was read cannot be read again: %v\n%s", err, again)
		}
		for i := range ops {
			if !reflect.DeepEqual(compact(ops[i]), compact(back[i])) {
				t.Fatalf("%+v came back as %+v", ops[i], back[i])
			}
		}
	})
}

func compact(o Op) Op {
	squeeze := func(m json.RawMessage) json.RawMessage {
		var b bytes.Buffer
		if len(m) == 0 || json.Compact(&b, m) != nil {
			return m
		}
		return b.Bytes()
	}
	o.Value = squeeze(o.Value)
	extra := map[string]json.RawMessage{}
	for k, v := range o.Extra {
		extra[k] = squeeze(v)
	}
	o.Extra = extra
	return o
}

func BenchmarkAppend(b *testing.B) {
	dev, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	r, err := NewRecorder(dev, Header{}, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	o := Op{Process: 3, Type: OK, F: Acquire, Key: "orders/99999", Grant: Some(uint64(12)), Token: Some(uint64(7)), Valid: Some(int64(1e9))}
	const batch = 100_000 // `make bench` asks for few rounds
	for b.Loop() {
		for range batch {
			r.Append(o)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/event")
}
