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
	last  string // the latest key, which often comes again
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

// usualOrder has the known fields in the order in which AppendJSON writes them,
// each with what stands around its name.
var usualOrder = [...]string{
	`"index":`, `"time":`, `"process":`, `"type":`, `"f":`, `"key":`, `"grant":`, `"token":`,
	`"ttl":`, `"from":`, `"valid":`, `"session":`, `"value":`, `"seq":`, `"error":`,
}

// usualFields are those fields.
var usualFields = [len(usualOrder)]fields{
	hasIndex, hasTime, hasProcess, hasType, hasF, hasKey, hasGrant, hasToken,
	hasTTL, hasFrom, hasValid, hasSession, hasValue, hasSeq, hasError,
}

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
	for next := 0; ; {
		p.space()
		if next = p.name(next); next == 0 {
			return 0, false
		}
		f := usualFields[next-1]
		p.space()
		if seen&f != 0 || !p.field(f, o) {
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

// name reads the name of a field and gives the place after it in the usual order,
// or 0 for a name that is not plain: encoding/json also takes names in another
// case, and keeps those that nobody knows. from is where to look first.
func (p *lineParser) name(from int) int {
	rest := p.b[p.i:]
	if len(rest) < 2 || rest[0] != '"' {
		return 0
	}
	for i := from; i < len(usualOrder); i++ {
		if n := usualOrder[i]; n[1] == rest[1] && len(rest) > len(n) && string(rest[:len(n)]) == n {
			p.i += len(n)
			return i + 1
		}
	}
	name, ok := p.plainString()
	if p.space(); !ok || !p.skip(':') {
		return 0
	}
	for i, n := range usualOrder {
		if string(name) == n[1:len(n)-2] {
			return i + 1
		}
	}
	return 0
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

// field reads the value of a field.
func (p *lineParser) field(f fields, o *Op) (ok bool) {
	switch f {
	case hasIndex:
		var n int64
		n, ok = p.signed()
		o.Index = int(n)
	case hasTime:
		o.Time, ok = p.signed()
	case hasProcess:
		ok = p.process(o)
	case hasType:
		ok = p.kind(o)
	case hasF:
		ok = p.what(o)
	case hasKey:
		ok = p.key(o)
	case hasError:
		ok = p.text(&o.Error) && o.Error != ""
	case hasGrant:
		ok = p.number(&o.Grant)
	case hasToken:
		ok = p.number(&o.Token)
	case hasSeq:
		ok = p.number(&o.Seq)
	case hasTTL:
		ok = p.duration(&o.TTL)
	case hasValid:
		ok = p.duration(&o.Valid)
	case hasFrom:
		ok = p.duration(&o.From)
	case hasSession:
		ok = p.boolean(&o.Session)
	case hasValue:
		ok = p.value(o)
	}
	return ok
}

// plainString gives what is between the quotes, if nothing in it means anything
// else than itself.
func (p *lineParser) plainString() ([]byte, bool) {
	if !p.skip('"') {
		return nil, false
	}
	b, high := p.b[p.i:], byte(0)
	for i, c := range b {
		if c == '"' {
			p.i += i + 1
			return b[:i], high < utf8.RuneSelf || utf8.Valid(b[:i])
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

// what reads f; of those of every step the compiler has the words.
func (p *lineParser) what(o *Op) bool {
	s, ok := p.plainString()
	if !ok {
		return false
	}
	switch string(s) {
	case Acquire:
		o.F = Acquire
	case Release:
		o.F = Release
	case Renew:
		o.F = Renew
	case Check:
		o.F = Check
	case Read:
		o.F = Read
	case Write:
		o.F = Write
	default:
		o.F = p.intern(s)
	}
	return true
}

func (p *lineParser) key(o *Op) bool {
	s, ok := p.plainString()
	if !ok {
		return false
	}
	if string(s) != p.last {
		p.last = p.intern(s)
	}
	o.Key = p.last
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
	b := p.b[p.i:]
	i, n := 0, uint64(0)
	for i < len(b) && b[i]-'0' <= 9 {
		n = n*10 + uint64(b[i]-'0')
		i++
	}
	if i == 0 || i > most || i > 1 && b[0] == '0' || i == len(b) {
		return 0, false
	}
	p.i += i
	switch b[i] {
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
