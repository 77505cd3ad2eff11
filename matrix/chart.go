package matrix

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/cluster"
)

// Sizes of the chart, in pixels. Its height follows from how many points have to
// be told apart on the line of those without a violation.
const (
	chartWidth  = 980
	panelHeight = 300 // above the line of no violations
	radius      = 9
	leftMargin  = 64
	panelGap    = 56
	topMargin   = 56
)

// chartColors tell the backends apart, for the colour-blind too.
var chartColors = map[string]string{
	cluster.Redis: "#d55e00", cluster.Sentinel: "#b8860b", cluster.Redlock: "#cc79a7", cluster.ZooKeeper: "#0072b2", cluster.Etcd: "#009e73",
}

const chartStyle = `
text{font:12px system-ui,sans-serif;fill:#222}
.title{font-size:15px;font-weight:600}
.axis{stroke:#888;stroke-width:1;fill:none}
.grid{stroke:#e4e4e4;stroke-width:1}
.zero{fill:#f1f6f1}
.dim{fill:#666}
.in{font-size:11px;font-weight:700;fill:#fff;text-anchor:middle}
.back{fill:#fff}
@media (prefers-color-scheme: dark){text{fill:#ddd}.back{fill:#16181c}.grid{stroke:#2c3036}.zero{fill:#1c251e}.dim{fill:#999}.in{fill:#fff}}
`

// A point is a lock on a backend under a fault.
type point struct {
	row   *Row
	x, y  float64 // availability, violations per thousand grants
	tx    float64 // where it belongs: from the left, and above the smallest decade
	ty    float64
	px    float64 // where it stands
	py    float64
	label string
}

// Chart draws violations per thousand grants against availability, a point for
// each lock and fault, a panel for each store.
func (r *Result) Chart(w io.Writer) error {
	c := newChart(r)
	var b bytes.Buffer
	c.draw(&b)
	_, err := w.Write(b.Bytes())
	return err
}

type chart struct {
	res      *Result
	faults   []string
	panels   []panel
	left     float64 // availability at the left edge
	decades  [2]int  // of violations, as powers of ten
	zero     float64 // height of the band of no violations
	unknown  int     // points whose availability was not measured
	legendAt float64
}

type panel struct {
	store  string
	points []*point
	at     float64 // left edge
	width  float64
}

func newChart(r *Result) *chart {
	c := &chart{res: r, left: 1, decades: [2]int{0, 0}}
	seen := false
	c.faults = append(c.faults, r.Spec.Faults...)
	n := float64(len(r.Spec.Stores))
	width := (chartWidth - leftMargin - 28 - panelGap*(n-1)) / n
	for i, s := range r.Spec.Stores {
		p := panel{store: s, at: leftMargin + float64(i)*(width+panelGap), width: width}
		for j := range r.Rows {
			row := &r.Rows[j]
			if row.Store != s || row.Grants == 0 {
				continue
			}
			if row.Availability == nil {
				c.unknown++
				continue
			}
			pt := &point{row: row, x: *row.Availability, y: row.PerThousand, label: letter(slices.Index(c.faults, row.Fault))}
			p.points = append(p.points, pt)
			c.left = min(c.left, pt.x)
			if pt.y > 0 {
				d := [2]int{int(math.Floor(math.Log10(pt.y))), int(math.Ceil(math.Log10(pt.y)))}
				if !seen {
					c.decades, seen = d, true
				}
				c.decades = [2]int{min(c.decades[0], d[0]), max(c.decades[1], d[1])}
			}
		}
		c.panels = append(c.panels, p)
	}
	if c.decades[0] == c.decades[1] {
		c.decades[1]++
	}
	c.left = max(0, math.Floor((c.left-0.02)*10)/10)
	c.place()
	return c
}

// letter names the i-th fault: a to z, then aa.
func letter(i int) string {
	if i < 0 {
		return "?"
	}
	if i < 26 {
		return string(rune('a' + i))
	}
	return letter(i/26-1) + letter(i%26)
}

// place gives each point its place, and moves points that would cover one another
// apart: on the line of no violations upwards, which means nothing there, elsewhere
// as little as goes, with a line from where they belong.
func (c *chart) place() {
	c.zero = 3 * radius
	for i := range c.panels {
		p := &c.panels[i]
		slices.SortStableFunc(p.points, func(a, b *point) int {
			return cmp.Or(cmp.Compare(a.x, b.x), strings.Compare(a.row.Cell.String(), b.row.Cell.String()))
		})
		for n, pt := range p.points {
			pt.tx = p.at + (pt.x-c.left)/(1-c.left)*p.width
			if pt.y > 0 {
				pt.ty = panelHeight * (math.Log10(pt.y) - float64(c.decades[0])) / float64(c.decades[1]-c.decades[0])
			}
			pt.px, pt.py = pt.tx, pt.ty
			for try := 1; covers(pt, p.points[:n]); try++ {
				pt.step(try)
			}
			if pt.y == 0 {
				c.zero = max(c.zero, pt.py+2*radius+4)
			}
		}
	}
}

// covers reports whether a point stands on another one.
func covers(pt *point, placed []*point) bool {
	return slices.ContainsFunc(placed, func(q *point) bool {
		return (q.y > 0) == (pt.y > 0) && math.Hypot(q.px-pt.px, q.py-pt.py) < 2*radius+1
	})
}

// step moves a point to the next place that it may have: upwards, or along rings
// about where it belongs.
func (pt *point) step(try int) {
	if pt.y == 0 {
		pt.py += 2
		return
	}
	const around = 16
	ring, angle := 3*float64((try-1)/around+1), 2*math.Pi*float64((try-1)%around)/around
	pt.px, pt.py = pt.tx+ring*math.Cos(angle), pt.ty+ring*math.Sin(angle)
}

func (c *chart) draw(b *bytes.Buffer) {
	bottom := topMargin + panelHeight + 24 + c.zero
	c.legendAt = bottom + 64
	rows := max(len(c.faults)+2, len(c.res.Spec.Backends)+1)
	height := c.legendAt + float64(18*((rows+1)/2)) + 30
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img" aria-label="Violations per thousand grants against availability">`, chartWidth, height, chartWidth, height)
	fmt.Fprintf(b, "<style>%s</style>\n<rect class=\"back\" width=\"100%%\" height=\"100%%\"/>\n", chartStyle)
	fmt.Fprintf(b, `<text class="title" x="16" y="24">Violations per thousand grants against availability</text>`)
	for i := range c.panels {
		c.panel(b, &c.panels[i], i == 0, bottom)
	}
	c.legend(b)
	b.WriteString("</svg>\n")
}

func (c *chart) panel(b *bytes.Buffer, p *panel, first bool, bottom float64) {
	base := topMargin + float64(panelHeight) // where the smallest decade is
	fmt.Fprintf(b, `<text x="%.1f" y="%d">store: %s</text>`+"\n", p.at, topMargin-12, html.EscapeString(p.store))
	fmt.Fprintf(b, `<rect class="zero" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n", p.at, bottom-c.zero, p.width, c.zero)
	label := func(y float64, s string) {
		if first {
			fmt.Fprintf(b, `<text text-anchor="end" x="%.1f" y="%.1f">%s</text>`, p.at-8, y+4, s)
		}
	}
	for d := c.decades[0]; d <= c.decades[1]; d++ {
		y := base - panelHeight*float64(d-c.decades[0])/float64(c.decades[1]-c.decades[0])
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, p.at, p.at+p.width, y, y)
		label(y, fmt.Sprintf("%g", math.Pow10(d)))
	}
	label(bottom-radius-3, "none")
	for x := c.left; x <= 1.0001; x += 0.1 {
		px := p.at + (x-c.left)/(1-c.left)*p.width
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%.1f"/>`, px, px, topMargin, bottom)
		if c.left > 0.45 || int(math.Round(x*10))%2 == 0 {
			fmt.Fprintf(b, `<text class="dim" text-anchor="middle" x="%.1f" y="%.1f">%.0f %%</text>`, px, bottom+18, 100*x)
		}
	}
	fmt.Fprintf(b, `<path class="axis" d="M%.1f %dV%.1fH%.1f"/>`+"\n", p.at, topMargin, bottom, p.at+p.width)
	fmt.Fprintf(b, `<text class="dim" x="%.1f" y="%.1f" text-anchor="middle">availability</text>`+"\n", p.at+p.width/2, bottom+36)
	for _, pt := range p.points {
		y := base - pt.py
		switch {
		case pt.y == 0:
			y = bottom - pt.py - radius - 3
		case math.Hypot(pt.px-pt.tx, pt.py-pt.ty) > 1:
			fmt.Fprintf(b, `<path stroke="%s" d="M%.1f %.1fL%.1f %.1f"/><circle cx="%.1f" cy="%.1f" r="2" fill="%s"/>`,
				chartColors[pt.row.Backend], pt.tx, base-pt.ty, pt.px, y, pt.tx, base-pt.ty, chartColors[pt.row.Backend])
		}
		fmt.Fprintf(b, `<g><title>%s: %.3g per thousand grants, available %.1f %%</title><circle cx="%.1f" cy="%.1f" r="%d" fill="%s"/><text class="in" x="%.1f" y="%.1f">%s</text></g>`+"\n",
			html.EscapeString(pt.row.Cell.String()), pt.y, 100*pt.x, pt.px, y, radius, chartColors[pt.row.Backend], pt.px, y+4, pt.label)
	}
}

func (c *chart) legend(b *bytes.Buffer) {
	y := c.legendAt
	for i, name := range c.res.Spec.Backends {
		x := 24 + 150*float64(i)
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="6" fill="%s"/><text x="%.1f" y="%.1f">%s</text>`+"\n", x, y-4, chartColors[name], x+12, y, html.EscapeString(name))
	}
	const inRow = 4
	for i, f := range c.faults {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f"><tspan font-weight="700">%s</tspan>  %s</text>`+"\n", 20+235*float64(i%inRow), y+24+18*float64(i/inRow), letter(i), html.EscapeString(f))
	}
	if c.unknown > 0 {
		fmt.Fprintf(b, `<text class="dim" x="20" y="%.1f">%s not drawn: its availability was not measured</text>`, y+24+18*float64((len(c.faults)+inRow-1)/inRow), count(c.unknown, "point"))
	}
}
