package history

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A logReader reads what Jepsen prints while it runs, as in the corpus of
// porcupine, or its history.txt: lines with a process, a type, a function, a
// value and perhaps an error.
//
//	INFO  jepsen.util - 2	:invoke	:cas	[3 0]
//
// Lines that are no events are passed over. There are no times.
type logReader struct {
	lines *Reader // for its lines
	about About
	next  int
	seen  bool // a line of any kind
	order order
	dec   ednDecoder
}

func newLogReader(r io.Reader, file string) *logReader {
	return &logReader{
		lines: &Reader{in: bufio.NewReaderSize(r, 1<<16), file: file},
		about: About{Format: JepsenLog, FileOrder: true},
		order: newOrder(), dec: newEDNDecoder(),
	}
}

func (r *logReader) About() About { return r.about }
func (r *logReader) Close() error { return nil }

func (r *logReader) Read(o *Op) error {
	for {
		line, whole, err := r.lines.readLine()
		if errors.Is(err, io.EOF) && r.seen && r.next == 0 {
			r.lines.line = 1
			return r.lines.bad("no line of this log is an event")
		}
		if err != nil {
			return err
		}
		r.seen = true
		ev, ok := cutLogEvent(line)
		if !ok {
			if !whole && bytes.Contains(line, []byte(":")) {
				r.cut()
			}
			continue
		}
		*o = Op{}
		switch reason := r.event(ev, o); {
		case reason != "" && whole:
			return r.lines.bad("%s", reason)
		case reason != "":
			r.cut()
			return io.EOF
		}
		if reason := r.order.accept(o, r.lines.line, false); reason != "" {
			return r.lines.bad("%s", reason)
		}
		o.Index = r.next
		r.next++
		o.keep(otherForm+"time", noField)
		return nil
	}
}

func (r *logReader) cut() {
	r.about.Truncated = fmt.Sprintf("%s:%d: the last line is cut short and was left out", r.lines.file, r.lines.line)
}

// A logEvent is a line that is an event, cut into pieces.
type logEvent struct {
	process, kind []byte
	rest          []byte // f, value and error
}

// event reads the pieces; the reason says what is wrong with them.
func (r *logReader) event(ev logEvent, o *Op) string {
	if !utf8.Valid(ev.rest) {
		return "not text: it has bytes that are not UTF-8"
	}
	_, reason := r.dec.process(ev.process, nil, o)
	if reason != "" {
		return reason
	}
	o.Type.UnmarshalText(ev.kind[1:]) // cutLogEvent knows them
	p := ednParser{b: ev.rest}
	for _, name := range []string{"f", "value", "error"} {
		if p.blank() != nil || p.i == len(p.b) {
			break
		}
		from := p.i
		v, err := p.form(nil)
		if err != nil {
			return fmt.Sprintf("%s: %v", name, err)
		}
		form := ev.rest[from:p.i]
		if _, reason := r.dec.field(name, form, v, o); reason != "" {
			return reason
		}
		if !sameForm(name, form, v, o) {
			o.keep(otherForm+name, v)
		}
	}
	if more := bytes.TrimSpace(ev.rest[p.i:]); len(more) > 0 {
		o.keep("more", appendString(nil, string(more)))
	}
	if o.F == "" {
		return "an event without an f"
	}
	return ""
}

// cutLogEvent finds a process, a type and a keyword, one after the other, at the
// beginning of a line or after what Jepsen's logger puts there.
func cutLogEvent(line []byte) (logEvent, bool) {
	text := line
	if _, after, ok := bytes.Cut(line, []byte("jepsen.util")); ok {
		text = bytes.TrimLeft(after, " \t:-")
		if len(text) > 0 && len(after) > len(text) && after[len(after)-len(text)-1] == ':' {
			text = after[len(after)-len(text)-1:] // the colon of :nemesis
		}
	}
	process, rest := nextWord(text)
	kind, rest := nextWord(rest)
	f, _ := nextWord(rest)
	switch string(kind) {
	case ":invoke", ":ok", ":fail", ":info":
	default:
		return logEvent{}, false
	}
	if !isLogProcess(process) || len(f) < 2 || f[0] != ':' {
		return logEvent{}, false
	}
	return logEvent{process, kind, rest}, true
}

func nextWord(b []byte) (word, rest []byte) {
	b = bytes.TrimLeft(b, " \t")
	n := bytes.IndexAny(b, " \t\r")
	if n < 0 {
		n = len(b)
	}
	return b[:n], b[n:]
}

func isLogProcess(b []byte) bool {
	if len(b) > 1 && b[0] == ':' {
		return isName(b[1:])
	}
	return len(b) > 0 && len(b) < 19 && strings.Trim(string(b), "0123456789") == ""
}

// hasLogEvent reports whether one of the lines is an event.
func hasLogEvent(text []byte) bool {
	for line := range bytes.Lines(text) {
		if _, ok := cutLogEvent(bytes.TrimRight(line, "\r\n")); ok {
			return true
		}
	}
	return false
}
