package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// A Source is a history that is being read, whatever it is written in.
type Source interface {
	// Read overwrites o with the next event. At the end it gives io.EOF; after any
	// other error nothing more can be read.
	Read(o *Op) error
	// About tells what is known of the history so far: the header once Read was
	// called, what was cut off once it gave io.EOF.
	About() About
	// Close ends the reading. It does not close what the history is read from.
	Close() error
}

// Format is what a history is written in.
type Format string

const (
	JSONL     Format = "jsonl"      // one JSON object a line: our own
	EDN       Format = "edn"        // maps, as Jepsen and knossos write them
	JepsenLog Format = "jepsen-log" // what Jepsen prints while it runs
)

// About is what a Source knows beside its events.
type About struct {
	Format      Format
	Compression string          // gzip, zstd or nothing
	Header      Header          // empty if there is none
	RawHeader   json.RawMessage // the header as it was written, as JSON; nil if there is none
	// FileOrder tells that the order of the events is that of the file and their
	// times are advisory; see InOrder.
	FileOrder bool
	Truncated string // what was left out because the file is cut short
}

// Open finds out what r is written in, from its first bytes, and reads it.
// file is its name for errors; only where the bytes leave a doubt does it also
// count.
func Open(r io.Reader, file string) (Source, error) {
	in := bufio.NewReaderSize(r, sniffSize)
	un, err := decompress(in, file)
	if err != nil {
		return nil, err
	}
	if un != nil {
		in = bufio.NewReaderSize(un, sniffSize)
	}
	f, err := sniff(in, file)
	if err != nil {
		if un != nil {
			un.close()
		}
		return nil, err
	}
	var s Source
	switch f {
	case EDN:
		s = newEDNReader(in, file)
	case JepsenLog:
		s = newLogReader(in, file)
	default:
		s = NewReader(in, file)
	}
	if un != nil {
		return &unpacked{Source: s, un: un, file: file}, nil
	}
	return s, nil
}

// sniffSize is how much of a file is looked at to find out what it is. A log may
// begin with many lines that are no events.
const sniffSize = 64 << 10

// decompress gives a reader of what is packed in r, or nil if nothing is packed.
func decompress(in *bufio.Reader, file string) (*unpacker, error) {
	magic, _ := in.Peek(4) // an error comes again when the file is read
	switch {
	case bytes.HasPrefix(magic, []byte("\x1f\x8b")):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, packed(file, "gzip", err)
		}
		return newUnpacker(z, "gzip", file, func() {}), nil
	case string(magic) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, packed(file, "zstd", err)
		}
		return newUnpacker(z, "zstd", file, z.Close), nil
	}
	return nil, nil
}

// maxWindow is the memory that zstd data may ask for; data that wants more is
// refused.
const maxWindow = 64 << 20

func packed(file, how string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return &MalformedError{file, 1, "the " + how + " data is cut short before its first event"}
	}
	return &MalformedError{file, 1, fmt.Sprintf("not %s, though it begins like it: %v", how, err)}
}

// unpacked is a history out of a compressed file.
type unpacked struct {
	Source
	un   *unpacker
	file string
}

func (u *unpacked) About() About {
	i := u.Source.About()
	i.Compression = u.un.how
	if u.un.cut && i.Truncated == "" {
		i.Truncated = u.file + ": the " + u.un.how + " data is cut short; what came before was read"
	}
	return i
}

func (u *unpacked) Close() error {
	u.un.close()
	return u.Source.Close()
}

// An unpacker decompresses in a goroutine of its own, a few blocks ahead of who
// reads. Data that is cut short ends like a file that is.
type unpacker struct {
	how, file string
	blocks    chan block
	spare     chan []byte
	stop      chan struct{}
	stopped   bool
	cut       bool

	now  block
	left []byte
}

type block struct {
	data []byte
	err  error
}

const (
	blockSize = 256 << 10
	blocks    = 4
)

func newUnpacker(z io.Reader, how, file string, free func()) *unpacker {
	u := &unpacker{how: how, file: file, blocks: make(chan block, blocks), spare: make(chan []byte, blocks), stop: make(chan struct{})}
	for range blocks {
		u.spare <- make([]byte, blockSize)
	}
	go u.run(z, free)
	return u
}

func (u *unpacker) run(z io.Reader, free func()) {
	defer free()
	for {
		var buf []byte
		select {
		case buf = <-u.spare:
		case <-u.stop:
			return
		}
		n, err := 0, error(nil)
		for n < blockSize && err == nil {
			var k int
			k, err = z.Read(buf[n:blockSize])
			n += k
		}
		select {
		case u.blocks <- block{buf[:n], err}:
		case <-u.stop:
			return
		}
		if err != nil {
			return
		}
	}
}

func (u *unpacker) Read(p []byte) (int, error) {
	for len(u.left) == 0 {
		if u.now.err != nil {
			return 0, u.end()
		}
		if u.now.data != nil {
			u.spare <- u.now.data[:blockSize]
		}
		u.now = <-u.blocks
		u.left = u.now.data
	}
	n := copy(p, u.left)
	u.left = u.left[n:]
	return n, nil
}

func (u *unpacker) end() error {
	switch err := u.now.err; {
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		u.cut = true
		return io.EOF
	default:
		return fmt.Errorf("unpack the %s data: %w", u.how, err)
	}
}

func (u *unpacker) close() {
	if !u.stopped {
		u.stopped = true
		close(u.stop)
	}
}

// sniff tells what a history is written in.
func sniff(in *bufio.Reader, file string) (Format, error) {
	head, err := in.Peek(sniffSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	text := blank(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")))
	if len(text) == 0 {
		return JSONL, nil // nothing, or nothing yet
	}
	inner := blank(text[1:])
	switch text[0] {
	case '{':
		if len(inner) == 0 || inner[0] == '"' || inner[0] == '}' {
			return JSONL, nil
		}
		return EDN, nil
	case ';', '(':
		return EDN, nil
	case '[':
		if len(inner) == 0 || strings.IndexByte("{;#]", inner[0]) >= 0 {
			in := inner[min(1, len(inner)):]
			if in = blank(in); len(in) > 0 && in[0] == '"' {
				return JSONL, nil // which refuses an array
			}
			return EDN, nil
		}
	}
	switch {
	case hasLogEvent(text) || strings.Contains(file, ".log"):
		return JepsenLog, nil
	case text[0] == '#' || strings.Contains(file, ".edn"):
		return EDN, nil
	case strings.IndexByte(`["`, text[0]) >= 0 || strings.Contains(file, ".json"):
		return JSONL, nil
	}
	return "", &MalformedError{file, 1, fmt.Sprintf("neither JSON lines nor EDN nor a Jepsen log: it begins with %q", text[:min(len(text), 20)])}
}

// blank cuts off what separates things in JSON and EDN.
func blank(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n\f,") }

// InOrder gives s such that its times grow as its events do. Where the order of
// the file counts, a time that runs backwards or stands still is raised to just
// after the one before, since equal stamps would mean that nobody knows the
// order. Elsewhere it changes nothing.
func InOrder(s Source) Source { return &inOrder{Source: s, last: -1} }

type inOrder struct {
	Source
	last  int64
	asked bool // whether the order of the file counts
	file  bool
}

func (s *inOrder) Read(o *Op) error {
	if err := s.Source.Read(o); err != nil {
		return err
	}
	if !s.asked {
		s.asked, s.file = true, s.About().FileOrder
	}
	if s.file {
		o.Time = max(o.Time, s.last+1)
		s.last = o.Time
	}
	return nil
}
