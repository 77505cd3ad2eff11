package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// wireOp is how an event looks in JSON.
type wireOp struct {
	Index   Opt[int]        `json:"index,omitzero"`
	Time    Opt[int64]      `json:"time,omitzero"`
	Process Opt[Process]    `json:"process,omitzero"`
	Type    Type            `json:"type"`
	F       string          `json:"f"`
	Key     string          `json:"key,omitempty"`
	Grant   Opt[uint64]     `json:"grant,omitzero"`
	Token   Opt[uint64]     `json:"token,omitzero"`
	TTL     Opt[int64]      `json:"ttl,omitzero"`
	Valid   Opt[int64]      `json:"valid,omitzero"`
	From    Opt[int64]      `json:"from,omitzero"`
	Session bool            `json:"session,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"`
	Seq     Opt[uint64]     `json:"seq,omitzero"`
	Error   json.RawMessage `json:"error,omitempty"`
}

var knownFields = []string{"index", "time", "process", "type", "f", "key", "grant", "token", "ttl", "valid", "from", "session", "value", "seq", "error"}

// AppendJSON appends the event as one line of JSON, without the line's end. It
// is written by hand because a run appends an event in every step of every
// worker: encoding/json costs about twenty times as much.
func AppendJSON(b []byte, o *Op) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(o.Index), 10)
	b = append(b, `,"time":`...)
	b = strconv.AppendInt(b, o.Time, 10)
	b = append(b, `,"process":`...)
	switch o.Process {
	case Nemesis:
		b = append(b, `"nemesis"`...)
	case Store:
		b = append(b, `"store"`...)
	default:
		b = strconv.AppendInt(b, int64(o.Process), 10)
	}
	b = append(b, `,"type":"`...)
	b = append(b, o.Type.String()...)
	b = append(b, `","f":`...)
	b = appendString(b, o.F)
	if o.Key != "" {
		b = append(b, `,"key":`...)
		b = appendString(b, o.Key)
	}
	b = appendUint(b, `,"grant":`, o.Grant)
	b = appendUint(b, `,"token":`, o.Token)
	b = appendInt(b, `,"ttl":`, o.TTL)
	b = appendInt(b, `,"from":`, o.From)
	b = appendInt(b, `,"valid":`, o.Valid)
	if o.Session {
		b = append(b, `,"session":true`...)
	}
	if len(o.Value) > 0 {
		b = append(b, `,"value":`...)
		b = append(b, o.Value...)
	}
	b = appendUint(b, `,"seq":`, o.Seq)
	if _, list := o.Extra[errorField]; o.Error != "" && !list {
		b = append(b, `,"error":`...)
		b = appendString(b, o.Error)
	}
	b = appendExtra(b, o.Extra)
	return append(b, '}')
}

func appendExtra(b []byte, extra map[string]json.RawMessage) []byte {
	if len(extra) == 0 {
		return b
	}
	names := make([]string, 0, len(extra))
	for n := range extra {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		b = append(b, ',')
		b = appendString(b, n)
		b = append(b, ':')
		b = append(b, extra[n]...)
	}
	return b
}

func appendUint(b []byte, name string, v Opt[uint64]) []byte {
	if !v.Set {
		return b
	}
	return strconv.AppendUint(append(b, name...), v.V, 10)
}

func appendInt(b []byte, name string, v Opt[int64]) []byte {
	if !v.Set {
		return b
	}
	return strconv.AppendInt(append(b, name...), v.V, 10)
}

// appendString quotes plain ASCII itself and leaves the rest to encoding/json.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			q, _ := json.Marshal(s) // a string always marshals
			return append(b, q...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// MarshalJSON is AppendJSON for those who marshal.
func (o Op) MarshalJSON() ([]byte, error) { return AppendJSON(nil, &o), nil }

// UnmarshalJSON reads one event. Index, time and process may be missing; the
// Reader decides what that means.
func (o *Op) UnmarshalJSON(b []byte) error {
	_, err := o.decode(b)
	return err
}

// decode reads any event that is JSON, and tells which of the required fields
// were there.
func (o *Op) decode(b []byte) (fields, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return 0, plainJSONError(err)
	}
	var w wireOp
	if err := json.Unmarshal(onlyKnown(b, all), &w); err != nil {
		return 0, plainJSONError(err)
	}
	*o = Op{
		Index: w.Index.V, Time: w.Time.V, Process: w.Process.V, Type: w.Type, F: w.F, Key: w.Key,
		Grant: w.Grant, Token: w.Token, TTL: w.TTL, Valid: w.Valid, From: w.From,
		Session: w.Session, Value: w.Value, Seq: w.Seq,
	}
	o.Extra = unknownFields(all)
	if len(w.Error) > 0 {
		json.Unmarshal(w.Error, &o.Error) // another tool's list or object leaves it empty
		if o.Error == "" {
			o.Error = errorText(w.Error)
			o.keep(errorField, w.Error)
		}
	}
	return w.present(), nil
}

// errorText is what an error that is no string says to people.
func errorText(v json.RawMessage) string {
	var edn struct {
		Text string `json:"#edn"`
	}
	switch {
	case string(v) == "null" || string(v) == `""`:
		return ""
	case json.Unmarshal(v, &edn) == nil && strings.HasPrefix(edn.Text, ":"):
		return edn.Text[1:]
	}
	return strings.ToValidUTF8(string(v), "\ufffd")
}

// onlyKnown leaves out the names that differ from a known one in their case: to
// encoding/json they would be the same, but they are other fields.
func onlyKnown(b []byte, all map[string]json.RawMessage) []byte {
	var known map[string]json.RawMessage
	for n := range all {
		if slices.Contains(knownFields, n) || !slices.ContainsFunc(knownFields, func(k string) bool { return strings.EqualFold(k, n) }) {
			continue
		}
		if known == nil {
			known = maps.Clone(all)
		}
		delete(known, n)
	}
	if known == nil {
		return b
	}
	b, _ = json.Marshal(known) // it was just read
	return b
}

// errorField names the place in Extra for an error that is no string, or an empty
// one: then Error has its text, and this is what is written again.
const errorField = "error"

func (o *Op) keep(name string, v json.RawMessage) {
	if o.Extra == nil {
		o.Extra = map[string]json.RawMessage{}
	}
	o.Extra[name] = v
}

func (w *wireOp) present() fields {
	var f fields
	for _, is := range []struct {
		set bool
		f   fields
	}{{w.Index.Set, hasIndex}, {w.Time.Set, hasTime}, {w.Process.Set, hasProcess}} {
		if is.set {
			f |= is.f
		}
	}
	return f
}

// unknownFields keeps what this version does not know, so that nothing is lost
// when a history is written again.
func unknownFields(all map[string]json.RawMessage) map[string]json.RawMessage {
	for _, n := range knownFields {
		delete(all, n)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

func plainJSONError(err error) error {
	var syn *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syn):
		return fmt.Errorf("not JSON: %w at byte %d", err, syn.Offset)
	case errors.As(err, &typ) && typ.Field != "":
		return fmt.Errorf("field %q holds a %s", typ.Field, typ.Value)
	case errors.As(err, &typ):
		return fmt.Errorf("a JSON %s where an event (an object) belongs", typ.Value)
	}
	return err
}

// MaxLine is the longest line that a Reader takes, in bytes: enough for any
// event, and a limit for a file that is no history.
const MaxLine = 16 << 20

// A MalformedError says where a history stops making sense.
type MalformedError struct {
	File   string
	Line   int
	Reason string
}

func (e *MalformedError) Error() string {
	if e.File == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// A Reader reads a history in JSON lines and refuses a malformed one.
type Reader struct {
	Header    Header // valid once Next was called
	Truncated string // set at the end when the last line was cut short: what was left out

	in      *bufio.Reader
	file    string
	line    int
	started bool
	next    int // the lowest index that may come
	order   order
	plain   *lineParser
	header  json.RawMessage
}

// NewReader reads from r; file is its name for errors.
func NewReader(r io.Reader, file string) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, 1<<16), file: file, order: newOrder(), plain: newLineParser()}
}

func (r *Reader) bad(format string, a ...any) error {
	return &MalformedError{r.file, r.line, fmt.Sprintf(format, a...)}
}

// Next gives the next event, or io.EOF. After any other error nothing more can
// be read. An event without an index, or with one that does not grow, is
// numbered on from the one before, so that an index always names one event.
func (r *Reader) Next() (Op, error) {
	var o Op
	err := r.Read(&o)
	if err != nil {
		return Op{}, err
	}
	return o, nil
}

// Read is Next for those who mind the copying: it overwrites o.
func (r *Reader) Read(o *Op) error {
	for {
		line, whole, err := r.readLine()
		if err != nil {
			return err
		}
		text := bytes.TrimSpace(line)
		if len(text) == 0 {
			continue
		}
		if !r.started {
			r.started = true
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
			isHeader, err := r.readHeader(text)
			if err != nil {
				return err
			}
			if isHeader {
				continue
			}
		}
		has, ok := r.plain.parse(text, o)
		if !ok {
			if has, err = o.decode(text); err != nil {
				return r.refuse(text, whole, err)
			}
		}
		return r.accept(o, has)
	}
}

// refuse takes a broken last line as one that was cut short.
func (r *Reader) refuse(text []byte, whole bool, err error) error {
	if !whole && text[0] == '{' && !json.Valid(text) {
		r.Truncated = fmt.Sprintf("%s:%d: the last line is cut short and was left out", r.file, r.line)
		return io.EOF
	}
	return r.bad("%v", err)
}

// readHeader takes the first line if it is one: an object with a field
// "lockcheck".
func (r *Reader) readHeader(text []byte) (bool, error) {
	h, err := parseHeader(text)
	if err != nil {
		return true, r.bad("%v", err)
	}
	if h == nil {
		return false, nil
	}
	r.Header, r.header = *h, bytes.Clone(text)
	return true, nil
}

// parseHeader reads a header in JSON; nil for what is none.
func parseHeader(text []byte) (*Header, error) {
	var probe struct {
		Version *int `json:"lockcheck"`
	}
	if json.Unmarshal(text, &probe) != nil || probe.Version == nil {
		return nil, nil
	}
	if *probe.Version != Version {
		return nil, fmt.Errorf("format version %d is not known to this lockcheck (it reads version %d)", *probe.Version, Version)
	}
	var h Header
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("header: %w", plainJSONError(err))
	}
	return &h, nil
}

// About is what is known of the history so far.
func (r *Reader) About() About {
	return About{Format: JSONL, Header: r.Header, RawHeader: r.header, FileOrder: r.Header.fileOrder(), Truncated: r.Truncated}
}

// Close does nothing: a Reader has nothing to free.
func (r *Reader) Close() error { return nil }

func (r *Reader) accept(o *Op, has fields) error {
	switch {
	case has&hasProcess == 0:
		return r.bad("an event without a process")
	case o.Type == 0:
		return r.bad("an event without a type")
	case o.F == "":
		return r.bad("an event without an f")
	case has&hasTime == 0:
		return r.bad("an event without a time")
	}
	if reason := r.order.accept(o, r.line, !r.Header.fileOrder()); reason != "" {
		return r.bad("%s", reason)
	}
	if has&hasIndex == 0 || o.Index < r.next {
		o.Index = r.next
	}
	r.next = o.Index + 1
	return nil
}

// readLine gives a line without its end; whole is false for a last line that
// has none.
func (r *Reader) readLine() (line []byte, whole bool, err error) {
	r.line++
	for {
		part, err := r.in.ReadSlice('\n')
		if len(line)+len(part) > MaxLine {
			return nil, false, r.bad("a line of more than %d MB is no event", MaxLine>>20)
		}
		if err == nil && line == nil {
			return part[:len(part)-1], true, nil
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], true, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, false, nil
		case errors.Is(err, io.EOF):
			return nil, false, io.EOF
		default:
			return nil, false, fmt.Errorf("read %s: %w", r.file, err)
		}
	}
}

// ReadAll reads a whole history. The Reader has the header and what was cut off.
func ReadAll(r io.Reader, file string) ([]Op, *Reader, error) {
	rd := NewReader(r, file)
	in := InOrder(rd)
	var ops []Op
	for {
		var o Op
		err := in.Read(&o)
		if errors.Is(err, io.EOF) {
			return ops, rd, nil
		}
		if err != nil {
			return nil, rd, err
		}
		ops = append(ops, o)
	}
}
