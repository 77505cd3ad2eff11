package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// An ednReader reads a history in EDN: a vector or list of maps, or one map
// after the other, with or without the tag of Jepsen's own record. The order of
// the events is that of the file and their times are advisory, unless a map with
// the key :lockcheck comes first; that is our header.
//
// What a field of Op cannot say is kept in Extra, so that nothing is lost: a
// field that this version does not know under its name, and a known field that
// is written in another way than AppendEDN would under "edn:" and its name.
type ednReader struct {
	scan    *ednScanner
	file    string
	about   About
	state   ednState
	close   byte // that ends the vector or list
	started bool
	next    int // the lowest index that may come
	order   order
	dec     ednDecoder
}

type ednState uint8

const (
	ednBefore ednState = iota // nothing was read
	ednInside                 // a vector or list is open
	ednMaps                   // one map after the other
	ednAfter                  // the vector is closed
)

func newEDNReader(r io.Reader, file string) *ednReader {
	return &ednReader{
		scan: newEDNScanner(r), file: file, order: newOrder(), dec: newEDNDecoder(),
		about: About{Format: EDN, FileOrder: true},
	}
}

func (r *ednReader) About() About { return r.about }
func (r *ednReader) Close() error { return nil }

func (r *ednReader) bad(line int, format string, a ...any) error {
	return &MalformedError{r.file, line, fmt.Sprintf(format, a...)}
}

func (r *ednReader) Read(o *Op) error {
	for {
		form, line, err := r.form()
		if err != nil {
			return err
		}
		if !utf8.Valid(form) {
			return r.bad(line, "not text: it has bytes that are not UTF-8")
		}
		if !r.started {
			r.started = true
			isHeader, err := r.readHeader(form, line)
			if err != nil {
				return err
			}
			if isHeader {
				continue
			}
		}
		has, err := r.dec.event(form, o)
		if err != nil {
			return r.refuse(form, line, err)
		}
		return r.accept(o, has, line)
	}
}

func (r *ednReader) refuse(form []byte, line int, err error) error {
	var e *ednError
	if errors.As(err, &e) {
		line += bytes.Count(form[:min(e.at, len(form))], []byte("\n"))
	}
	return r.bad(line, "%v", err)
}

// form gives the next event's text, or io.EOF.
func (r *ednReader) form() ([]byte, int, error) {
	for {
		err := r.scan.blank()
		if errors.Is(err, io.EOF) && r.state != ednInside {
			return nil, 0, io.EOF
		}
		if err == nil {
			again, err := r.between()
			if err != nil {
				return nil, 0, err
			}
			if again {
				continue
			}
		}
		var form []byte
		line := r.scan.line
		if err == nil {
			form, line, err = r.scan.form()
		}
		switch {
		case err == nil:
			return form, line, nil
		case errors.Is(err, errCut), errors.Is(err, io.EOF):
			r.about.Truncated = fmt.Sprintf("%s:%d: the file is cut short: what nothing closes was left out", r.file, line)
			return nil, 0, io.EOF
		case r.scan.err != nil && !errors.Is(r.scan.err, io.EOF) && !errors.Is(err, errTooLong):
			return nil, 0, fmt.Errorf("read %s: %w", r.file, err)
		}
		if !errors.Is(err, errTooLong) {
			line = r.scan.line
		}
		return nil, 0, r.bad(line, "%v", err)
	}
}

// between handles the brackets around the events; again tells that one was
// passed.
func (r *ednReader) between() (again bool, err error) {
	c, _ := r.scan.peek(0)
	switch {
	case r.state == ednAfter:
		return false, r.bad(r.scan.line, "something follows the end of the history")
	case c == 0xef && r.state == ednBefore && r.scan.bom():
	case r.state == ednBefore && (c == '[' || c == '('):
		r.state, r.close = ednInside, ']'
		if c == '(' {
			r.close = ')'
		}
		r.scan.skip(1)
	case r.state == ednInside && c == r.close:
		r.state = ednAfter
		r.scan.skip(1)
	case c == '{' || c == '#':
		if r.state == ednBefore {
			r.state = ednMaps
		}
		return false, nil
	default:
		return false, r.bad(r.scan.line, "%q where an event (a map) belongs", c)
	}
	return true, nil
}

// bom skips a byte order mark.
func (s *ednScanner) bom() bool {
	if _, ok := s.peek(2); !ok || string(s.buf[s.pos:s.pos+3]) != "\xef\xbb\xbf" {
		return false
	}
	s.skip(3)
	return true
}

// readHeader takes the first map if it is a header.
func (r *ednReader) readHeader(form []byte, line int) (bool, error) {
	if form[0] != '{' {
		return false, nil
	}
	p := ednParser{b: form}
	text, err := p.form(nil)
	if err != nil {
		return false, nil // which is said better of an event
	}
	h, err := parseHeader(text)
	if err != nil {
		return true, r.bad(line, "%v", err)
	}
	if h == nil {
		return false, nil
	}
	r.about.Header, r.about.RawHeader, r.about.FileOrder = *h, text, h.fileOrder()
	return true, nil
}

func (r *ednReader) accept(o *Op, has fields, line int) error {
	switch {
	case has&hasProcess == 0:
		return r.bad(line, "an event without a process")
	case has&hasType == 0:
		return r.bad(line, "an event without a type")
	case o.F == "":
		return r.bad(line, "an event without an f")
	case has&hasTime == 0 && !r.about.FileOrder:
		return r.bad(line, "an event without a time")
	}
	if reason := r.order.accept(o, line, !r.about.FileOrder); reason != "" {
		return r.bad(line, "%s", reason)
	}
	if has&hasIndex == 0 || o.Index < r.next {
		o.Index = r.next
	}
	r.next = o.Index + 1
	return nil
}

// otherForm is the beginning of the name in Extra for a known field that is
// written in an unusual way. recordTag is the name for the tag of the map.
const (
	otherForm = "edn:"
	recordTag = otherForm + "tag"
)

// noField is the other form of a field that was not there at all.
var noField = json.RawMessage(`{"` + ednValue + `":""}`)

// An ednDecoder turns maps into events. Processes that are neither numbers nor
// known names get numbers of their own.
type ednDecoder struct {
	names   *lineParser // for its interning
	others  map[string]Process
	scratch []byte
}

// firstOther is the number of the first process that has none.
const firstOther Process = 1 << 40

func newEDNDecoder() ednDecoder {
	return ednDecoder{names: newLineParser(), others: map[string]Process{}}
}

// event reads the text of one map.
func (d *ednDecoder) event(form []byte, o *Op) (fields, error) {
	*o = Op{}
	p := ednParser{b: form}
	if form[0] == '#' {
		p.i++
		tag := p.token()
		if err := p.blank(); err != nil {
			return 0, err
		}
		if p.i == len(form) || form[p.i] != '{' || !isName(tag) {
			return 0, p.bad(0, "#%s where an event (a map) belongs", tag)
		}
		o.keep(recordTag, appendString(nil, string(tag)))
	}
	var seen, has fields
	err := p.entries(func(name string) error {
		bit := knownField(name)
		if bit == 0 {
			return d.extra(&p, name, o)
		}
		if seen&bit != 0 {
			return p.bad(p.i, "the key :%s twice", name)
		}
		seen |= bit
		from := p.i
		v, err := p.form(d.scratch[:0])
		if err != nil {
			return err
		}
		d.scratch = v
		there, what := d.field(name, form[from:p.i], v, o)
		if what != "" {
			return p.bad(from, "%s", what)
		}
		if there {
			has |= bit
		}
		if !sameForm(name, form[from:p.i], v, o) {
			o.keep(otherForm+name, bytes.Clone(v))
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, err
	case p.i != len(form):
		return 0, p.bad(p.i, "something follows the map")
	}
	if has&hasTime == 0 && seen&hasTime == 0 {
		o.keep(otherForm+"time", noField)
	}
	return has, nil
}

func (d *ednDecoder) extra(p *ednParser, name string, o *Op) error {
	if _, twice := o.Extra[name]; twice {
		return p.bad(p.i, "the key %s twice", keyForm(name))
	}
	v, err := p.form(nil)
	if err == nil {
		o.keep(name, v)
	}
	return err
}

func knownField(name string) fields {
	for i, n := range knownFields {
		if n == name {
			return 1 << i
		}
	}
	return 0
}

// field reads a known field; v is its form as JSON. there is false for nil. The
// reason is set when the value makes no sense.
func (d *ednDecoder) field(name string, form, v []byte, o *Op) (there bool, reason string) {
	switch name {
	case "error":
		if string(v) != "null" {
			o.Error = d.names.intern(word(form, v))
		}
		if form[0] != '"' || o.Error == "" {
			o.keep(errorField, bytes.Clone(v))
		}
		return true, ""
	case "value":
		o.Value = bytes.Clone(v)
		return true, ""
	case "type":
		t := word(form, v)
		if err := o.Type.UnmarshalText(t); err != nil {
			return false, err.Error()
		}
		return true, ""
	case "process":
		return d.process(form, v, o)
	case "f":
		o.F = d.names.intern(word(form, v))
		return true, ""
	}
	if string(v) == "null" {
		return false, ""
	}
	switch name {
	case "key":
		o.Key = d.names.intern(word(form, v))
	case "time": // advisory: what is no number counts as none
		n, err := strconv.ParseInt(string(bytes.TrimSuffix(form, []byte("N"))), 10, 64)
		o.Time = n
		return err == nil, ""
	case "session":
		switch string(v) {
		case "true", "false":
			o.Session = v[0] == 't'
		default:
			return false, fmt.Sprintf("field %q holds %s", name, form)
		}
	default:
		if !wholeNumber(name, bytes.TrimSuffix(form, []byte("N")), o) {
			return false, fmt.Sprintf("field %q holds %.100s", name, form)
		}
	}
	return true, ""
}

// word is a keyword without its colon, the text of a string, or the form itself.
func word(form, v []byte) []byte {
	switch {
	case form[0] == ':':
		return form[1:]
	case v[0] != '"':
		return form
	case bytes.IndexByte(v, '\\') < 0:
		return v[1 : len(v)-1]
	}
	var s string
	json.Unmarshal(v, &s) // it was just made
	return []byte(s)
}

func wholeNumber(name string, text []byte, o *Op) bool {
	u, i := &o.Grant, &o.TTL
	switch name {
	case "grant":
	case "token":
		u = &o.Token
	case "seq":
		u = &o.Seq
	case "ttl":
		u = nil
	case "valid":
		u, i = nil, &o.Valid
	case "from":
		u, i = nil, &o.From
	default:
		n, err := strconv.Atoi(string(text)) // index
		o.Index = n
		return err == nil
	}
	if u != nil {
		n, err := strconv.ParseUint(string(text), 10, 64)
		*u = Some(n)
		return err == nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	*i = Some(n)
	return err == nil
}

func (d *ednDecoder) process(form, v []byte, o *Op) (there bool, reason string) {
	switch string(form) {
	case "nil":
		return false, ""
	case ":nemesis":
		o.Process = Nemesis
		return true, ""
	case ":store":
		o.Process = Store
		return true, ""
	}
	if c := form[0]; c == ':' || c == '"' || isPlain(form[:1]) {
		p, ok := d.others[string(form)]
		if !ok {
			p = firstOther + Process(len(d.others))
			d.others[string(form)] = p
		}
		o.Process = p
		return true, ""
	}
	n, err := strconv.ParseInt(string(bytes.TrimSuffix(form, []byte("N"))), 10, 64)
	if err != nil || n < 0 {
		return false, fmt.Sprintf("process %.100s is neither a number from 0 nor a name", form)
	}
	o.Process = Process(n)
	return true, ""
}

// sameForm reports whether the field would be written like this.
func sameForm(name string, form, v []byte, o *Op) bool {
	if name == "value" || name == errorField {
		return true
	}
	var room [64]byte
	own := appendField(room[:0], name, o)
	if bytes.Equal(own, form) {
		return true
	}
	if len(own) == 0 {
		return false
	}
	p := ednParser{b: own}
	j, err := p.form(nil)
	return err == nil && bytes.Equal(j, v)
}
