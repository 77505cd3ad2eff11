package history

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// AppendEDN appends the event as a map in EDN, on one line unless it holds text
// of several. What was read from EDN is written as it was.
func AppendEDN(b []byte, o *Op) []byte {
	var done map[string]bool
	if tag := recordTagOf(o); tag != "" {
		b = append(append(b, '#'), tag...)
		done = map[string]bool{recordTag: true}
	}
	start := len(b)
	b = append(b, '{')
	for _, name := range knownFields {
		from := len(b)
		b = appendEDNKey(b, start, name)
		value := len(b)
		if v, ok := o.Extra[otherForm+name]; ok && stands(name, v, o) {
			if done == nil {
				done = map[string]bool{}
			}
			done[otherForm+name] = true
			if string(v) != string(noField) {
				b = appendEDNValue(b, v)
			}
		} else {
			b = appendField(b, name, o)
		}
		if len(b) == value {
			b = b[:from]
		}
	}
	b = appendEDNExtra(b, start, o, done)
	return append(b, '}')
}

func appendEDNKey(b []byte, start int, name string) []byte {
	if len(b) > start+1 {
		b = append(b, ", "...)
	}
	return append(append(b, keyForm(name)...), ' ')
}

func appendEDNExtra(b []byte, start int, o *Op, done map[string]bool) []byte {
	if len(o.Extra) == 0 {
		return b
	}
	names := make([]string, 0, len(o.Extra))
	for n := range o.Extra {
		if n != errorField && !done[n] {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for _, n := range names {
		b = appendEDNKey(b, start, n)
		b = appendEDNRaw(b, o.Extra[n])
	}
	return b
}

// appendEDNRaw appends JSON that a caller may have made himself: what is not JSON
// is written as a string.
func appendEDNRaw(b []byte, v json.RawMessage) []byte {
	if !json.Valid(v) {
		return appendEDNString(b, string(v))
	}
	return appendEDNValue(b, v)
}

// appendField appends the value of a known field as it is usually written, or
// nothing if it is absent.
func appendField(b []byte, name string, o *Op) []byte {
	switch name {
	case "index":
		return strconv.AppendInt(b, int64(o.Index), 10)
	case "time":
		return strconv.AppendInt(b, o.Time, 10)
	case "process":
		if !o.Process.Worker() {
			b = append(b, ':')
		}
		return append(b, o.Process.String()...)
	case "type":
		return append(append(b, ':'), o.Type.String()...)
	case "f":
		if !isPlain(o.F) {
			return appendEDNString(b, o.F)
		}
		return append(append(b, ':'), o.F...)
	case "key":
		if o.Key == "" {
			return b
		}
		return appendEDNString(b, o.Key)
	case "error":
		if v, ok := o.Extra[errorField]; ok {
			return appendEDNRaw(b, v)
		}
		if o.Error == "" {
			return b
		}
		return appendEDNString(b, o.Error)
	case "session":
		if !o.Session {
			return b
		}
		return append(b, "true"...)
	case "value":
		if len(o.Value) == 0 {
			return b
		}
		return appendEDNRaw(b, o.Value)
	}
	return appendNumber(b, name, o)
}

func appendNumber(b []byte, name string, o *Op) []byte {
	switch name {
	case "grant":
		return appendUint(b, "", o.Grant)
	case "token":
		return appendUint(b, "", o.Token)
	case "seq":
		return appendUint(b, "", o.Seq)
	case "ttl":
		return appendInt(b, "", o.TTL)
	case "from":
		return appendInt(b, "", o.From)
	case "valid":
		return appendInt(b, "", o.Valid)
	}
	return b
}

// stands reports whether the other form of a field still says what the field
// says: Extra may have come from anywhere.
func stands(name string, v json.RawMessage, o *Op) bool {
	if string(v) == string(noField) {
		return name == "time" && o.Time == 0
	}
	if name == "value" || name == errorField || !json.Valid(v) {
		return false
	}
	form := appendEDNValue(nil, v)
	p := ednParser{b: form}
	back, err := p.form(nil)
	if err != nil || p.i != len(form) {
		return false
	}
	d := ednDecoder{others: map[string]Process{}}
	var again Op
	if _, reason := d.field(name, form, back, &again); reason != "" || sameForm(name, form, back, o) {
		return false
	}
	if name == "process" && again.Process == firstOther {
		return o.Process >= firstOther
	}
	return string(appendField(nil, name, &again)) == string(appendField(nil, name, o))
}

// recordTagOf gives the tag that the map was read with.
func recordTagOf(o *Op) string {
	v, ok := o.Extra[recordTag]
	if !ok {
		return ""
	}
	var tag string
	if json.Unmarshal(v, &tag) != nil || tag == "" {
		return ""
	}
	p := ednParser{b: []byte("#" + tag)}
	p.i++
	if t := p.token(); string(t) != tag || !isName(t) || strings.IndexByte("_{<#", tag[0]) >= 0 || tag[0]-'0' <= 9 {
		return ""
	}
	return tag
}

// AppendEDNHeader appends a header, as it was written in JSON.
func AppendEDNHeader(b []byte, raw json.RawMessage) []byte { return appendEDNRaw(b, raw) }
