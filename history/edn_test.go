package history

import (
	"errors"
	"io"
	"strings"
	"testing"
)

var ednTexts = []string{
	"; a comment\n[{:process 4, :type :invoke, :f :write, :value 2}\n #_{:process 9} {:process 4, :type :ok, :f :write, :value 2}]\n",
	"({:type :invoke, :f :cas, :value [1 4], :process 101, :time 99286665244}\n {:type :fail,\n  :f :cas,\n  :value [1 4], :process 101, :time 9, :error nil})",
	"{:process :nemesis, :type :info, :f :start, :value \"Cut off [:n3 #[:n4]]\"}\n{:process :nemesis, :type :info, :f :stop, :value #{:n1 {:a [1 2.5 nil]}}}",
	"#jepsen.history.Op{:index 0, :time 3, :type :invoke, :process 0, :f :txn, :value [[:r 1 nil]]}",
	`{:lockcheck 1 :ttl 5} {:time 1 :process 0 :type :invoke :f :acquire :key "k" :ttl 5 :extra (1 \a 2/3 4N 5M)}`,
	`{"#edn \"k\"" 1 :process 0 :type :invoke :f "x y" :error "" "k" 2 :a/b 3 [1] 4 :value {"#edn" ":a"}}`,
	"[]", "", ";", "#_ #_ 1 2",
}

func readEDN(text string) ([]Op, About, error) {
	r := newEDNReader(strings.NewReader(text), "h.edn")
	var ops []Op
	for {
		var o Op
		err := r.Read(&o)
		if errors.Is(err, io.EOF) {
			return ops, r.About(), nil
		}
		if err != nil {
			return ops, r.About(), err
		}
		ops = append(ops, o)
	}
}

func TestReadEDN(t *testing.T) {
	want := []struct{ events, truncated int }{{2, 0}, {2, 0}, {2, 0}, {1, 0}, {1, 0}, {1, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}}
	for i, text := range ednTexts {
		ops, about, err := readEDN(text)
		if err != nil || len(ops) != want[i].events || about.Truncated != "" {
			t.Errorf("%s: %d events, %v, %s", text, len(ops), err, about.Truncated)
		}
		if own := strings.Contains(text, ":lockcheck"); own == about.FileOrder {
			t.Errorf("%s: file order %v", text, about.FileOrder)
		}
	}
	ops, _, _ := readEDN(ednTexts[1])
	o := ops[1]
	if o.Process != 101 || o.Type != Fail || o.F != "cas" || string(o.Value) != "[1,4]" || o.Time != 9 || o.Index != 1 || o.Error != "" {
		t.Errorf("%+v", o)
	}
	ops, _, err := readEDN(`{:process :a :type :invoke :f :x :error :not-held} {:process 3N :type :invoke :f :x :error [:not-found "gone"]} {:process :b :type :invoke :f :x :key :k}`)
	if err != nil || ops[0].Error != ErrNotHeld || ops[1].Error != `[:not-found "gone"]` || ops[1].Process != 3 || ops[2].Key != "k" || ops[0].Process == ops[2].Process {
		t.Errorf("%+v %v", ops, err)
	}
}

func TestMalformedEDN(t *testing.T) {
	event := "{:process 1 :type :invoke :f :x}\n"
	for text, want := range map[string]string{
		event + "\n{:process 1\n :type :invoke\n :f #<Object> }":  "h.edn:5: #<: what Clojure prints",
		event + "{:process 2\n :type :invoke :f :x :value 1abc}":  `h.edn:3: "1abc" is no number`,
		event + "{:process 2 :type :boo :f :x}":                   `h.edn:2: type "boo" is none of`,
		event + "{:process 2 :type :invoke :f :x :token -1}":      `h.edn:2: field "token" holds -1`,
		event + "{:process 2 :type :invoke :f :x :a 1 :a 2}":      "h.edn:2: the key :a twice",
		event + "{:process 2 :type :invoke :f :x :f :x}":          "h.edn:2: the key :f twice",
		event + "{:process 2 :type :invoke :f}":                   "h.edn:2: a map with a key and no value",
		event + "{:process 2 :type :invoke :f :x :v {:a 1 :a 2}}": "h.edn:2: a map with the same key twice",
		event + "{:process 2 :type :invoke :f :x :v (1 ]}":        "h.edn:2: ",
		event + "{:process -2 :type :invoke :f :x}":               "h.edn:2: process -2 is neither",
		event + "{:type :invoke :f :x}":                           "h.edn:2: an event without a process",
		event + "{:process 2 :f :x}":                              "h.edn:2: an event without a type",
		event + "{:process 2 :type :invoke}":                      "h.edn:2: an event without an f",
		event + "[1 2]":                                           "h.edn:2: '[' where an event (a map) belongs",
		event + "foo":                                             "h.edn:2: 'f' where an event",
		event + "}":                                               "h.edn:2: '}' where an event",
		"{:lockcheck 9}":                                          "format version 9 is not known",
		"{:lockcheck 1} " + event:                                 "an event without a time",
		"{:lockcheck 1} {:time 5 :process 1 :type :info :f :mark} {:time 4 :process 1 :type :info :f :mark}": "time runs backwards",
		"[" + event + "] {}":           "h.edn:2: something follows the end",
		"{:process 1 :type :ok :f :x}": "h.edn:1: completion without an invocation",
		event + event:                  "h.edn:2: process 1 invokes x while its x of line 1 is still open",
		event + "{:process 1 :type :info :f :x}\n" + event: "h.edn:3: process 1 invokes x although its operation of line 2 ended as info",
		"{:process 1 :type :invoke :f \"\xff\"}":           "h.edn:1: not text",
		"{:process 1 :type :invoke :f :x :v \"\\q\"}":      `\q means nothing in a string`,
		"{:process 1 :type :invoke :f :x :v ##Foo}":        "##Foo is no number",
		"{:process 1 :type :invoke :f :x :v ^{:a 1} [2]}":  `"^" is neither`,
		"#foo [1]": "#foo where an event",
		"{:process 1 :type :invoke :f :x :v " + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}": "nested more than 10000 deep",
	} {
		_, about, err := readEDN(text)
		var m *MalformedError
		if !errors.As(err, &m) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got %v %s, want %q", text, err, about.Truncated, want)
		}
	}
}

func TestEDNCutShort(t *testing.T) {
	whole := "[{:process 1, :type :invoke, :f :x, :value {:a \"b\\\"\" :c [1 2]}}\n{:process 2, :type :invoke, :f :x} ; end\n]"
	for n := 1; n < len(whole); n++ {
		ops, about, err := readEDN(whole[:n])
		want := strings.Count(whole[:n], "\n")
		if err != nil || about.Truncated == "" || len(ops) != want && len(ops) != want+1 {
			t.Fatalf("cut at %d: %d events, %v, %q", n, len(ops), err, about.Truncated)
		}
	}
}

func TestLongForm(t *testing.T) {
	for _, begin := range []string{`{:a "`, `{:process 1 :v [`, ``} {
		_, _, err := func() ([]Op, About, error) {
			r := newEDNReader(io.MultiReader(strings.NewReader(begin), endless{}), "big")
			var o Op
			return nil, r.About(), r.Read(&o)
		}()
		if err == nil || !strings.Contains(err.Error(), "big:1: ") {
			t.Error(begin, err)
		}
	}
}

const logText = "INFO  jepsen.core - Worker 0 starting\n" +
	"INFO  jepsen.util - 0\t:invoke\t:read\tnil\n" +
	"2024-12-31 07:50:16,609{GMT}\tINFO\t[jepsen worker 4] jepsen.util: 4\t:invoke\t:cas\t[3 0]\n" +
	"INFO  jepsen.util - 0   :ok     :read   4\n" +
	"INFO  jepsen.util - :nemesis\t:info\t:start\t\"Cut off {:n1 #{:n2}}\"\n" +
	"jepsen.util: :nemesis\t:info\t:stop\tnil\n" +
	"4\t:fail\t:cas\t[3 0]\t[:not-found \"etcdserver: requested lease not found\"]\n" +
	"3\t:invoke\t:write\t2\r\n" +
	"3\t:info\t:write\t:timed-out\n"

func readLog(text string) ([]Op, About, error) {
	r := newLogReader(strings.NewReader(text), "h.log")
	var ops []Op
	for {
		var o Op
		err := r.Read(&o)
		if errors.Is(err, io.EOF) {
			return ops, r.About(), nil
		}
		if err != nil {
			return ops, r.About(), err
		}
		ops = append(ops, o)
	}
}

func TestReadLog(t *testing.T) {
	ops, about, err := readLog(logText)
	if err != nil || len(ops) != 8 || !about.FileOrder || about.Truncated != "" {
		t.Fatalf("%+v %+v %v", ops, about, err)
	}
	if ops[3].Process != Nemesis || ops[4].F != "stop" || ops[5].Error != `[:not-found "etcdserver: requested lease not found"]` || string(ops[1].Value) != "[3,0]" || ops[5].Index != 5 {
		t.Errorf("%+v", ops)
	}
	if _, about, err := readLog(logText + "INFO  jepsen.util - 9\t:invo"); err != nil || about.Truncated == "" {
		t.Error(err, about)
	}
	if _, about, err := readLog(logText + "9\t:invoke\t:write\t[1 "); err != nil || about.Truncated == "" {
		t.Error(err, about)
	}
	for text, want := range map[string]string{
		"1\t:ok\t:read\tnil\n": "h.log:1: completion without an invocation",
		"nothing\n":            "no line of this log is an event",
		"1\t:invoke\t:read\tnil\nx\n1\t:invoke\t:read\t2\n":                      "h.log:3: process 1 invokes read while",
		"1\t:invoke\t:read\tnil\n1\t:info\t:read\tnil\n1\t:invoke\t:read\tnil\n": "h.log:3: process 1 invokes read although",
		"1\t:invoke\t:read\t#<x>\n":                                              "h.log:1: value: ",
		"1\t:invoke\t:read\t\xff\n":                                              "h.log:1: not text",
	} {
		if _, _, err := readLog(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
