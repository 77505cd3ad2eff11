package history

import (
	"encoding/json"
	"hash/maphash"
	"unicode/utf8"
)

// lineParser reads the lines that lockcheck itself and nearly everybody else
// writes: one object of the known fields in any order, whole numbers, strings
// without escapes. It says no to every other line, and the caller then asks
// encoding/json. What it accepts it reads exactly as encoding/json does; a fuzz
// test holds the two together.
type lineParser struct {
	b     []byte
	i     int
	names [nameSlots]string // recently seen keys, f's and errors
	seed  maphash.Seed
	room  []byte // from which values are cut
}

const (
	nameSlots = 1 << 12 // a power of two
	maxName   = 128     // longer strings are not kept for reuse
	roomSize  = 4 << 10
)

// fields are the known fields of an event that were there.
type fields uint16

const (
	hasIndex fields = 1 << iota
	hasTime
	hasProcess
	hasType
	hasF
	hasKey
	hasGrant
	hasToken
	hasTTL
	hasValid
	hasFrom
	hasSession
	hasValue
	hasSeq
	hasError
)

func newLineParser() *lineParser { return &lineParser{seed: maphash.MakeSeed()} }

// parse reads a line into o. It gives false, and leaves anything in o, for a
// line that is not plain.
func (p *lineParser) parse(line []byte, o *Op) (fields, bool) {
	if p == nil || len(line) < 2 || line[0] != '{' || line[len(line)-1] != '}' {
		return 0, false
	}
	*o = Op{}
	p.b, p.i = line, 1
	var seen fields
	for {
		p.space()
		name, ok := p.plainString()
		if !ok {
			return 0, false
		}
		p.space()
		if !p.skip(':') {
			return 0, false
		}
		p.space()
		f, ok := p.field(name, o)
		if !ok || seen&f != 0 {
			return 0, false
		}
		seen |= f
		p.space()
		switch {
		case p.skip(','):
		case p.skip('}'):
			return seen, p.i == len(p.b)
		default:
			return 0, false
		}
	}
}

func (p *lineParser) space() {
	for p.i < len(p.b) && (p.b[p.i] == ' ' || p.b[p.i] == '\t') {
		p.i++
	}
}

func (p *lineParser) skip(c byte) bool {
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

// field reads the value of the field. An unknown name is not plain, since
// encoding/json also takes names in another case, and keeps the rest.
func (p *lineParser) field(name []byte, o *Op) (fields, bool) {
	switch string(name) {
	case "index":
		n, ok := p.signed()
		o.Index = int(n)
		return hasIndex, ok
	case "time":
		n, ok := p.signed()
		o.Time = n
		return hasTime, ok
	case "process":
		return hasProcess, p.process(o)
	case "type":
		return hasType, p.kind(o)
	case "f":
		return hasF, p.text(&o.F)
	case "key":
		return hasKey, p.text(&o.Key)
	case "error":
		return hasError, p.text(&o.Error)
	case "grant":
		return hasGrant, p.number(&o.Grant)
	case "token":
		return hasToken, p.number(&o.Token)
	case "seq":
		return hasSeq, p.number(&o.Seq)
	case "ttl":
		return hasTTL, p.duration(&o.TTL)
	case "valid":
		return hasValid, p.duration(&o.Valid)
	case "from":
		return hasFrom, p.duration(&o.From)
	case "session":
		return hasSession, p.boolean(&o.Session)
	case "value":
		return hasValue, p.value(o)
	}
	return 0, false
}

// plainString gives what is between the quotes, if nothing in it means anything
// else than itself.
func (p *lineParser) plainString() ([]byte, bool) {
	if !p.skip('"') {
		return nil, false
	}
	from, high := p.i, byte(0)
	for ; p.i < len(p.b); p.i++ {
		c := p.b[p.i]
		if c == '"' {
			s := p.b[from:p.i]
			p.i++
			return s, high < utf8.RuneSelf || utf8.Valid(s)
		}
		if c < 0x20 || c == '\\' {
			return nil, false
		}
		high |= c
	}
	return nil, false
}

// text reads a string that is likely to come again.
func (p *lineParser) text(to *string) bool {
	s, ok := p.plainString()
	if !ok {
		return false
	}
	*to = p.intern(s)
	return true
}

func (p *lineParser) intern(s []byte) string {
	if p == nil || len(s) > maxName {
		return string(s)
	}
	slot := &p.names[maphash.Bytes(p.seed, s)%nameSlots]
	if *slot != string(s) {
		*slot = string(s)
	}
	return *slot
}

// digits reads a number that fits in 64 bits whatever its digits are, and that
// JSON allows.
func (p *lineParser) digits() (uint64, bool) {
	const most = 18
	from, n := p.i, uint64(0)
	for ; p.i < len(p.b); p.i++ {
		d := p.b[p.i] - '0'
		if d > 9 {
			break
		}
		n = n*10 + uint64(d)
	}
	size := p.i - from
	if size == 0 || size > most || size > 1 && p.b[from] == '0' || p.i == len(p.b) {
		return 0, false
	}
	switch p.b[p.i] {
	case ',', '}', ' ', '\t':
		return n, true
	}
	return 0, false
}

func (p *lineParser) signed() (int64, bool) {
	minus := p.skip('-')
	n, ok := p.digits()
	if minus {
		return -int64(n), ok
	}
	return int64(n), ok
}

func (p *lineParser) number(to *Opt[uint64]) bool {
	n, ok := p.digits()
	*to = Some(n)
	return ok
}

func (p *lineParser) duration(to *Opt[int64]) bool {
	n, ok := p.signed()
	*to = Some(n)
	return ok
}

func (p *lineParser) boolean(to *bool) bool {
	rest := p.b[p.i:]
	switch {
	case len(rest) > 4 && string(rest[:4]) == "true":
		*to = true
		p.i += 4
		return true
	case len(rest) > 5 && string(rest[:5]) == "false":
		p.i += 5
		return true
	}
	return false
}

func (p *lineParser) process(o *Op) bool {
	if p.b[p.i] != '"' {
		n, ok := p.digits()
		o.Process = Process(n)
		return ok
	}
	s, ok := p.plainString()
	switch {
	case !ok:
		return false
	case string(s) == "nemesis":
		o.Process = Nemesis
	case string(s) == "store":
		o.Process = Store
	default:
		return false
	}
	return true
}

func (p *lineParser) kind(o *Op) bool {
	s, ok := p.plainString()
	if !ok {
		return false
	}
	switch string(s) {
	case "invoke":
		o.Type = Invoke
	case "ok":
		o.Type = OK
	case "fail":
		o.Type = Fail
	case "info":
		o.Type = Info
	default:
		return false
	}
	return true
}

// value keeps the text of a whole number or a plain string.
func (p *lineParser) value(o *Op) bool {
	from := p.i
	ok := false
	if p.b[p.i] == '"' {
		_, ok = p.plainString()
	} else {
		_, ok = p.signed()
	}
	if ok {
		o.Value = p.keep(p.b[from:p.i])
	}
	return ok
}

// keep copies a short text into a block that it shares with others.
func (p *lineParser) keep(s []byte) json.RawMessage {
	if len(s) > roomSize/8 {
		return append(json.RawMessage(nil), s...)
	}
	if len(p.room) < len(s) {
		p.room = make([]byte, roomSize)
	}
	n := copy(p.room, s)
	v := p.room[:n:n]
	p.room = p.room[n:]
	return v
}
