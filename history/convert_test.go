package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// convert gives a text in another format; cut is what was left out.
func convert(t testing.TB, text []byte, from, to Format) (out []byte, cut string, err error) {
	t.Helper()
	var s Source
	switch from {
	case EDN:
		s = newEDNReader(bytes.NewReader(text), "in")
	case JepsenLog:
		s = newLogReader(bytes.NewReader(text), "in")
	default:
		s = NewReader(bytes.NewReader(text), "in")
	}
	var b bytes.Buffer
	_, err = Convert(&b, s, to)
	return b.Bytes(), s.About().Truncated, err
}

func mustConvert(t testing.TB, text []byte, from, to Format) []byte {
	t.Helper()
	out, cut, err := convert(t, text, from, to)
	if err != nil || cut != "" {
		t.Fatalf("%s to %s: %v %s\n%s", from, to, err, cut, text)
	}
	return out
}

// meaning is what JSON lines say to anybody who reads them with encoding/json.
func meaning(t testing.TB, lines []byte) []any {
	t.Helper()
	var all []any
	d := json.NewDecoder(bytes.NewReader(lines))
	d.UseNumber()
	for {
		var v any
		switch err := d.Decode(&v); err {
		case nil:
			all = append(all, v)
		case io.EOF:
			return all
		default:
			t.Fatalf("%v\n%s", err, lines)
		}
	}
}

// thereAndBack holds that JSON lines which the Reader took, written again, go to
// EDN and come back as they are, and that the EDN does too.
func thereAndBack(t *testing.T, text []byte, from Format) {
	t.Helper()
	first, _, err := convert(t, text, from, JSONL)
	if err != nil {
		return
	}
	edn := mustConvert(t, first, JSONL, EDN)
	back := mustConvert(t, edn, EDN, JSONL)
	if a, b := meaning(t, withHeader(first)), meaning(t, withHeader(back)); !reflect.DeepEqual(a, b) {
		t.Fatalf("%s\nbecame\n%s\nby way of\n%s", first, back, edn)
	}
	if again := mustConvert(t, back, JSONL, EDN); !bytes.Equal(again, edn) {
		t.Fatalf("%s\nbecame\n%s\nby way of\n%s", edn, again, back)
	}
}

// withHeader adds the header that EDN of our own always has.
func withHeader(lines []byte) []byte {
	if h, _ := parseHeader(bytes.SplitN(lines, []byte("\n"), 2)[0]); h != nil {
		return lines
	}
	return append([]byte(`{"lockcheck":1}`+"\n"), lines...)
}

const oddLines = `{"lockcheck":1,"ttl":5,"unknown":{"a b":[null,true]},"require":["lease"]}
{"index":0,"time":5,"process":0,"type":"invoke","f":"acquire","key":"a \"b\" \\ \n ü","note":{"#edn":":kw"},"x y":1.5e3,":ns/k":null,":k":1,"#edn \"k\"":2,"#edn k":3,"edn:time":7,"edn:nothing":0}
{"index":1,"time":5,"process":0,"type":"fail","f":"acquire","error":["a",{"b":12345678901234567890123}],"value":{"#edn":"#{1 2}","more":[{}]}}
{"index":2,"time":6,"process":"nemesis","type":"info","f":"some thing","value":{"#edn":"5"}}
{"index":3,"time":6,"process":"store","type":"ok","f":"write","seq":18446744073709551615,"value":{"#edn":"{\"#edn\" \":a\"}"},"lockcheck":2}
{"index":4,"time":6,"process":7,"type":"invoke","f":":strange","ttl":-1,"from":-2,"valid":0,"session":true,"value":-0,"edn:error":{"#edn":":e"},"error":"e","edn:tag":"t"}
{"index":5,"time":7,"process":8,"type":"invoke","f":"nil","edn:process":{"#edn":":client"},"edn:key":{"#edn":":k"},"key":"other","edn:index":{"#edn":"5N"}}
`

func TestConvertThereAndBack(t *testing.T) {
	thereAndBack(t, []byte(example), JSONL)
	thereAndBack(t, []byte(oddLines), JSONL)
	files, err := filepath.Glob("../checker/testdata/*.jsonl")
	if err != nil || len(files) < 80 {
		t.Fatal(len(files), err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		thereAndBack(t, b, JSONL)
	}
}

// What JSON has no words for is kept too: EDN to JSON lines to EDN.
func TestConvertEDNThereAndBack(t *testing.T) {
	for _, edn := range []string{
		`{:index 0, :time 5, :process 0, :type :invoke, :f :read, :value nil}`,
		`{:index 0, :process 0, :type :invoke, :f :cas, :value [1 4]}`,
		`{:index 0, :time nil, :process :nemesis, :type :info, :f :start, :value #{:n1 :n2}}`,
		`{:index 0, :time 5N, :process 0, :type :invoke, :f :txn, :value [[:r 1 nil] (1 2) 1/2 3M 4N \a "s" #inst "2020-01-01" {[1] 2, :a/b 3, "c" 4} sym ##Inf 0x1F]}`,
		`{:index 0, :time 5.5, :process :client-1, :type "invoke", :f "read", :key :k, :session false}`,
		`{:index 0, :time 5, :process :nemesis, :type :info, :f :x, :error [:not-found "etcdserver: requested lease not found"]}`,
		`{:index 0, :time 5, :process :nemesis, :type :info, :f :x, :error :timeout, :ns/key 1, "str" 2, "a b" 3, 5 6}`,
		`#jepsen.history.Op{:index 0, :time 5, :process :nemesis, :type :info, :f :x, :error ""}`,
		`{:index 0, :time 5, :process :nemesis, :type :info, :f :x, :value {"#edn" ":a"}}`,
	} {
		lines := mustConvert(t, []byte(edn), EDN, JSONL)
		back := mustConvert(t, lines, JSONL, EDN)
		header, rest, _ := strings.Cut(string(back), "\n")
		if header != `{:lockcheck 1, :order "file"}` {
			t.Errorf("header %s", header)
		}
		want, got := mustForm(t, edn), mustForm(t, rest)
		if want != got {
			t.Errorf("%s\nbecame\n%sby way of\n%s", edn, rest, lines)
		}
	}
}

// mustForm gives a map as JSON, its entries sorted.
func mustForm(t *testing.T, edn string) string {
	t.Helper()
	edn = strings.TrimSpace(edn)
	tag, rest, _ := strings.Cut(edn, "{")
	p := ednParser{b: []byte("{" + rest)}
	j, err := p.form(nil)
	if err != nil {
		t.Fatal(edn, err)
	}
	var v map[string]any
	json.Unmarshal(j, &v)
	return tag + fmt.Sprint(v)
}

func TestConvertRefuses(t *testing.T) {
	if _, err := Convert(io.Discard, NewReader(strings.NewReader(example), "h"), JepsenLog); err == nil {
		t.Error("wrote a log")
	}
	if _, err := Convert(&fullDisk{10}, NewReader(strings.NewReader(example), "h"), EDN); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Error(err)
	}
	out, _, err := convert(t, []byte(example+"[]\n"), JSONL, EDN)
	if err == nil || bytes.Count(out, []byte("\n")) != 8 {
		t.Errorf("%v after %s", err, out)
	}
}

func FuzzConvert(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(oddLines))
	for line := range strings.Lines(oddLines) {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, b []byte) { thereAndBack(t, b, JSONL) })
}

func FuzzEDN(f *testing.F) {
	for _, s := range ednTexts {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) { ednBack(t, b, EDN) })
}

func FuzzLog(f *testing.F) {
	f.Add([]byte(logText))
	f.Add([]byte("0 :ok :read #{1} [:a \"b\"] more\n:nemesis :info :start nil"))
	f.Fuzz(func(t *testing.T, b []byte) { ednBack(t, b, JepsenLog) })
}

// ednBack holds that whatever could be read goes to JSON lines and EDN, in both
// orders, with the same result.
func ednBack(t *testing.T, b []byte, from Format) {
	edn, _, err := convert(t, b, from, EDN)
	if err != nil {
		return
	}
	again := mustConvert(t, edn, EDN, EDN)
	if !bytes.Equal(edn, again) {
		t.Fatalf("%s\nbecame\n%s", edn, again)
	}
	lines, _, err := convert(t, b, from, JSONL)
	if err != nil {
		t.Fatal(err)
	}
	direct := mustConvert(t, edn, EDN, JSONL)
	if a, b := meaning(t, lines), meaning(t, direct); !reflect.DeepEqual(a, b) {
		t.Fatalf("%s\nor by way of\n%s\n%s", lines, edn, direct)
	}
	back := mustConvert(t, lines, JSONL, EDN)
	if again := mustConvert(t, mustConvert(t, back, EDN, JSONL), JSONL, EDN); !bytes.Equal(back, again) {
		t.Fatalf("%s\nbecame\n%s", back, again)
	}
}
