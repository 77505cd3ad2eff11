package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// EDN has kinds of values that JSON lacks: keywords, sets, ratios, characters,
// tagged values. Kept as JSON they become {"#edn":"..."} with their text, and are
// written again as they were. What both have becomes what it is in the other:
//
//	nil true 12 1.5 "s" [1 2] {:a 1, "b c" 2}
//	null true 12 1.5 "s" [1,2] {"a":1,"b c":2}
//
// So going there and back changes nothing in either direction. The key of a map
// that is neither a plain keyword nor a string becomes "#edn " and its text, or
// just its text if it is another keyword.
const (
	ednValue = "#edn"
	ednKey   = "#edn "
)

// maxDepth is how deep values may be nested; encoding/json has the same limit.
const maxDepth = 10_000

// An ednError says what is wrong at which byte of a form.
type ednError struct {
	at   int
	what string
}

func (e *ednError) Error() string { return e.what }

// ednParser reads one form.
type ednParser struct {
	b     []byte
	i     int
	depth int
}

func (p *ednParser) bad(at int, format string, a ...any) error {
	return &ednError{at, fmt.Sprintf(format, a...)}
}

// blank skips what stands between forms.
func (p *ednParser) blank() error {
	for p.i < len(p.b) {
		switch c := p.b[p.i]; {
		case isBlank(c):
			p.i++
		case c == ';':
			n := bytes.IndexByte(p.b[p.i:], '\n')
			if n < 0 {
				n = len(p.b) - p.i
			}
			p.i += n
		case c == '#' && p.i+1 < len(p.b) && p.b[p.i+1] == '_':
			p.i += 2
			if _, err := p.form(nil); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// form reads the next form and appends it as JSON.
func (p *ednParser) form(dst []byte) ([]byte, error) {
	if err := p.blank(); err != nil {
		return nil, err
	}
	if p.i == len(p.b) {
		return nil, p.bad(p.i, "something is missing at the end")
	}
	if p.depth++; p.depth > maxDepth {
		return nil, p.bad(p.i, "nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	from := p.i
	switch c := p.b[p.i]; {
	case c == '[':
		return p.vector(dst)
	case c == '{':
		return p.mapping(dst)
	case c == '(':
		if err := p.until(')'); err != nil {
			return nil, err
		}
		return p.wrap(dst, from), nil
	case c == '"':
		s, err := p.text()
		if err != nil {
			return nil, err
		}
		return appendString(dst, s), nil
	case c == '#':
		if err := p.dispatch(); err != nil {
			return nil, err
		}
		return p.wrap(dst, from), nil
	case c == '\\':
		if err := p.character(); err != nil {
			return nil, err
		}
		return p.wrap(dst, from), nil
	case strings.IndexByte(")]}", c) >= 0:
		return nil, p.bad(p.i, "%q in the wrong place", c)
	}
	return p.atom(dst)
}

// wrap appends the form that began at from as what JSON has no word for.
func (p *ednParser) wrap(dst []byte, from int) []byte {
	dst = append(dst, `{"`+ednValue+`":`...)
	dst = appendString(dst, string(p.b[from:p.i]))
	return append(dst, '}')
}

func (p *ednParser) token() []byte {
	from := p.i
	for p.i < len(p.b) && !isDelimiter(p.b[p.i]) {
		p.i++
	}
	return p.b[from:p.i]
}

var unusualNumber = regexp.MustCompile(`^[+-]?(\d+N|\d+/\d+|\d+(\.\d*)?([eE][+-]?\d+)?M?|0[xX][0-9a-fA-F]+N?|\d{1,2}[rR][0-9a-zA-Z]+)$`)

// atom reads a number, a symbol or a keyword.
func (p *ednParser) atom(dst []byte) ([]byte, error) {
	from := p.i
	t := p.token()
	switch string(t) {
	case "nil":
		return append(dst, "null"...), nil
	case "true", "false":
		return append(dst, t...), nil
	}
	c := t[0]
	if (c == '-' || c == '+') && len(t) > 1 {
		c = t[1]
	}
	if c-'0' <= 9 {
		switch {
		case isJSONNumber(t):
			return append(dst, t...), nil
		case unusualNumber.Match(t):
			return p.wrap(dst, from), nil
		}
		return nil, p.bad(from, "%q is no number", t)
	}
	if !isName(bytes.TrimPrefix(t, []byte(":"))) {
		return nil, p.bad(from, "%q is neither a value nor a keyword nor a symbol", t)
	}
	return p.wrap(dst, from), nil
}

// isName reports whether b can be a symbol, or a keyword after its colon.
// Clojure itself is liberal here, and so is this.
func isName(b []byte) bool {
	return len(b) > 0 && b[0] != '\'' && !bytes.ContainsAny(b, "\\`~@^")
}

func isJSONNumber(t []byte) bool {
	i := 0
	if t[0] == '-' {
		i++
	}
	digits := func() bool {
		from := i
		for i < len(t) && t[i]-'0' <= 9 {
			i++
		}
		return i > from
	}
	from := i
	if !digits() || t[from] == '0' && i-from > 1 {
		return false
	}
	if i < len(t) && t[i] == '.' {
		if i++; !digits() {
			return false
		}
	}
	if i < len(t) && (t[i] == 'e' || t[i] == 'E') {
		if i++; i < len(t) && (t[i] == '+' || t[i] == '-') {
			i++
		}
		if !digits() {
			return false
		}
	}
	return i == len(t)
}

// character moves over a character such as \a, \newline or \u03A9.
func (p *ednParser) character() error {
	from := p.i
	p.i++
	if p.i == len(p.b) {
		return p.bad(from, "a backslash without a character")
	}
	_, n := utf8.DecodeRune(p.b[p.i:])
	p.i += n
	p.token()
	name := p.b[from+1 : p.i]
	switch string(name) {
	case "newline", "return", "space", "tab", "backspace", "formfeed":
		return nil
	}
	if utf8.RuneCount(name) == 1 || unusualChar.Match(name) {
		return nil
	}
	return p.bad(from, "%q is no character", p.b[from:p.i])
}

var unusualChar = regexp.MustCompile(`^(u[0-9a-fA-F]{4}|o[0-7]{1,3})$`)

// dispatch moves over what begins with #.
func (p *ednParser) dispatch() error {
	from := p.i
	p.i++
	if p.i == len(p.b) {
		return p.bad(from, "a # without anything")
	}
	switch p.b[p.i] {
	case '{':
		return p.until('}')
	case '"': // a regular expression, in which a backslash means itself
		for p.i++; p.i < len(p.b) && p.b[p.i] != '"'; p.i++ {
			if p.b[p.i] == '\\' {
				p.i++
			}
		}
		if p.i >= len(p.b) {
			return p.bad(from, "a string that does not end")
		}
		p.i++
		return nil
	case '#':
		p.i++
		if t := string(p.token()); t != "Inf" && t != "-Inf" && t != "NaN" {
			return p.bad(from, "##%s is no number", t)
		}
		return nil
	}
	if t := p.token(); len(t) == 0 || t[0]-'0' <= 9 || !isName(t) {
		return p.bad(from, "#%s is no tag", t)
	}
	_, err := p.form(nil)
	return err
}

// until moves over the forms up to the closing bracket.
func (p *ednParser) until(end byte) error {
	from := p.i
	p.i++
	for {
		done, err := p.closing(end, from)
		if done || err != nil {
			return err
		}
		if _, err := p.form(nil); err != nil {
			return err
		}
	}
}

// closing reports whether the closing bracket comes next, and moves over it.
func (p *ednParser) closing(end byte, from int) (bool, error) {
	if err := p.blank(); err != nil {
		return false, err
	}
	if p.i == len(p.b) {
		return false, p.bad(from, "nothing closes this")
	}
	if p.b[p.i] == end {
		p.i++
		return true, nil
	}
	return false, nil
}

func (p *ednParser) vector(dst []byte) ([]byte, error) {
	from := p.i
	p.i++
	dst = append(dst, '[')
	for n := 0; ; n++ {
		done, err := p.closing(']', from)
		if err != nil {
			return nil, err
		}
		if done {
			return append(dst, ']'), nil
		}
		if n > 0 {
			dst = append(dst, ',')
		}
		if dst, err = p.form(dst); err != nil {
			return nil, err
		}
	}
}

func (p *ednParser) mapping(dst []byte) ([]byte, error) {
	from, start := p.i, len(dst)
	dst = append(dst, '{')
	var names []string
	value := 0
	err := p.entries(func(name string) (err error) {
		if len(names) > 0 {
			dst = append(dst, ',')
		}
		names = append(names, name)
		dst = append(appendString(dst, name), ':')
		value = len(dst)
		dst, err = p.form(dst)
		return err
	})
	if err != nil {
		return nil, err
	}
	if twice(names) {
		return nil, p.bad(from, "a map with the same key twice")
	}
	if len(names) == 1 && names[0] == ednValue && dst[value] == '"' {
		if _, ok := verbatim(dst[value:]); ok { // it would be taken for what it is not
			return p.wrap(dst[:start], from), nil
		}
	}
	return append(dst, '}'), nil
}

// entries reads a map: the key of each entry; the value is for f to read.
func (p *ednParser) entries(f func(name string) error) error {
	from := p.i
	p.i++
	for {
		done, err := p.closing('}', from)
		if done || err != nil {
			return err
		}
		name, err := p.key()
		if err != nil {
			return err
		}
		if done, err = p.closing('}', from); done {
			return p.bad(from, "a map with a key and no value")
		}
		if err == nil {
			err = f(name)
		}
		if err != nil {
			return err
		}
	}
}

func twice(names []string) bool {
	if len(names) <= 16 {
		for i, n := range names {
			if slices.Contains(names[:i], n) {
				return true
			}
		}
		return false
	}
	seen := make(map[string]bool, len(names))
	for _, n := range names {
		if seen[n] {
			return true
		}
		seen[n] = true
	}
	return false
}

// key reads the key of an entry and gives its name in JSON.
func (p *ednParser) key() (string, error) {
	from := p.i
	switch p.b[from] {
	case ':':
		t := p.token()
		if !isName(t[1:]) {
			return "", p.bad(from, "%q is no keyword", t)
		}
		if isPlain(t[1:]) {
			return string(t[1:]), nil
		}
		return string(t), nil
	case '"':
		s, err := p.text()
		if err != nil {
			return "", err
		}
		if bytes.Equal(keyForm(s), appendEDNString(nil, s)) {
			return s, nil
		}
	default:
		if _, err := p.form(nil); err != nil {
			return "", err
		}
	}
	return ednKey + string(p.b[from:p.i]), nil
}

// isPlain reports whether the name of a JSON field reads well as a keyword.
func isPlain[T string | []byte](name T) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case i > 0 && (c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '?' || c == '!' || c == '*' || c == '+'):
		default:
			return false
		}
	}
	return len(name) > 0
}

// keyForm is the other way: the key of an EDN map for a name in JSON.
func keyForm(name string) []byte {
	var form string
	switch {
	case isPlain(name):
		return append([]byte{':'}, name...)
	case strings.HasPrefix(name, ":"):
		form = name
	case strings.HasPrefix(name, ednKey):
		form = name[len(ednKey):]
	default:
		return appendEDNString(nil, name)
	}
	p := ednParser{b: []byte(form)}
	if form != "" && utf8.ValidString(form) && p.blank() == nil && p.i == 0 {
		if again, err := p.key(); err == nil && p.i == len(p.b) && again == name {
			return []byte(form)
		}
	}
	return appendEDNString(nil, name)
}

// verbatim gives the EDN text of {"#edn":"..."}, if that is what such text
// becomes in JSON. quoted is the JSON string.
func verbatim(quoted []byte) (string, bool) {
	var s string
	if json.Unmarshal(quoted, &s) != nil || s == "" {
		return "", false
	}
	p := ednParser{b: []byte(s)}
	j, err := p.form(nil)
	if err != nil || p.i != len(p.b) || !bytes.Equal(j, p.wrap(nil, 0)) {
		return "", false
	}
	return s, true
}

// text reads a string.
func (p *ednParser) text() (string, error) {
	from := p.i
	p.i++
	start := p.i
	for p.i < len(p.b) && p.b[p.i] != '"' && p.b[p.i] != '\\' {
		p.i++
	}
	if p.i < len(p.b) && p.b[p.i] == '"' {
		p.i++
		return string(p.b[start : p.i-1]), nil
	}
	out := append([]byte(nil), p.b[start:p.i]...)
	for p.i < len(p.b) {
		c := p.b[p.i]
		p.i++
		switch c {
		case '"':
			return string(out), nil
		case '\\':
			var err error
			if out, err = p.escape(out); err != nil {
				return "", err
			}
		default:
			out = append(out, c)
		}
	}
	return "", p.bad(from, "a string that does not end")
}

var escapes = map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f', '"': '"', '\\': '\\', '/': '/', '\'': '\''}

// escape reads what follows a backslash in a string.
func (p *ednParser) escape(out []byte) ([]byte, error) {
	if p.i == len(p.b) {
		return nil, p.bad(p.i, "a string that does not end")
	}
	c := p.b[p.i]
	p.i++
	if e, ok := escapes[c]; ok {
		return append(out, e), nil
	}
	if c != 'u' {
		return nil, p.bad(p.i-2, "\\%c means nothing in a string", c)
	}
	r, ok := p.hex()
	if !ok {
		return nil, p.bad(p.i-2, "\\u wants four hexadecimal digits")
	}
	if utf16.IsSurrogate(r) && bytes.HasPrefix(p.b[p.i:], []byte(`\u`)) {
		back := p.i
		p.i += 2
		low, ok := p.hex()
		if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
			return utf8.AppendRune(out, pair), nil
		}
		p.i = back
	}
	return utf8.AppendRune(out, r), nil // half of a pair becomes U+FFFD, as in JSON
}

func (p *ednParser) hex() (rune, bool) {
	if len(p.b)-p.i < 4 {
		return 0, false
	}
	r := rune(0)
	for _, c := range p.b[p.i : p.i+4] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	p.i += 4
	return r, true
}

// appendEDNString quotes a string for EDN.
func appendEDNString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s { // what is not UTF-8 becomes U+FFFD, as in JSON
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r < 0x20 || r == 0x7f:
			b = fmt.Appendf(b, `\u%04X`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// appendEDNValue appends a JSON value, which must be valid, as EDN.
func appendEDNValue(b []byte, v json.RawMessage) []byte {
	d := jsonWalk{b: v}
	return d.value(b)
}

// jsonWalk goes through valid JSON.
type jsonWalk struct {
	b []byte
	i int
}

func (d *jsonWalk) blank() byte {
	for d.i < len(d.b) {
		switch d.b[d.i] {
		case ' ', '\t', '\n', '\r', ',', ':':
			d.i++
		default:
			return d.b[d.i]
		}
	}
	return 0
}

// token moves over a string or an atom.
func (d *jsonWalk) token() []byte {
	from := d.i
	if d.b[d.i] == '"' {
		for d.i++; d.b[d.i] != '"'; d.i++ {
			if d.b[d.i] == '\\' {
				d.i++
			}
		}
		d.i++
		return d.b[from:d.i]
	}
	for d.i < len(d.b) && strings.IndexByte(" \t\r\n,:]}", d.b[d.i]) < 0 {
		d.i++
	}
	return d.b[from:d.i]
}

func (d *jsonWalk) value(b []byte) []byte {
	switch d.blank() {
	case '[':
		d.i++
		b = append(b, '[')
		for n := 0; d.blank() != ']'; n++ {
			if n > 0 {
				b = append(b, ' ')
			}
			b = d.value(b)
		}
		d.i++
		return append(b, ']')
	case '{':
		return d.object(b)
	case '"':
		var s string
		json.Unmarshal(d.token(), &s) // the caller has checked that it is JSON
		return appendEDNString(b, s)
	}
	t := d.token()
	if string(t) == "null" {
		return append(b, "nil"...)
	}
	return append(b, t...)
}

type member struct {
	name     string
	raw      []byte // its value in JSON
	from, to int    // its value in EDN
}

func (d *jsonWalk) object(b []byte) []byte {
	d.i++
	var all []member
	var edn []byte
	for d.blank() != '}' {
		var m member
		json.Unmarshal(d.token(), &m.name)
		d.blank()
		start := d.i
		m.from = len(edn)
		edn = d.value(edn)
		m.to, m.raw = len(edn), d.b[start:d.i]
		all = append(all, m)
	}
	d.i++
	all = lastOfEach(all)
	if len(all) == 1 && all[0].name == ednValue && all[0].raw[0] == '"' {
		if text, ok := verbatim(all[0].raw); ok {
			return append(b, text...)
		}
	}
	b = append(b, '{')
	for i, m := range all {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, keyForm(m.name)...)
		b = append(b, ' ')
		b = append(b, edn[m.from:m.to]...)
	}
	return append(b, '}')
}

// lastOfEach drops what a later member of the same name replaces, as
// encoding/json does.
func lastOfEach(all []member) []member {
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = m.name
	}
	if !twice(names) {
		return all
	}
	last := map[string]int{}
	for i, m := range all {
		last[m.name] = i
	}
	out := all[:0]
	for i, m := range all {
		if last[m.name] == i {
			out = append(out, m)
		}
	}
	return out
}
