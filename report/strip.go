package report

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

// StripOptions say how a timeline is drawn.
type StripOptions struct {
	Width     int  // of the terminal, at least 60; 100 if it is not known
	ASCII     bool // nothing beyond ASCII
	Color     bool // a terminal, and no NO_COLOR
	Reentrant bool // the lock is: a process that acquires again still holds
}

const (
	// gutter is the room for the labels of the lanes.
	gutter = 14
	// maxListed is how many events are spelled out below a strip.
	maxListed = 8
)

// Strip draws the timeline of one anomaly: a lane for each process that has a
// part in it and one for the store, around the events that prove it.
func Strip(w io.Writer, ops []history.Op, a checker.Anomaly, o StripOptions) error {
	p := &painter{printer: printer{bufio.NewWriter(w), o.ASCII}, o: o, width: width(o.Width), kind: a.Kind}
	p.title(kindOf(&a)+" on ", a.Key)
	p.paragraph(a.Message)
	pic, missing := pictureOf(ops, &a)
	s := follow(ops, pic.key, o.Reentrant)
	held := pic.heldIn(s, &a)
	if len(pic.proof) > 0 || len(held) > 0 {
		p.draw(pic, s, held, ops)
	}
	if len(missing) > 0 {
		p.paragraph(fmt.Sprintf("Not in this history: %s of the anomaly.", indexes(missing)))
	} else if len(pic.proof)+len(held) == 0 {
		p.line("There is nothing to draw: the anomaly names no event.")
	}
	return p.w.Flush()
}

// pictureOf begins the picture of an anomaly. It gives the indexes of the events
// that are not there, too.
func pictureOf(ops []history.Op, a *checker.Anomaly) (*picture, []int) {
	pic := newPicture(a.Key)
	var missing []int
	pic.proof, missing = find(ops, a.Ops)
	if a.Key == "" {
		pic.key = keyOf(pic.proof)
	}
	for _, e := range pic.proof {
		if pic.focus == nil || later(e, pic.focus) {
			pic.focus = e
		}
	}
	return pic, missing
}

// heldIn chooses the grants that the anomaly is about, and the frame.
func (p *picture) heldIn(s *scan, a *checker.Anomaly) []*hold {
	var held []*hold
	if len(p.proof) > 0 {
		held = s.involve(p.proof)
	} else {
		held = s.around(a.Time)
	}
	if len(p.proof) > 0 || len(held) > 0 {
		p.frame(s, held, min(a.Time, s.last))
	}
	return held
}

// StripKey draws the timeline of one key between two times (ns, as in Op.Time):
// of a run without an anomaly. With from and to both zero it shows the first
// access that the store refused, and how it came to that; if it refused none,
// all that happened to the key.
func StripKey(w io.Writer, ops []history.Op, key string, from, to int64, o StripOptions) error {
	p := &painter{printer: printer{bufio.NewWriter(w), o.ASCII}, o: o, width: width(o.Width)}
	pic := newPicture(key)
	whole := from == 0 && to == 0
	if whole {
		from, to = extent(ops, key)
	}
	var raised *history.Op // whoever came last before the refused one
	for i := range ops {
		e := &ops[i]
		if e.Process != history.Store || e.Key != key || e.Time < from || e.Time > to {
			continue
		}
		if e.Type == history.Fail && (pic.focus == nil || e.F == history.Write && pic.focus.F != history.Write) {
			pic.focus = e
		} else if e.Type == history.OK && pic.focus == nil {
			raised = e
		}
	}
	if pic.focus != nil {
		p.kind = history.ErrFenced
		pic.proof[pic.focus.Index] = pic.focus
		if whole && raised != nil {
			pic.proof[raised.Index] = raised
		}
	}
	s := follow(ops, key, o.Reentrant)
	held := s.involve(pic.proof)
	switch {
	case whole && pic.focus != nil:
		pic.frame(s, held, pic.focus.Time)
	default:
		pic.from, pic.to = from, to
	}
	p.title("timeline of ", key)
	if from > to {
		p.line("There is nothing to draw: nothing happened to this key.")
	} else {
		p.draw(pic, s, held, ops)
	}
	return p.w.Flush()
}

func newPicture(key string) *picture {
	return &picture{key: key, pointed: -1, proof: map[int]*history.Op{}, leftOut: map[history.Process]bool{}}
}

// find gives the events of an anomaly, and the indexes that are not there.
func find(ops []history.Op, want []int) (map[int]*history.Op, []int) {
	found := map[int]*history.Op{}
	wanted := map[int]bool{}
	for _, i := range want {
		wanted[i] = true
	}
	for i := range ops {
		if wanted[ops[i].Index] {
			found[ops[i].Index] = &ops[i]
		}
	}
	var missing []int
	for _, i := range want {
		if found[i] == nil && wanted[i] {
			missing = append(missing, i)
			wanted[i] = false // named once
		}
	}
	return found, missing
}

// later reports whether e, rather than f, is what the anomaly came to.
func later(e, f *history.Op) bool {
	return e.Time > f.Time || e.Time == f.Time && e.Index > f.Index
}

func keyOf(events map[int]*history.Op) string {
	var first *history.Op
	for _, e := range events {
		if e.Key != "" && (first == nil || e.Index < first.Index) {
			first = e
		}
	}
	if first == nil {
		return ""
	}
	return first.Key
}

func follow(ops []history.Op, key string, reentrant bool) *scan {
	s := newScan(key, reentrant)
	for i := range ops {
		s.add(&ops[i])
	}
	return s
}

// extent gives the time of the first and of the last event of a key.
func extent(ops []history.Op, key string) (from, to int64) {
	from, to = never, -1
	for i := range ops {
		if ops[i].Key == key && ops[i].Process != history.Nemesis {
			from, to = min(from, ops[i].Time), max(to, ops[i].Time)
		}
	}
	return from, to
}

func indexes(idx []int) string {
	if len(idx) == 1 {
		return "event #" + strconv.Itoa(idx[0])
	}
	var b strings.Builder
	b.WriteString("events")
	for _, i := range idx[:min(len(idx), maxIndexes)] {
		b.WriteString(" #" + strconv.Itoa(i))
	}
	if more := len(idx) - maxIndexes; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// title is one line, so that nothing in a key can look like a line of its own.
func (p *painter) title(s, key string) {
	p.line(bold.on(clip(p.plain(s+quote(key, max(p.width-utf8.RuneCountInString(s), 20))), p.width), p.o.Color))
}

func (p *painter) paragraph(s string) {
	for _, l := range wrap(p.plain(clip(s, maxText)), p.width) {
		p.line(l)
	}
}
