package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockcheck/lockcheck/history"
)

// A painter draws one picture.
type painter struct {
	printer
	o     StripOptions
	width int
	kind  string // of the anomaly; "fenced" for an access that was refused

	pic    *picture
	x      *axis
	c      *canvas
	g      glyphs
	seen   map[string]bool // what the legend has to explain
	hidden int             // marks behind others

	focusRow, focusCol int // where the mark of the focus stands
	flightRow          int
}

// edge is how many columns stand free at the right, for what goes on.
const edge = 4

func (p *painter) draw(pic *picture, s *scan, held []*hold, ops []history.Op) {
	pic.populate(s, held, p.kind == "stuck")
	pic.collect(ops)
	pic.story()
	p.pic, p.seen, p.focusRow, p.flightRow = pic, map[string]bool{}, -1, -1
	p.g = unicodeGlyphs
	if p.o.ASCII {
		p.g = asciiGlyphs
	}
	focus := pic.from
	if pic.focus != nil {
		focus = pic.focus.Time
	}
	p.c = &canvas{cols: p.width - gutter, ascii: p.o.ASCII}
	p.x = newAxis(pic.anchors, pic.from, pic.to, focus, 1, p.c.cols-1-edge)
	p.line("")
	p.scale()
	p.nodes()
	for _, l := range pic.lanes {
		p.lane(l)
	}
	p.storeLane()
	p.flight()
	for i := range p.c.rows {
		p.line(p.c.row(i, p.o.Color))
	}
	p.notes()
	p.legend()
	p.events()
}

// scale draws the times. What is pointed out gets its number first.
func (p *painter) scale() {
	span := p.pic.to - p.pic.from
	numbers, line := p.c.add("         ms"), p.c.add("")
	p.c.fill(line, 0, p.c.cols-1, p.g.axis, dim)
	at := slices.Clone(p.pic.anchors)
	at = append(at, anchor{p.pic.from, rankProof}, anchor{p.pic.to, rankOther})
	slices.SortStableFunc(at, func(a, b anchor) int { return a.rank - b.rank })
	done := map[string]bool{}
	for _, a := range at {
		if a.rank > rankAccess || a.at < p.pic.from || a.at > p.pic.to {
			continue
		}
		s, col := stamp(a.at-p.pic.from, span), p.x.x(a.at)
		n := utf8.RuneCountInString(s)
		if !done[s] && p.c.tryWrite(numbers, s, plain, max(0, col-n/2), max(0, col-n+1), col) {
			done[s] = true
			p.c.put(line, col, p.g.tick, plain)
		}
	}
}

// nodes draws the faults of servers, one row each.
func (p *painter) nodes() {
	const most = 3
	n := 0
	for _, f := range p.pic.faults {
		if len(f.targets) > 0 {
			continue
		}
		if n++; n > most {
			continue
		}
		row := p.c.add("faults")
		if n > 1 {
			p.c.labels[row] = ""
		}
		from, to := p.reach(f.from, f.to)
		p.c.fill(row, from, to, p.g.faulty, blue)
		p.seen["fault"] = true
		text := f.name + " " + strings.Join(f.nodes, " ")
		p.caption(row, from, to, p.g.faulty, blue, strings.TrimSpace(clip(text, 40)), clip(f.name, 40))
	}
	if n > most {
		p.c.write(p.c.add(""), 0, fmt.Sprintf("and %d more faults", n-most), dim)
	}
}

// reach gives the columns of a stretch of time, to the very edge where it goes
// beyond the picture.
func (p *painter) reach(from, to int64) (int, int) {
	a, b := p.x.x(from), p.x.x(to)
	if from < p.pic.from {
		a = 0
	}
	if to > p.pic.to {
		b = p.c.cols - 1
	}
	return a, b
}

// caption writes the first of the texts that fits onto a stroke, or beside it.
func (p *painter) caption(row, from, to int, stroke rune, c paint, texts ...string) {
	at, n := p.c.longest(row, from, to, stroke)
	for _, s := range texts {
		if k := utf8.RuneCountInString(s); s != "" && k+4 <= n {
			p.c.write(row, at+(n-k-2)/2, " "+s+" ", c)
			return
		}
	}
	for _, s := range texts {
		if p.c.tryWrite(row, s, c, to+2, from-2-utf8.RuneCountInString(s)) {
			return
		}
	}
}

// lane draws one process: its marks, its sections, and its leases.
func (p *painter) lane(l *lane) {
	label := clip("process "+l.proc.String(), gutter-2)
	marks := p.c.add(label)
	p.marks(marks, l.marks)
	if p.pic.flight.on && p.pic.flight.proc == l.proc {
		p.flightRow = marks
	}
	p.waits(marks, l.waits)
	var hit []*fault
	for _, f := range p.pic.faults {
		if slices.Contains(f.targets, l.proc) {
			hit = append(hit, f)
		}
	}
	if len(l.holds)+len(hit) > 0 {
		bars := p.c.add("")
		for _, h := range l.holds {
			p.section(bars, h)
		}
		p.hits(bars, marks, hit)
		for _, h := range l.holds {
			p.name(bars, h)
		}
	}
	if len(l.holds) > 0 {
		leases := p.c.add("")
		for _, h := range l.holds {
			p.leases(leases, h)
		}
	}
	p.pointer(marks, p.c.add(""))
}

// marks draws letters; the heavier one is seen.
func (p *painter) marks(row int, marks []mark) {
	weight := make([]int, p.c.cols)
	for _, m := range marks {
		col := p.x.x(m.at)
		if p.c.rows[row][col].r != 0 {
			p.hidden++
			if m.weight < weight[col] {
				continue
			}
		}
		r, c := m.letter, plain
		switch m.letter {
		case markFenced:
			r, c = p.g.refused, red
		case markRefused, markCheck, markRenew:
			c = dim
		case markLost, markUnknown:
			c = yellow
		}
		if p.pic.proof[m.idx] != nil {
			c = bold
		}
		if m.idx == p.pic.pointed {
			p.focusRow, p.focusCol, c = row, col, red
		}
		weight[col] = m.weight
		p.c.put(row, col, r, c)
		p.seen[string(m.letter)] = true
	}
}

// isFocus reports whether the event is what the picture is about.
func (p *painter) isFocus(idx int) bool { return p.pic.focus != nil && p.pic.focus.Index == idx }

// waits draws the time that acquires took, where it is long enough to be seen.
func (p *painter) waits(row int, waits []stretch) {
	for _, w := range waits {
		from, to := p.reach(w.from, w.to)
		if to-from < 2 {
			continue
		}
		if w.to > p.pic.to {
			p.c.fillEmpty(row, to, to, p.g.after, dim)
		}
		p.c.fillEmpty(row, from, to-1, p.g.waiting, dim)
		p.seen["waiting"] = true
	}
}

func (p *painter) section(row int, h *hold) {
	if h.end < p.pic.from || h.ok > p.pic.to {
		return
	}
	from, to := p.reach(h.ok, h.end)
	p.c.fill(row, from, to, p.g.section, plain)
	p.ends(row, from, to, h.ok < p.pic.from, h.end > p.pic.to, p.g.sectionFrom, p.g.sectionTo, plain)
	p.seen["section"] = true
}

// ends draws both ends of a stroke, or that it goes on beyond the picture.
func (p *painter) ends(row, from, to int, before, after bool, first, last rune, c paint) {
	if after {
		last = p.g.after
	}
	if before {
		first = p.g.before
	}
	p.c.put(row, to, last, c)
	p.c.put(row, from, first, c)
}

// hits draws the faults of a process over its sections.
func (p *painter) hits(row, marks int, hit []*fault) {
	for _, f := range hit {
		from, to := p.reach(f.from, f.to)
		if f.name == killFault {
			p.c.put(marks, from, markKilled, red)
			p.seen[string(markKilled)] = true
			continue
		}
		stroke, key, what := p.g.faulty, "fault", clip(f.name, 40)
		if f.name == "pause" {
			stroke, key, what = p.g.paused, "pause", "paused"
		}
		p.c.fill(row, from, to, stroke, blue)
		p.seen[key] = true
		long := what
		if f.to <= p.pic.to || f.to != never {
			long = what + " " + stamp(f.to-f.from, f.to-f.from) + " ms"
		}
		p.caption(row, from, to, stroke, blue, long, what)
	}
}

// name writes onto a section whose it is.
func (p *painter) name(row int, h *hold) {
	if !h.grant.Set {
		return
	}
	g := fmt.Sprintf("%d", h.grant.V)
	texts := []string{"grant " + g, "g" + g}
	if h.token.Set {
		t := fmt.Sprintf("%d", h.token.V)
		texts = []string{"grant " + g + ", token " + t, "token " + t, "grant " + g, "t" + t, "g" + g}
	}
	from, to := p.reach(h.ok, h.end)
	at, n := p.c.longest(row, from, to, p.g.section)
	for _, s := range texts {
		if k := utf8.RuneCountInString(s); k+2 <= n {
			p.c.write(row, at+min(1, n-k-2), " "+s+" ", cyan)
			return
		}
	}
}

func (p *painter) leases(row int, h *hold) {
	if len(h.leases) == 0 {
		from, _ := p.reach(h.ok, h.end)
		p.c.tryWrite(row, "no lease: held until it is released", dim, from)
		return
	}
	label, key := "lease ends", "lease"
	if h.session {
		label, key = "session last proved", "session"
	}
	for _, l := range h.leases {
		given := l.to > h.released // up, which its mark says already
		l.to = min(l.to, h.released)
		if l.to < p.pic.from || l.from > min(p.pic.to, l.to) {
			continue
		}
		from, to := p.reach(l.from, l.to)
		p.c.fill(row, from, to, p.g.lease, yellow)
		p.ends(row, from, to, l.from < p.pic.from, l.to > p.pic.to, p.g.leaseFrom, p.g.leaseTo, yellow)
		p.seen[key] = true
		if l.to <= p.pic.to && !given {
			p.c.tryWrite(row, label, yellow, to+2, from-2-len(label))
		}
	}
}

func (p *painter) storeLane() {
	if len(p.pic.store) == 0 {
		return
	}
	row := p.c.add("store")
	p.marks(row, p.pic.store)
	byWeight := slices.Clone(p.pic.store)
	slices.SortStableFunc(byWeight, func(a, b mark) int { return b.weight - a.weight })
	values, tokens, token := p.c.add("  value"), -1, p.tokenNames()
	for _, m := range byWeight {
		col := p.x.x(m.at)
		p.number(values, col, clip(string(m.value), 10), p.numberPaint(m))
		if !m.token.Set {
			continue
		}
		if tokens < 0 {
			tokens = p.c.add("  token")
		}
		p.number(tokens, col, token(m.token.V), p.numberPaint(m))
	}
	p.pointer(row, p.c.add(""))
}

// tokenNames gives a short form of the tokens: those of ZooKeeper and etcd are
// long, and differ in their last digits.
func (p *painter) tokenNames() func(uint64) string {
	first, shared, any := "", 0, false
	for _, m := range p.pic.store {
		s := fmt.Sprint(m.token.V)
		switch {
		case !m.token.Set:
		case !any:
			first, shared, any = s, len(s)-2, true
		case len(s) != len(first):
			shared = 0
		default:
			for !strings.HasPrefix(s, first[:max(shared, 0)]) {
				shared--
			}
		}
	}
	if shared < 3 {
		return func(t uint64) string { return fmt.Sprint(t) }
	}
	return func(t uint64) string { return p.plain("…") + fmt.Sprint(t)[shared:] }
}

func (p *painter) numberPaint(m mark) paint {
	if p.isFocus(m.idx) {
		return red
	}
	return plain
}

// number writes a number under its mark, if there is room.
func (p *painter) number(row, col int, s string, c paint) {
	n := utf8.RuneCountInString(s)
	p.c.tryWrite(row, s, c, col, col-n+1, col-n/2)
}

// pointer says below a lane what is wrong with the mark above.
func (p *painter) pointer(marks, row int) {
	if p.focusRow != marks {
		return
	}
	for _, said := range p.wrong() {
		if said == "" {
			return
		}
		p.c.put(row, p.focusCol, p.g.pointing, red)
		n := utf8.RuneCountInString(said)
		for _, col := range []int{p.focusCol - 1 - n, p.focusCol + 2} {
			if col >= 0 && col+n <= p.c.cols {
				p.c.write(row, col, said, red)
				return
			}
		}
	}
}

// wrongs says for each kind of anomaly what its last event did. Of some kinds no
// single event is to blame.
var wrongs = map[string]string{
	"overlap":              "two holders from here on",
	"granted-after-loss":   "granted after the loss",
	"held-after-loss":      "ok after the loss",
	"token-reused":         "token given out twice",
	"token-not-increasing": "token went back",
	"stale-token-applied":  "stale token applied",
	"released-other":       "freed another's lock",
	"renewed-after-loss":   "renewed over another's hold",
	"stale-write":          "stale write applied",
	"lost-update":          "update lost",
	"write-outside-hold":   "written after its hold",
	"stuck":                "granted last",
	"not-linearizable":     "",
	history.ErrFenced:      "refused by the fence",
}

// wrong says what the focus did, in full first and then shorter.
func (p *painter) wrong() []string {
	f := p.pic.focus
	s, ok := wrongs[p.kind]
	if !ok {
		s = clip(strings.ReplaceAll(p.kind, "-", " "), 30)
	}
	said := []string{s}
	if f.Process != history.Store || s == "" {
		return said
	}
	if p.kind == "stale-write" || p.kind == "lost-update" {
		if was := p.pic.before; len(was.value) > 0 {
			said = append(said, said[len(said)-1]+fmt.Sprintf(": %s over %s", clip(string(f.Value), 10), clip(string(was.value), 10)))
		}
	}
	if fence := p.pic.fence; f.Token.Set && fence.Set && f.Token.V < fence.V {
		said = append(said, said[len(said)-1]+fmt.Sprintf(", token %d after %d", f.Token.V, fence.V))
	}
	slices.Reverse(said)
	return said
}

// flight draws the way of the access that it is all about, from the process to
// the store, behind everything else.
func (p *painter) flight() {
	if !p.pic.flight.on || p.flightRow < 0 || p.focusRow <= p.flightRow {
		return
	}
	from := p.x.x(p.pic.flight.at)
	if p.focusCol > from {
		p.c.fillEmpty(p.flightRow, from+1, p.focusCol-1, p.g.flying, red)
		p.c.fillEmpty(p.flightRow, p.focusCol, p.focusCol, p.g.turning, red)
	}
	for row := p.flightRow + 1; row < p.focusRow-1; row++ {
		p.c.fillEmpty(row, p.focusCol, p.focusCol, p.g.falling, red)
	}
	p.c.fillEmpty(p.focusRow-1, p.focusCol, p.focusCol, p.g.landing, red)
	p.seen["flight"] = true
}

// notes say what the picture leaves out.
func (p *painter) notes() {
	var holders, tried []history.Process
	for _, proc := range slices.Sorted(maps.Keys(p.pic.leftOut)) {
		if p.pic.leftOut[proc] {
			holders = append(holders, proc)
		} else {
			tried = append(tried, proc)
		}
	}
	var notes []string
	if len(holders) > 0 {
		notes = append(notes, "no lane for "+processes(holders)+".")
	}
	if len(tried) > 0 {
		notes = append(notes, "no lane for "+processes(tried)+", which only asked for the lock in vain.")
	}
	if p.hidden > 0 {
		notes = append(notes, plural(p.hidden, "event stands", "events stand")+" behind others in the same column.")
	}
	for _, n := range notes {
		p.paragraph("Left out: " + n)
	}
}

func processes(ps []history.Process) string {
	if len(ps) == 1 {
		return "process " + ps[0].String()
	}
	var b strings.Builder
	b.WriteString("processes")
	for _, x := range ps[:min(len(ps), maxIndexes)] {
		b.WriteString(" " + x.String())
	}
	if more := len(ps) - maxIndexes; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// legend explains what is seen, and nothing else.
func (p *painter) legend() {
	g := p.g
	var parts []string
	for _, e := range []struct{ key, text string }{
		{"section", string([]rune{g.sectionFrom, g.section, g.sectionTo}) + " believes to hold"},
		{"lease", string([]rune{g.leaseFrom, g.lease, g.leaseTo}) + " lease"},
		{"session", string([]rune{g.leaseFrom, g.lease, g.leaseTo}) + " session proved alive"},
		{"pause", string(g.paused) + " paused"},
		{"fault", string(g.faulty) + " fault"},
		{"waiting", string(g.waiting) + " acquiring"},
		{string(markGranted), "A granted"},
		{string(markRefused), "x acquire refused"},
		{string(markCheck), "C check"},
		{string(markRenew), "N renewal"},
		{string(markRead), "R read sent"},
		{string(markWrite), "W write sent"},
		{string(markRelease), "U release"},
		{string(markLost), "! told that it is lost"},
		{string(markUnknown), "? outcome unknown"},
		{string(markKilled), "K killed"},
		{string(markReadApplied), "r read applied"},
		{string(markWriteApplied), "w write applied"},
		{string(markFenced), string(g.refused) + " refused by the store"},
		{"flight", string(g.flying) + " on its way to the store"},
	} {
		if p.seen[e.key] {
			parts = append(parts, e.text)
		}
	}
	for _, l := range wrapParts(parts, p.width) {
		p.line(dim.on(l, p.o.Color))
	}
	note := fmt.Sprintf("0 ms is %.3f s into the run.", float64(p.pic.from)/1e9)
	if !p.x.even() {
		note += " Not to scale: time is stretched where much happens."
	}
	for _, l := range wrap(note, p.width) {
		p.line(dim.on(l, p.o.Color))
	}
}

// wrapParts lays parts out in lines, three spaces apart, and never breaks one.
func wrapParts(parts []string, width int) []string {
	var lines []string
	line := ""
	for _, s := range parts {
		if line != "" && utf8.RuneCountInString(line)+3+utf8.RuneCountInString(s) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += "   "
		}
		line += s
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// events spells the events out that the picture points to.
func (p *painter) events() {
	list := slices.Collect(maps.Values(p.pic.proof))
	slices.SortFunc(list, func(a, b *history.Op) int { return a.Index - b.Index })
	if len(list) == 0 {
		return
	}
	p.line("")
	for i, o := range list {
		more := len(list) - maxListed
		switch {
		case more <= 0 || i < maxListed-1 || i == len(list)-1:
			p.eventLine(o)
		case i == maxListed-1:
			p.line("         and " + plural(more, "event", "events") + " more, then")
		}
	}
}

func (p *painter) eventLine(o *history.Op) {
	span := p.pic.to - p.pic.from
	who, did := describe(o)
	head := fmt.Sprintf("%8s %9s ms  %s ", fmt.Sprintf("#%d", o.Index), stamp(o.Time-p.pic.from, span), pad(who, 11))
	c := plain
	if p.isFocus(o.Index) {
		c = red
		if f := p.pic.flight; f.on {
			did += fmt.Sprintf("; process %d had sent it at %s ms (#%d)", f.proc, stamp(f.at-p.pic.from, span), f.idx)
		}
	}
	n := utf8.RuneCountInString(head)
	for _, l := range wrap(p.plain(did), max(p.width-n, 20)) {
		p.line(c.on(head+l, p.o.Color))
		head = strings.Repeat(" ", n)
	}
}

// describe says one event in words: who, and what.
func describe(o *history.Op) (who, did string) {
	var b strings.Builder
	who = o.Process.String()
	if o.Process.Worker() {
		who = "process " + who
	}
	what := clip(o.F, 30)
	if len(o.Value) > 0 && o.Process != history.Nemesis {
		what += " " + clip(string(o.Value), 20)
	}
	switch {
	case o.Process == history.Store && o.Type == history.OK:
		b.WriteString("applied " + what)
	case o.Process == history.Store && o.Type == history.Fail:
		b.WriteString("refused " + what)
	case o.Process == history.Nemesis, o.Type == history.Info && history.Single(o.F):
		b.WriteString(what)
	case o.Type == history.Invoke:
		b.WriteString("begins " + what)
	default:
		b.WriteString(what + ": " + o.Type.String())
	}
	if o.Grant.Set {
		fmt.Fprintf(&b, ", grant %d", o.Grant.V)
	}
	if o.Token.Set {
		fmt.Fprintf(&b, ", token %d", o.Token.V)
	}
	if o.Error != "" {
		b.WriteString(" (" + clip(o.Error, 60) + ")")
	}
	return who, b.String()
}
