package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// slow reads a line as the Reader does for lines that are not plain.
func slow(line []byte) (Op, fields, error) {
	var o Op
	f, err := o.decode(line)
	return o, f & required, err
}

const required = hasIndex | hasTime | hasProcess

// agree fails if a line that the line parser takes means something else to
// encoding/json.
func agree(t *testing.T, p *lineParser, line []byte) bool {
	t.Helper()
	var o Op
	has, ok := p.parse(line, &o)
	if !ok {
		return false
	}
	want, wantHas, err := slow(line)
	if err != nil {
		t.Fatalf("%q: taken, though %v", line, err)
	}
	if !reflect.DeepEqual(o, want) || has&required != wantHas {
		t.Fatalf("%q\ngot  %+v %b\nwant %+v %b", line, o, has&required, want, wantHas)
	}
	return true
}

var plainLines = []string{
	`{"index":12,"time":104233871,"process":3,"type":"invoke","f":"acquire","key":"orders/99999","ttl":1000000000}`,
	`{"f":"write","seq":19,"value":41,"token":7,"grant":12,"key":"orders","type":"ok","process":"store","time":1,"index":0}`,
	`{"index": 1, "time": -5, "process": "nemesis", "type": "info", "f": "pause", "value": "n1"}`,
	"{\t\"time\" : 0 , \"process\":0,\"type\":\"fail\",\"f\":\"\",\"error\":\"held\",\"session\":false,\"from\":-1 }",
	`{"time":1,"process":1,"type":"info","f":"renewed","session":true,"key":"Zürich"}`,
	`{"time":999999999999999999}`,
}

var unusualLines = []string{
	`{}`, `{"time":1,}`, `{,"time":1}`, `{"time":1}}`, `{"time":1} {}`, `{"time":01}`, `{"time":-}`, `{"time":1.0}`, `{"time":1e3}`,
	`{"time":9223372036854775807}`, `{"time":9223372036854775808}`, `{"token":18446744073709551615}`, `{"time":null}`,
	`{"time":1,"time":2}`, `{"TIME":1}`, `{"other":1}`, `{"f":"a\u0062"}`, `{"f":"a\"b"}`, "{\"f\":\"a\xff\"}", "{\"f\":\"a\x01\"}",
	`{"process":-1}`, `{"process":"3"}`, `{"type":"maybe"}`, `{"type":1}`, `{"session":"true"}`, `{"session":truex}`, `{"value":{"fault":4}}`,
	`{"value":null}`, `{"value":[1]}`, `{"error":["a"]}`, `{"error":null}`, `{"grant":-1}`, `{"grant":+1}`, `{"grant":1`, `{"f":"a}`, `{"f" "a"}`, `{"time":1 2}`,
}

func TestPlainLines(t *testing.T) {
	p := newLineParser()
	for _, l := range plainLines {
		if !agree(t, p, []byte(l)) {
			t.Errorf("%s: went the slow way", l)
		}
	}
	for _, l := range unusualLines {
		if agree(t, p, []byte(l)) {
			t.Logf("%s: is plain", l)
		}
	}
	for n := range plainLines[0] {
		if agree(t, p, []byte(plainLines[0][:n])) {
			t.Errorf("took a line cut at %d", n)
		}
	}
}

// Values share a block of memory; writing to one must not reach the next.
func TestKeptValuesDoNotOverlap(t *testing.T) {
	p := newLineParser()
	var a, b Op
	if _, ok := p.parse([]byte(`{"value":12}`), &a); !ok {
		t.Fatal("not plain")
	}
	p.parse([]byte(`{"value":34}`), &b)
	a.Value = append(a.Value, "5678"...)
	if string(b.Value) != "34" {
		t.Errorf("the second value became %s", b.Value)
	}
	long := strings.Repeat("x", roomSize)
	p.parse([]byte(`{"value":"`+long+`"}`), &b)
	if len(b.Value) != roomSize+2 {
		t.Errorf("a long value of %d bytes", len(b.Value))
	}
}

func TestPlainLinesAllocateNothing(t *testing.T) {
	p := newLineParser()
	line := []byte(plainLines[0])
	var o Op
	if n := testing.AllocsPerRun(100, func() { p.parse(line, &o) }); n != 0 {
		t.Errorf("%v allocations a line", n)
	}
}

// FuzzLine compares the line parser with encoding/json, and the whole Reader
// with one that has only encoding/json: events and errors must be the same.
func FuzzLine(f *testing.F) {
	for _, l := range append(plainLines, unusualLines...) {
		f.Add([]byte(l))
	}
	f.Add([]byte(example))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := newLineParser()
		for line := range bytes.Lines(b) {
			agree(t, p, bytes.TrimSpace(line))
		}
		fast, plain := NewReader(bytes.NewReader(b), "f"), NewReader(bytes.NewReader(b), "f")
		plain.plain = nil
		for {
			got, err := fast.Next()
			want, wantErr := plain.Next()
			if !reflect.DeepEqual(got, want) || said(err) != said(wantErr) || fast.Truncated != plain.Truncated {
				t.Fatalf("%q\ngot  %+v %v %s\nwant %+v %v %s", b, got, err, fast.Truncated, want, wantErr, plain.Truncated)
			}
			if err != nil {
				return
			}
		}
	})
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestReadOverwrites(t *testing.T) {
	rd := NewReader(strings.NewReader(example), "h")
	var o Op
	for range 7 {
		o.Extra = map[string]json.RawMessage{"left": nil}
		if err := rd.Read(&o); err != nil || o.Extra["left"] != nil && len(o.Extra) > 0 {
			t.Fatal(o, err)
		}
	}
	if err := rd.Read(&o); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
