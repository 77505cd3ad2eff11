package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Convert writes what is left of a history in another format, or in the same,
// and gives the number of events. Nothing is lost: converted there and back, each
// event and the header are what they were. A history whose times are advisory
// gets a header that says so in JSON lines, where they are not advisory
// otherwise; one in EDN gets a header if they are not.
func Convert(w io.Writer, s Source, to Format) (events int, err error) {
	if to != JSONL && to != EDN {
		return 0, fmt.Errorf("convert: a history cannot be written as %q", to)
	}
	out := bufio.NewWriterSize(w, 1<<16)
	var o Op
	var line []byte
	for first := true; ; first = false {
		readErr := s.Read(&o)
		if first && (readErr == nil || errors.Is(readErr, io.EOF)) {
			if h := headerFor(s.About(), to); h != nil {
				out.Write(h)
				out.WriteByte('\n')
			}
		}
		if errors.Is(readErr, io.EOF) {
			return events, out.Flush()
		}
		if readErr != nil {
			out.Flush() // what could be read is there, as it is in the file
			return events, readErr
		}
		if to == EDN {
			line = AppendEDN(line[:0], &o)
		} else {
			line = AppendJSON(line[:0], &o)
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return events, fmt.Errorf("write history: %w", err)
		}
		events++
	}
}

// headerFor gives the header line, or nil.
func headerFor(a About, to Format) []byte {
	raw := a.RawHeader
	switch {
	case raw != nil:
	case a.FileOrder && to == JSONL:
		raw, _ = json.Marshal(Header{Version: Version, Order: OrderOfFile}) // it always marshals
	case !a.FileOrder && to == EDN:
		raw, _ = json.Marshal(Header{Version: Version})
	}
	if raw == nil {
		return nil
	}
	if to == EDN {
		return AppendEDNHeader(nil, raw)
	}
	return raw
}
