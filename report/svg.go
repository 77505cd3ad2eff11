package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// An svg is a drawing under way. Colours come from classes, so that a viewer who
// prefers dark gets a dark one.
type svg struct {
	w, h float64
	b    strings.Builder
}

// svgStyle has Jepsen's colours for ok, info and fail.
const svgStyle = `
svg{--paper:#fff;--ink:#1c2530;--soft:#66727f;--line:#d9dee4;--ok:#4a9fe8;--info:#ffa400;--fail:#ff1e90;--lease:#d99a00;--section:#2f6fb2;--pause:#7d6bd6;--fault:#7d6bd6;--bad:#d3263f;--good:#2c8a57;background:var(--paper);font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-size:13px}
@media (prefers-color-scheme:dark){svg{--paper:#14181d;--ink:#e4e9ee;--soft:#98a4b0;--line:#303841;--ok:#81bffc;--lease:#f0b93a;--section:#4b8fd6;--pause:#9d8ff0;--fault:#9d8ff0;--bad:#ff6478;--good:#5cc48c}}
text{fill:var(--ink)}
.soft{fill:var(--soft)}.title{font-size:16px;font-weight:600}.small{font-size:11.5px}.bold{font-weight:600}.red{fill:var(--bad)}
.paper{fill:var(--paper)}.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
.band{fill:var(--fault);opacity:.14}.lost{fill:var(--bad);opacity:.13}
.ok{fill:var(--ok)}.info{fill:var(--info)}.fail{fill:var(--fail)}
.oks{stroke:var(--ok)}.fails{stroke:var(--fail)}.p50{stroke:var(--ink)}.p99{stroke:var(--bad)}
.curve{fill:none;stroke-width:1.8;stroke-linejoin:round}
`

func newSVG(w, h float64, title, said string) *svg {
	s := &svg{w: w, h: h}
	fmt.Fprintf(&s.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img">`, w, h, w, h)
	s.b.WriteString("<title>" + escaped(title) + "</title><desc>" + escaped(said) + "</desc><style>" + svgStyle + "</style>")
	fmt.Fprintf(&s.b, `<rect class="paper" width="%g" height="%g"/>`, w, h)
	return s
}

// escaped makes text harmless in a drawing: what does not print is spelled out.
func escaped(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(clean(s))
}

func num(f float64) string { return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64) }

func (s *svg) rect(class string, x, y, w, h float64, more string) {
	fmt.Fprintf(&s.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s" %s/>`, class, num(x), num(y), num(w), num(h), more)
}

func (s *svg) line(class string, x1, y1, x2, y2 float64, more string) {
	fmt.Fprintf(&s.b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s" %s/>`, class, num(x1), num(y1), num(x2), num(y2), more)
}

func (s *svg) text(class string, x, y float64, anchor, t string) {
	fmt.Fprintf(&s.b, `<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`, class, num(x), num(y), anchor, escaped(t))
}

func (s *svg) path(class, d string) { fmt.Fprintf(&s.b, `<path class="%s" d="%s"/>`, class, d) }

func (s *svg) raw(t string) { s.b.WriteString(t) }

func (s *svg) writeTo(w io.Writer) error {
	_, err := io.WriteString(w, s.b.String()+"</svg>\n")
	return err
}

// textWidth is about how wide a text comes out.
func textWidth(s string, size float64) float64 {
	n := 0.0
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul) || r > 0xffff:
			n += 1.05
		case strings.ContainsRune("iIlj.,:;'|! ()[]ftr", r):
			n += 0.36
		case r >= 'A' && r <= 'Z' || strings.ContainsRune("mwMW%—", r):
			n += 0.76
		default:
			n += 0.58
		}
	}
	return n * size
}

// lines breaks text to a width.
func lines(s string, width, size float64) []string {
	var out []string
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && textWidth(line+" "+word, size) > width {
			out, line = append(out, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}

// A row of labels in which none may cover another.
type taken struct{ spans [][2]float64 }

// place takes the stretch from x to x+w if it is free.
func (t *taken) place(x, w float64) bool {
	for _, s := range t.spans {
		if x < s[1] && x+w > s[0] {
			return false
		}
	}
	t.spans = append(t.spans, [2]float64{x, x + w})
	return true
}

// ticks gives round numbers from 0 or above to at most to.
func ticks(from, to float64, about int) []float64 {
	if to <= from {
		return []float64{from}
	}
	step := math.Pow(10, math.Floor(math.Log10((to-from)/float64(about))))
	for _, m := range []float64{1, 2, 5, 10} {
		if (to-from)/(step*m) <= float64(about) {
			step *= m
			break
		}
	}
	var out []float64
	for t := math.Ceil(from/step) * step; t <= to+step/1e6; t += step {
		out = append(out, math.Round(t/step)*step)
	}
	return out
}

func short3(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }

// A plot is a drawing over the time of a run.
type plot struct {
	*svg
	d                        *drawing
	left, top, right, bottom float64
	y                        func(v float64) float64
}

const (
	plotWidth  = 960
	plotHeight = 400
)

func (d *drawing) newPlot(what, unit string) *plot {
	p := &plot{svg: newSVG(plotWidth, plotHeight, what, what+" of "+d.title()), d: d, left: 66, top: 84, right: plotWidth - 20, bottom: plotHeight - 48}
	p.text("title", 20, 28, "start", what)
	p.text("soft", 20, 48, "start", clip(d.title(), 120))
	p.text("soft small", p.left-8, p.top-10, "end", unit)
	return p
}

func (p *plot) x(ns int64) float64 {
	return p.left + (p.right-p.left)*float64(ns)/float64(max(p.d.last, 1))
}

// time draws the lower axis.
func (p *plot) time() {
	p.line("axis", p.left, p.bottom, p.right, p.bottom, "")
	for _, t := range ticks(0, float64(p.d.last)/1e9, 10) {
		x := p.x(int64(t * 1e9))
		p.line("axis", x, p.bottom, x, p.bottom+5, "")
		p.text("soft small", x, p.bottom+19, "middle", short3(t))
	}
	p.text("soft small", (p.left+p.right)/2, p.bottom+38, "middle", "seconds since the run began")
}

func (p *plot) level(v float64, label string) {
	p.line("grid", p.left, p.y(v), p.right, p.y(v), "")
	p.text("soft small", p.left-8, p.y(v)+4, "end", label)
}

// maxBands bounds how many faults one drawing shows.
const maxBands = 60

// bands shades the faults, and names them where there is room.
func (p *plot) bands() {
	var names taken
	shown := 0
	for _, f := range p.d.scan.faults {
		if f.from == never {
			continue
		}
		if shown++; shown > maxBands {
			continue
		}
		from, to := p.x(f.from), p.x(min(f.to, p.d.last))
		p.rect("band", from, p.top, max(to-from, 1.5), p.bottom-p.top, "")
		label := clip(f.name, 24)
		w := textWidth(label, 11.5)
		at := min(max((from+to)/2, p.left+w/2), p.right-w/2)
		if names.place(at-w/2-4, w+8) {
			p.text("soft small", at, p.top-10, "middle", label)
		}
	}
	if shown > maxBands {
		p.text("soft small", p.right, plotHeight-10, "end", fmt.Sprintf("the first %d of %d faults are drawn", maxBands, shown))
	}
}

// An entry of a legend.
type entry struct{ class, kind, text, more string }

func (p *plot) legend(entries ...entry) {
	x := p.right
	for _, e := range slices.Backward(entries) {
		x -= textWidth(e.text, 11.5)
		p.text("soft small", x, 28, "start", e.text)
		x -= 20
		switch e.kind {
		case "dot":
			p.raw(fmt.Sprintf(`<circle class="%s" cx="%s" cy="24" r="4"/>`, e.class, num(x+8)))
		case "line":
			p.line("curve "+e.class, x, 24, x+15, 24, "")
		default:
			p.rect(e.class, x, 17, 15, 13, e.more)
		}
		x -= 14
	}
}
