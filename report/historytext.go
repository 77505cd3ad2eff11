package report

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"github.com/lockcheck/lockcheck/history"
)

// text writes history.txt.
func (d *drawing) text(w io.Writer) error {
	h := NewHistoryText(w, false)
	h.Head()
	if err := d.eachOp(func(history.Header) {}, func(o *history.Op) error { h.Event(o); return nil }); err != nil {
		return err
	}
	return h.Flush()
}

// A HistoryText writes a history for reading: one event a line in aligned
// columns, times in milliseconds.
type HistoryText struct {
	w     *bufio.Writer
	color bool
}

// NewHistoryText writes to w, in colours on a terminal that wants them.
func NewHistoryText(w io.Writer, color bool) *HistoryText {
	return &HistoryText{w: bufio.NewWriterSize(w, 1<<16), color: color}
}

// keyColumn is the width of a key; a longer one is cut.
const keyColumn = 16

// Head writes the names of the columns.
func (h *HistoryText) Head() {
	h.w.WriteString(dim.on(fmt.Sprintf("%8s %13s  %-8s %-7s %-13s %-*s %s", "index", "time ms", "process", "type", "f", keyColumn, "key", "rest"), h.color))
	h.w.WriteByte('\n')
}

// typePaints are Jepsen's colours as far as a terminal has them.
var typePaints = map[history.Type]paint{history.OK: blue, history.Info: yellow, history.Fail: red}

// Event writes one event.
func (h *HistoryText) Event(o *history.Op) {
	p := typePaints[o.Type]
	if o.Process == history.Nemesis {
		p = cyan
	}
	line := make([]byte, 0, 128)
	line = fmt.Appendf(line, "%8d %13s  %-8s %s %-13s %-*s", o.Index, strconv.FormatFloat(float64(o.Time)/1e6, 'f', 3, 64),
		o.Process, p.on(fmt.Sprintf("%-7s", o.Type), h.color), clip(o.F, 13), keyColumn, clip(o.Key, keyColumn))
	line = append(line, rest(o)...)
	for len(line) > 0 && line[len(line)-1] == ' ' {
		line = line[:len(line)-1]
	}
	h.w.Write(append(line, '\n'))
}

// rest is what only some events have.
func rest(o *history.Op) string {
	b := make([]byte, 0, 64)
	add := func(name string, set bool, v uint64) {
		if set {
			b = strconv.AppendUint(append(append(b, ' '), name...), v, 10)
		}
	}
	add("grant ", o.Grant.Set, o.Grant.V)
	add("token ", o.Token.Set, o.Token.V)
	if o.Valid.Set {
		b = append(b, " valid "+stamp(o.Valid.V, never)+" ms"...)
	}
	if o.From.Set {
		b = append(b, " from "+strconv.FormatFloat(float64(o.From.V)/1e6, 'f', 3, 64)...)
	}
	if o.Session {
		b = append(b, " session"...)
	}
	if len(o.Value) > 0 {
		b = append(b, " value "+clip(string(o.Value), 200)...)
	}
	add("seq ", o.Seq.Set, o.Seq.V)
	if o.Error != "" {
		b = append(b, " error "+clip(o.Error, 200)...)
	}
	return string(b)
}

// Flush ends it. It gives the first error of writing.
func (h *HistoryText) Flush() error { return h.w.Flush() }
