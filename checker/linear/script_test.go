package linear

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// script reads a history written for people: one event a line, "time process type
// f" and then fields such as grant=1 token=7 valid=100 from=3 key=a error=held
// session. A time, a valid and a from are in milliseconds. Blank lines and what
// follows a # are for the reader.
func script(t testing.TB, text string) []history.Op {
	t.Helper()
	var ops []history.Op
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		o := history.Op{Index: len(ops), Time: millis(t, words[0]), F: words[3]}
		if err := json.Unmarshal([]byte(actor(words[1])), &o.Process); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if err := o.Type.UnmarshalText([]byte(words[2])); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for _, w := range words[4:] {
			name, value, _ := strings.Cut(w, "=")
			field(t, &o, name, value)
		}
		ops = append(ops, o)
	}
	return ops
}

func actor(word string) string {
	if word == "nemesis" || word == "store" {
		return strconv.Quote(word)
	}
	return word
}

func millis(t testing.TB, word string) int64 {
	n, err := strconv.ParseFloat(word, 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(n * 1e6)
}

func field(t testing.TB, o *history.Op, name, value string) {
	number := func() uint64 {
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	switch name {
	case "grant":
		o.Grant = history.Some(number())
	case "token":
		o.Token = history.Some(number())
	case "valid":
		o.Valid = history.Some(millis(t, value))
	case "from":
		o.From = history.Some(millis(t, value))
	case "key":
		o.Key = value
	case "error":
		o.Error = strings.ReplaceAll(value, "_", " ")
	case "session":
		o.Session = true
	case "value":
		o.Value = json.RawMessage(value)
	default:
		t.Fatalf("unknown field %q", name)
	}
}

func judge(t testing.TB, h history.Header, ops []history.Op) []Result {
	t.Helper()
	b := NewBuilder(h)
	for i := range ops {
		b.Add(&ops[i])
	}
	return b.Finish(context.Background(), Options{Certificate: true})
}

// short prints an operation of the model for comparison in tests.
func short(o *Op) string {
	at := func(t int64) string {
		switch t {
		case Dawn:
			return "dawn"
		case Forever:
			return "forever"
		}
		return strconv.FormatFloat(float64(t)/1e6, 'f', -1, 64)
	}
	text := fmt.Sprintf("%s %s", o.Kind, o.Outcome)
	if o.Grant != NoGrant {
		text += fmt.Sprintf(" g%d", o.Grant)
	}
	text += fmt.Sprintf(" %s-%s", at(o.Call), at(o.Return))
	if o.Kind != Release && o.Outcome != Denied {
		text += " until " + at(o.Deadline)
	}
	if o.HasToken {
		text += fmt.Sprintf(" token %d", o.Token)
	}
	return text
}
