package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/history"
)

// Measures of timeline.svg, in pixels.
const (
	lineWidth   = 1100.0
	lineLeft    = 104.0
	lineColumn  = 7.0
	laneHeight  = 78.0
	storeHeight = 88.0
)

// A timelineSVG draws what a strip shows in a terminal: the same lanes, the same
// stretched axis.
type timelineSVG struct {
	*svg
	pic     *picture
	axis    *axis
	kind    string
	seen    map[string]string // letter to class, for the legend
	strokes map[string]bool
	rows    map[history.Process]float64
	hidden  int
	store   float64
	bottom  float64
}

// timeline draws timeline.svg: around the first anomaly, else around the first
// access that the store refused, else around the first fault that met a holder,
// else the first grants.
func (d *drawing) timeline(w io.Writer) error {
	sc := d.scene()
	pic, kind, said := sc.pic, sc.kind, sc.said
	t := &timelineSVG{pic: pic, kind: kind, seen: map[string]string{}, strokes: map[string]bool{}, rows: map[history.Process]float64{}}
	head := "Timeline of " + quote(pic.key, 60)
	if kind != "" {
		head = kind + " on " + quote(pic.key, 60)
	}
	if kind == history.ErrFenced {
		head = "A stale access refused, on " + quote(pic.key, 60)
	}
	words := lines(clip(said, 600), lineWidth-40, 13)
	top := 64 + 18*float64(len(words))
	height := top + 30 + laneHeight*float64(len(pic.lanes)) + 24*float64(len(pic.serverFaults())) + 120
	if len(pic.store) > 0 {
		height += storeHeight
	}
	t.svg = newSVG(lineWidth, height, head, said)
	t.text("title", 20, 30, "start", clip(head, 120))
	t.text("soft", 20, 50, "start", d.title())
	for i, l := range words {
		t.text("", 20, 74+18*float64(i), "start", l)
	}
	if pic.from > pic.to || pic.from == never {
		t.text("soft", 20, top+30, "start", "There is nothing to draw: nothing happened to a lock.")
		return t.writeTo(w)
	}
	t.draw(top)
	return t.writeTo(w)
}

// A scene is what timeline.svg shows, and the page tells.
type scene struct {
	pic        *picture
	kind, said string
	held       []*hold // that it is about
	ops        []history.Op
}

// scene chooses it.
func (d *drawing) scene() *scene {
	if d.pic == nil {
		s := &scene{ops: d.near.withProof()}
		s.pic, s.held, s.kind, s.said = d.choose(s.ops)
		d.pic = s
	}
	return d.pic
}

func (d *drawing) choose(ops []history.Op) (pic *picture, held []*hold, kind, said string) {
	if a := d.first; a != nil {
		kind, said = a.Kind, a.Message
		pic, _ = pictureOf(ops, a)
		s := d.scan.only(pic.key)
		held = pic.heldIn(s, a)
		pic.populate(s, held, kind == "stuck")
		pic.collect(ops)
		pic.story()
		return pic, held, kind, said
	}
	pic = newPicture(d.busyKey(ops))
	s := d.scan.only(pic.key)
	for i := range ops {
		if e := &ops[i]; e.Process == history.Store && e.Key == pic.key && e.Type == history.Fail {
			pic.focus, kind = e, history.ErrFenced
			pic.proof[e.Index] = e
			break
		}
	}
	if pic.focus != nil {
		said = fmt.Sprintf("The store refused a %s of process %s, whose token had been overtaken: the fence did its work.", pic.focus.F, d.writer(pic.focus))
		held = s.involve(pic.proof)
		held = append(held, s.overtaker(pic.focus)...)
		pic.frame(s, held, pic.focus.Time)
	} else {
		held, said = d.quietFrame(pic, s)
	}
	pic.populate(s, held, false)
	pic.collect(ops)
	pic.story()
	return pic, held, kind, said
}

// overtaker gives the grant that the refused one was overtaken by: the last one
// before the refusal.
func (s *scan) overtaker(e *history.Op) []*hold {
	for _, h := range slices.Backward(s.holds) {
		if h.ok < e.Time && h.token.Set && e.Token.Set && h.token.V > e.Token.V {
			h.involved = true
			return []*hold{h}
		}
	}
	return nil
}

// writer names the process whose access an entry of the store is.
func (d *drawing) writer(e *history.Op) string {
	if h := d.scan.byGrant[e.Grant.Or(0)]; h != nil && e.Grant.Set {
		return h.proc.String()
	}
	return "?"
}

// busyKey gives the key that is worth seeing when nothing went wrong.
func (d *drawing) busyKey(ops []history.Op) string {
	first, seen := "", false
	for i := range ops {
		e := &ops[i]
		if e.Process == history.Store && e.Type == history.Fail {
			return e.Key
		}
		if e.F == history.Acquire && e.Type == history.OK && !seen {
			first, seen = e.Key, true
		}
	}
	for _, f := range d.scan.faults {
		if h := d.met(f); h != nil {
			return h.key
		}
	}
	return first
}

// met gives the first hold that a fault on its process met.
func (d *drawing) met(f *fault) *hold {
	for _, h := range d.scan.holds {
		if slices.Contains(f.targets, h.proc) && h.ok <= f.from && f.from <= h.end {
			return h
		}
	}
	return nil
}

// quietFrame chooses what to show of a key that nothing happened to: the first
// fault that met a holder and what came of it, else the first grants.
func (d *drawing) quietFrame(pic *picture, s *scan) ([]*hold, string) {
	const shown = 6
	for _, f := range d.scan.faults {
		h := d.met(f)
		if h == nil || h.key != pic.key {
			continue
		}
		h.involved = true
		pic.from, pic.to = h.invoke, min(max(h.leaseEnd(), f.to, f.from+1e6), d.last)
		if f.to == never {
			pic.to = min(max(h.leaseEnd(), f.from+1e9), d.last)
		}
		held := []*hold{h}
		for _, n := range s.holds {
			if n.ok > f.from && len(held) < 3 {
				n.involved = true
				held = append(held, n)
				pic.to = min(max(pic.to, min(n.end, n.ok+50e6)), d.last)
			}
		}
		return held, fmt.Sprintf("No anomaly. A %s met the holder of the lock; what came of it.", f.name)
	}
	held := s.holds[:min(shown, len(s.holds))]
	if len(held) == 0 {
		pic.from, pic.to = 0, d.last
		return nil, "No anomaly, and nobody was granted the lock."
	}
	pic.from, pic.to = held[0].invoke, held[0].ok
	for _, h := range held {
		pic.to = max(pic.to, min(h.end, d.last))
	}
	return held, "No anomaly: the first grants."
}

// serverFaults are those on no worker.
func (p *picture) serverFaults() []*fault {
	const most = 3
	var out []*fault
	for _, f := range p.faults {
		if len(f.targets) == 0 && len(out) < most {
			out = append(out, f)
		}
	}
	return out
}

func (t *timelineSVG) draw(top float64) {
	focus := t.pic.from
	if t.pic.focus != nil {
		focus = t.pic.focus.Time
	}
	cols := int((lineWidth - lineLeft - 30) / lineColumn)
	t.axis = newAxis(t.pic.anchors, t.pic.from, t.pic.to, focus, 1, cols)
	y := top + 8
	t.times(y)
	y += 34
	t.bottom = y + laneHeight*float64(len(t.pic.lanes)) + 24*float64(len(t.pic.serverFaults()))
	for _, f := range t.pic.serverFaults() {
		t.serverFault(f, y)
		y += 24
	}
	for _, l := range t.pic.lanes {
		t.rows[l.proc] = y
		t.lane(l, y)
		y += laneHeight
	}
	if len(t.pic.store) > 0 {
		t.store = y
		t.storeLane(y)
		y += storeHeight
	}
	t.flight()
	t.foot(y + 14)
}

func (t *timelineSVG) x(at int64) float64 {
	at = min(max(at, t.pic.from), t.pic.to)
	return lineLeft + lineColumn*float64(t.axis.x(at))
}

// times draws the upper axis. What is pointed out gets its number first.
func (t *timelineSVG) times(y float64) {
	span := t.pic.to - t.pic.from
	t.line("axis", lineLeft, y+14, lineWidth-20, y+14, "")
	t.text("soft small", lineLeft-12, y+4, "end", "ms")
	at := append(slices.Clone(t.pic.anchors), anchor{t.pic.from, rankProof}, anchor{t.pic.to, rankOther})
	slices.SortStableFunc(at, func(a, b anchor) int { return a.rank - b.rank })
	var labels taken
	for _, a := range at {
		if a.rank > rankAccess || a.at < t.pic.from || a.at > t.pic.to {
			continue
		}
		s := stamp(a.at-t.pic.from, span)
		x, w := t.x(a.at), textWidth(s, 11.5)+8
		if labels.place(x-w/2, w) {
			t.text("soft small", x, y+4, "middle", s)
			t.line("axis", x, y+10, x, y+14, "")
		}
	}
}

func (t *timelineSVG) label(y float64, name, below string) {
	t.text("bold", 20, y+26, "start", name)
	if below != "" {
		t.text("soft small", 20, y+42, "start", below)
	}
}

func (t *timelineSVG) serverFault(f *fault, y float64) {
	from, to := t.x(f.from), t.x(f.to)
	t.rect("band", from, y, max(to-from, 2), 18, `style="opacity:.35"`)
	t.strokes["fault"] = true
	s := strings.TrimSpace(clip(f.name+" "+strings.Join(f.nodes, " "), 40))
	t.beside(from, to, y+13, s, "small")
	t.text("bold", 20, y+13, "start", "servers")
}

// beside writes a label into a stretch if it fits, else next to it.
func (t *timelineSVG) beside(from, to, y float64, s, class string) {
	w := textWidth(s, 11.5)
	switch {
	case w+8 <= to-from:
		t.text(class, (from+to)/2, y, "middle", s)
	case to+6+w < lineWidth-16:
		t.text(class, to+6, y, "start", s)
	case from-6-w > lineLeft:
		t.text(class, from-6, y, "end", s)
	}
}

// lane draws a process: its marks above, its sections, its leases below.
func (t *timelineSVG) lane(l *lane, y float64) {
	t.line("grid", 20, y-2, lineWidth-20, y-2, "")
	t.label(y, "process "+l.proc.String(), "")
	bar := y + 28
	for _, w := range l.waits {
		if w.to < t.pic.from || w.from > t.pic.to {
			continue
		}
		if a, b := t.x(w.from), t.x(w.to); b-a > 12 {
			t.strokes["wait"] = true
			t.line("", a, y+15, b, y+15, `style="stroke:var(--soft);stroke-width:1.5;stroke-dasharray:1 4;stroke-linecap:round"`)
		}
	}
	hit := t.hits(l)
	for _, h := range l.holds {
		if h.end < t.pic.from || h.ok > t.pic.to {
			continue
		}
		a, b := t.x(h.ok), t.x(h.end)
		t.strokes["section"] = true
		t.rect("", a, bar, max(b-a, 3), 20, `rx="3" style="fill:var(--section)"`)
	}
	for _, f := range hit {
		t.pause(f, bar)
	}
	for _, h := range l.holds {
		t.name(h, hit, bar)
		t.leases(h, bar+25)
	}
	t.marks(l.marks, y+15)
}

func (t *timelineSVG) hits(l *lane) []*fault {
	var hit []*fault
	for _, f := range t.pic.faults {
		if slices.Contains(f.targets, l.proc) {
			hit = append(hit, f)
		}
	}
	return hit
}

func (t *timelineSVG) pause(f *fault, bar float64) {
	a, b := t.x(f.from), t.x(f.to)
	if f.name == killFault {
		t.mark(mark{at: f.from, letter: markKilled}, bar-13, false)
		return
	}
	what := clip(f.name, 30)
	if f.name == "pause" {
		what = "paused"
	}
	t.strokes["pause"] = true
	t.rect("", a, bar, max(b-a, 3), 20, `style="fill:url(#hatch)"`)
	t.rect("", a, bar, max(b-a, 3), 20, `style="fill:none;stroke:var(--pause)"`)
	if f.to != never && f.to <= t.pic.to {
		what += " " + stamp(f.to-f.from, f.to-f.from) + " ms"
	}
	if w := textWidth(what, 12.5); w+16 < b-a {
		mid := (a + b) / 2
		t.rect("paper", mid-w/2-6, bar+2, w+12, 16, `rx="3"`)
		t.text("bold small", mid, bar+14.5, "middle", what)
	}
}

// name writes onto the free part of a section whose it is.
func (t *timelineSVG) name(h *hold, hit []*fault, bar float64) {
	if h.end < t.pic.from || h.ok > t.pic.to || !h.grant.Set {
		return
	}
	from, to := t.x(h.ok), t.x(h.end)
	for _, f := range hit { // the part before, or after, what is drawn over it
		if a, b := t.x(f.from), t.x(f.to); a <= to && b >= from {
			if a-from >= to-b {
				to = a
			} else {
				from = b
			}
		}
	}
	g := fmt.Sprint(h.grant.V)
	texts := []string{"grant " + g, g}
	if h.token.Set {
		k := shortToken(h.token.V)
		texts = []string{"grant " + g + ", token " + k, "token " + k, "grant " + g, g}
	}
	for _, s := range texts {
		if textWidth(s, 11.5)+10 <= to-from {
			t.raw(fmt.Sprintf(`<text class="small" x="%s" y="%s" style="fill:#fff">%s</text>`, num(from+5), num(bar+14), escaped(s)))
			return
		}
	}
}

// shortToken gives the last digits of a long token, in which they differ.
func shortToken(v uint64) string {
	s := fmt.Sprint(v)
	if len(s) > 8 {
		return "…" + s[len(s)-5:]
	}
	return s
}

func (t *timelineSVG) leases(h *hold, y float64) {
	if h.end < t.pic.from && h.leaseEnd() < t.pic.from || h.ok > t.pic.to {
		return
	}
	if len(h.leases) == 0 {
		t.text("soft small", t.x(h.ok), y+10, "start", "no lease")
		return
	}
	label := "lease ends"
	if h.session {
		label = "session last proved"
	}
	t.strokes["lease"] = true
	for _, l := range h.leases {
		given := l.to > h.released
		l.to = min(l.to, h.released)
		if l.to < t.pic.from || l.from > min(t.pic.to, l.to) {
			continue
		}
		a, b := t.x(l.from), t.x(l.to)
		t.rect("", a, y, max(b-a, 2), 5, `rx="2" style="fill:var(--lease)"`)
		if l.to <= t.pic.to && !given && h.involved {
			t.line("", b, y-4, b, y+9, `style="stroke:var(--lease);stroke-width:2"`)
			if b+6+textWidth(label, 11.5) < lineWidth-16 {
				t.text("small soft", b+6, y+10, "start", label)
			} else {
				t.text("small soft", b, y+18, "end", label)
			}
		}
	}
}

var markClasses = map[rune]string{
	markGranted: "ok", markRefused: "fail", markFenced: "fail", markUnknown: "info", markLost: "info", markKilled: "bad",
	markWriteApplied: "ok", markReadApplied: "ok",
}

// marks draws letters in circles; of those that would cover each other, the
// heavier one.
func (t *timelineSVG) marks(marks []mark, y float64) {
	byWeight := slices.Clone(marks)
	slices.SortStableFunc(byWeight, func(a, b mark) int { return b.weight - a.weight })
	var room taken
	for _, m := range byWeight {
		w := 12.0
		if m.letter == markRefused {
			w = 6
		}
		if !room.place(t.x(m.at)-w/2, w) {
			t.hidden++
			continue
		}
		t.mark(m, y, m.idx == t.pic.pointed)
	}
}

func (t *timelineSVG) mark(m mark, y float64, pointed bool) {
	class := markClasses[m.letter]
	if class == "" {
		class = "ink"
	}
	letter := string(m.letter)
	if m.letter == markFenced {
		letter = "✗"
	}
	t.seen[string(m.letter)] = class
	r := 7.0
	if m.letter == markRefused {
		r = 4
	}
	if pointed {
		class, r = "bad", 9
	}
	x := t.x(m.at)
	t.raw(fmt.Sprintf(`<g data-index="%d" data-x="%s">`, m.idx, num(x)))
	if t.pic.proof[m.idx] != nil {
		t.raw(fmt.Sprintf(`<circle cx="%s" cy="%s" r="%g" style="fill:none;stroke:var(--bad);stroke-width:1.5"/>`, num(x), num(y), r+2.5))
	}
	t.raw(fmt.Sprintf(`<circle cx="%s" cy="%s" r="%g" style="fill:var(--%s)"/>`, num(x), num(y), r, class))
	if r > 5 {
		t.raw(fmt.Sprintf(`<text x="%s" y="%s" text-anchor="middle" style="fill:var(--paper);font-size:10px;font-weight:700">%s</text>`, num(x), num(y+3.6), letter))
	}
	t.raw("</g>")
}

func (t *timelineSVG) storeLane(y float64) {
	t.line("grid", 20, y-2, lineWidth-20, y-2, "")
	t.label(y-4, "store", "value")
	t.marks(t.pic.store, y+20)
	byWeight := slices.Clone(t.pic.store)
	slices.SortStableFunc(byWeight, func(a, b mark) int { return b.weight - a.weight })
	var values, tokens taken
	named := false
	for _, m := range byWeight {
		x := t.x(m.at)
		class := "small"
		if t.pic.focus != nil && m.idx == t.pic.focus.Index {
			class += " red bold"
		}
		if v := clip(string(m.value), 10); v != "" && values.place(x-textWidth(v, 11.5)/2-3, textWidth(v, 11.5)+6) {
			t.text(class, x, y+42, "middle", v)
		}
		if !m.token.Set {
			continue
		}
		named = true
		if k := shortToken(m.token.V); tokens.place(x-textWidth(k, 11.5)/2-3, textWidth(k, 11.5)+6) {
			t.text(class, x, y+58, "middle", k)
		}
	}
	if named {
		t.text("soft small", 20, y+58, "start", "token")
	}
}

// flight draws the way of the access that it is all about, and says what is wrong
// with it.
func (t *timelineSVG) flight() {
	f := t.pic.flight
	if row, ok := t.rows[f.proc]; f.on && ok && t.store > 0 && t.pic.focus != nil {
		x1, y1, x2, y2 := t.x(f.at), row+15, t.x(t.pic.focus.Time), t.store+8
		t.strokes["flight"] = true
		t.raw(fmt.Sprintf(`<path d="M%s %sC%s %s %s %s %s %s" style="fill:none;stroke:var(--bad);stroke-width:2;stroke-dasharray:5 4" marker-end="url(#arrow)"/>`,
			num(x1+10), num(y1), num(x2), num(y1), num(x2), num(y1+20), num(x2), num(y2)))
	}
	if t.pic.focus == nil {
		return
	}
	p := &painter{pic: t.pic, kind: t.kind}
	said := p.wrong()
	if said[0] == "" {
		return
	}
	x, y, w := t.x(t.pic.focus.Time), t.store+77, textWidth(said[0], 13.5)
	if t.pic.focus.Process == history.Store { // below its value and token
		if !slices.ContainsFunc(t.pic.store, func(m mark) bool { return m.token.Set }) {
			y -= 16
		}
		t.text("red bold", min(x+12, lineWidth-20), y, "end", said[0])
		return
	}
	y = t.rows[t.pic.focus.Process] + 19
	if x-16-w > lineLeft {
		t.rect("paper", x-18-w, y-13, w+4, 18, `rx="3" style="opacity:.9"`)
		t.text("red bold", x-15, y, "end", said[0])
	} else {
		t.text("red bold", x+15, y, "start", said[0])
	}
}

// foot draws the legend and says what the drawing leaves out.
func (t *timelineSVG) foot(y float64) {
	t.raw(`<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="7" height="7" style="fill:var(--paper)"/><rect width="3" height="7" style="fill:var(--pause);opacity:.75"/></pattern>` +
		`<marker id="arrow" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" style="fill:var(--bad)"/></marker></defs>`)
	x := 20.0
	next := func(w float64) {
		if x+w > lineWidth-20 {
			x, y = 20, y+22
		}
	}
	for _, e := range []struct{ key, style, text string }{
		{"section", "fill:var(--section)", "believes to hold"}, {"lease", "fill:var(--lease)", "lease"},
		{"pause", "fill:url(#hatch);stroke:var(--pause)", "fault on the process"}, {"fault", "fill:var(--fault);opacity:.35", "fault on servers"},
	} {
		if t.strokes[e.key] {
			w := 22 + textWidth(e.text, 11.5) + 18
			next(w)
			t.raw(fmt.Sprintf(`<rect x="%s" y="%s" width="16" height="10" style="%s"/>`, num(x), num(y-9), e.style))
			t.text("soft small", x+22, y, "start", e.text)
			x += w
		}
	}
	for _, e := range letters {
		class, ok := t.seen[string(e.letter)]
		if !ok {
			continue
		}
		w := 18 + textWidth(e.said, 11.5) + 18
		next(w)
		letter := string(e.letter)
		switch e.letter {
		case markRefused:
			letter = ""
		case markFenced:
			letter = "✗"
		}
		t.raw(fmt.Sprintf(`<circle cx="%s" cy="%s" r="6.5" style="fill:var(--%s)"/><text x="%s" y="%s" text-anchor="middle" style="fill:var(--paper);font-size:9.5px;font-weight:700">%s</text>`,
			num(x+6), num(y-4), class, num(x+6), num(y-0.5), letter))
		t.text("soft small", x+18, y, "start", e.said)
		x += w
	}
	note := fmt.Sprintf("0 ms is %.3f s into the run.", float64(t.pic.from)/1e9)
	if !t.axis.even() {
		note += " Not to scale: time is stretched where much happens."
	}
	if t.hidden > 0 {
		note += " " + plural(t.hidden, "event stands", "events stand") + " behind others."
	}
	if n := len(t.pic.leftOut); n > 0 {
		note += " " + plural(n, "process has", "processes have") + " no lane."
	}
	t.text("soft small", 20, y+24, "start", note)
}

// letters explains the marks.
var letters = []struct {
	letter rune
	said   string
}{
	{markGranted, "granted"}, {markRefused, "acquire refused"}, {markCheck, "check"}, {markRenew, "renewal"}, {markRead, "read sent"},
	{markWrite, "write sent"}, {markRelease, "release"}, {markLost, "told that it is lost"}, {markUnknown, "outcome unknown"},
	{markKilled, "killed"}, {markReadApplied, "read applied"}, {markWriteApplied, "write applied"}, {markFenced, "refused by the store"},
}
