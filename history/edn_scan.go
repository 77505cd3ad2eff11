package history

import (
	"errors"
	"fmt"
	"io"
)

// ednScanner cuts EDN text into forms without looking into them, so that a
// history can be read as a stream.
type ednScanner struct {
	in   io.Reader
	buf  []byte
	pos  int // next byte
	mark int // where the form began that is being cut, or -1
	line int // of pos
	err  error
}

// Errors of the scanner. errCut: the text ends within a form.
var (
	errCut     = errors.New("cut short")
	errTooLong = fmt.Errorf("a form of more than %d MB is no event", MaxLine>>20)
)

func newEDNScanner(r io.Reader) *ednScanner {
	return &ednScanner{in: r, buf: make([]byte, 0, 64<<10), mark: -1, line: 1}
}

// fill reads more, and reports whether it got any.
func (s *ednScanner) fill() bool {
	if s.err != nil {
		return false
	}
	keep := s.pos
	if s.mark >= 0 {
		keep = s.mark
	}
	if keep > 0 {
		n := copy(s.buf, s.buf[keep:])
		s.buf, s.pos = s.buf[:n], s.pos-keep
		if s.mark >= 0 {
			s.mark = 0
		}
	}
	if len(s.buf) == cap(s.buf) {
		if len(s.buf) > MaxLine {
			s.err = errTooLong
			return false
		}
		s.buf = append(make([]byte, 0, 2*cap(s.buf)), s.buf...)
	}
	for range 100 {
		n, err := s.in.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+n]
		s.err = err
		if n > 0 || err != nil {
			return n > 0
		}
	}
	s.err = io.ErrNoProgress
	return false
}

// peek gives the byte k places on.
func (s *ednScanner) peek(k int) (byte, bool) {
	for s.pos+k >= len(s.buf) {
		if !s.fill() {
			return 0, false
		}
	}
	return s.buf[s.pos+k], true
}

// skip moves over n bytes that were seen.
func (s *ednScanner) skip(n int) {
	for _, c := range s.buf[s.pos : s.pos+n] {
		if c == '\n' {
			s.line++
		}
	}
	s.pos += n
}

// end tells why there is no next byte: errCut at the end of the text.
func (s *ednScanner) end() error {
	if errors.Is(s.err, io.EOF) {
		return errCut
	}
	return s.err
}

// blank skips what stands between forms: space, commas, comments and discarded
// forms.
func (s *ednScanner) blank() error {
	for {
		c, ok := s.peek(0)
		switch {
		case !ok:
			if errors.Is(s.err, io.EOF) {
				return io.EOF
			}
			return s.err
		case isBlank(c):
			s.skip(1)
		case c == ';':
			s.comment()
		case c == '#':
			if d, _ := s.peek(1); d != '_' {
				return nil
			}
			s.skip(2)
			if err := s.forms(1); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (s *ednScanner) comment() {
	for {
		c, ok := s.peek(0)
		if !ok || c == '\n' {
			return
		}
		s.skip(1)
	}
}

// form cuts the next form. The bytes are valid until the next call.
func (s *ednScanner) form() (text []byte, line int, err error) {
	s.mark, line = s.pos, s.line
	err = s.forms(1)
	text = s.buf[s.mark:s.pos]
	s.mark = -1
	return text, line, err
}

// forms moves over n forms.
func (s *ednScanner) forms(n int) error {
	depth := 0
	for {
		c, ok := s.peek(0)
		if !ok {
			return s.end()
		}
		whole := true // whether this ends a form, or a part of one
		switch {
		case isBlank(c):
			s.skip(1)
			whole = false
		case c == ';':
			s.comment()
			whole = false
		case c == '(' || c == '[' || c == '{':
			s.skip(1)
			depth++
			whole = false
		case c == ')' || c == ']' || c == '}':
			if depth == 0 {
				return fmt.Errorf("a %q that closes nothing", c)
			}
			s.skip(1)
			depth--
		case c == '"':
			if err := s.quoted(); err != nil {
				return err
			}
		case c == '#':
			next, err := s.dispatch()
			switch {
			case err != nil:
				return err
			case next == setOpens:
				depth++
			case next == discards && depth == 0:
				n++
			}
			whole = next == nothing
		default:
			s.token()
		}
		if whole && depth == 0 {
			if n--; n == 0 {
				return nil
			}
		}
	}
}

// follows says what a # and what belongs to it need.
type follows uint8

const (
	nothing  follows = iota // it is whole
	oneForm                 // a tag, and then its value
	setOpens                // the rest of a set
	discards                // a form that does not count
)

// dispatch moves over a # and what belongs to it.
func (s *ednScanner) dispatch() (follows, error) {
	c, ok := s.peek(1)
	switch {
	case !ok:
		return nothing, s.end()
	case c == '{':
		s.skip(2)
		return setOpens, nil
	case c == '_':
		s.skip(2)
		return discards, nil
	case c == '"': // a regular expression
		s.skip(1)
		return nothing, s.quoted()
	case c == '#': // ##Inf
		s.skip(2)
		s.token()
		return nothing, nil
	case c == '<' || isBlank(c):
		return nothing, fmt.Errorf("#%c: what Clojure prints like this cannot be read back", c)
	}
	s.skip(1)
	s.token()
	return oneForm, nil
}

// token moves over a number, keyword, symbol, character or tag.
func (s *ednScanner) token() {
	if c, _ := s.peek(0); c == '\\' { // the character itself may be a bracket
		if _, ok := s.peek(1); ok {
			s.skip(1)
		}
		s.skip(1)
	}
	for {
		for s.pos < len(s.buf) {
			if isDelimiter(s.buf[s.pos]) {
				return
			}
			s.pos++ // no line ends in a token
		}
		if !s.fill() {
			return
		}
	}
}

func (s *ednScanner) quoted() error {
	s.skip(1)
	for {
		c, ok := s.peek(0)
		if !ok {
			return s.end()
		}
		s.skip(1)
		switch c {
		case '"':
			return nil
		case '\\':
			if _, ok := s.peek(0); !ok {
				return s.end()
			}
			s.skip(1)
		}
	}
}

func isBlank(c byte) bool {
	switch c {
	case ' ', '\t', '\n', '\r', '\f', '\v', ',', 0x1c, 0x1d, 0x1e, 0x1f:
		return true
	}
	return false
}

func isDelimiter(c byte) bool {
	switch c {
	case '(', ')', '[', ']', '{', '}', '"', ';':
		return true
	}
	return isBlank(c)
}
