package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/history"
)

// latency draws how long acquires took: a point for each, by its outcome, on a
// logarithmic scale, and the median and 99th percentile of those that were ok.
func (d *drawing) latency(w io.Writer) error {
	p := d.newPlot("Latency of acquires", "ms")
	low, high := math.Inf(1), 0.0
	for _, a := range d.acquires {
		ms := max(float64(a.took)/1e6, 0.01)
		low, high = min(low, ms), max(high, ms)
	}
	if len(d.acquires) == 0 {
		low, high = 1, 10
	}
	from, to := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high)+1e-9)
	if to <= from {
		to = from + 1
	}
	p.y = func(ms float64) float64 {
		return p.bottom - (p.bottom-p.top)*(math.Log10(max(ms, 0.01))-from)/(to-from)
	}
	for e := from; e <= to; e++ {
		p.level(math.Pow(10, e), short3(math.Pow(10, e)))
	}
	p.bands()
	p.lostWindows()
	p.points()
	p.quantiles()
	p.time()
	p.legend(entry{"ok", "dot", "ok", ""}, entry{"fail", "dot", "fail (refused)", ""}, entry{"info", "dot", "info (unknown)", ""},
		entry{"p50", "line", "p50 of ok", ""}, entry{"p99", "line", "p99 of ok", ""}, entry{"band", "", "fault", `style="opacity:.3"`}, entry{"lost", "", "no grant", `style="opacity:.7"`})
	return p.writeTo(w)
}

// lostWindows shades the time in which nobody was granted what somebody wanted.
func (p *plot) lostWindows() {
	a := p.d.res.Availability
	if a == nil {
		return
	}
	for _, u := range a.Unavailable {
		from, to := p.x(int64(u.From*1e6)), p.x(int64(u.To*1e6))
		p.rect("lost", from, p.bottom-6, max(to-from, 1.5), 6, `style="opacity:.7"`)
	}
}

// points draws each acquire; of those that would cover each other, one.
func (p *plot) points() {
	const grain = 2.0
	type spot struct{ x, y int }
	for _, is := range []struct {
		of    history.Type
		class string
		r     float64
	}{{history.Fail, "fail", 1.6}, {history.OK, "ok", 2.1}, {history.Info, "info", 3.2}} {
		seen := map[spot]bool{}
		var b strings.Builder
		for _, a := range p.d.acquires {
			if a.is != is.of {
				continue
			}
			at := spot{int(p.x(a.at) / grain), int(p.y(float64(a.took)/1e6) / grain)}
			if seen[at] {
				continue
			}
			seen[at] = true
			fmt.Fprintf(&b, "M%s %sh0", num(float64(at.x)*grain), num(float64(at.y)*grain))
		}
		if b.Len() > 0 {
			p.raw(fmt.Sprintf(`<path d="%s" style="stroke:var(--%s);stroke-width:%g;stroke-linecap:round;opacity:.75;fill:none"/>`, b.String(), is.class, 2*is.r))
		}
	}
}

// quantiles draws the curves, over as many stretches as have enough points.
func (p *plot) quantiles() {
	var oks []acquired
	for _, a := range p.d.acquires {
		if a.is == history.OK {
			oks = append(oks, a)
		}
	}
	bins := min(max(len(oks)/20, 1), 60)
	by := make([][]int64, bins)
	for _, a := range oks {
		i := min(int(float64(a.at)/float64(max(p.d.last, 1))*float64(bins)), bins-1)
		by[i] = append(by[i], a.took)
	}
	for _, q := range []struct {
		at    float64
		class string
	}{{0.5, "p50"}, {0.99, "p99"}} {
		var b strings.Builder
		pen := "M"
		for i, took := range by {
			if len(took) == 0 {
				pen = "M"
				continue
			}
			slices.Sort(took)
			v := float64(took[max(int(math.Ceil(q.at*float64(len(took))))-1, 0)]) / 1e6
			from, to := p.d.last*int64(i)/int64(bins), p.d.last*int64(i+1)/int64(bins)
			fmt.Fprintf(&b, "%s%s %sH%s", pen, num(p.x(from)), num(p.y(v)), num(p.x(to)))
			pen = "L"
		}
		if b.Len() > 0 {
			p.path("curve "+q.class, b.String())
		}
	}
}

// rate draws grants and refusals a second.
func (d *drawing) rate(w io.Writer) error {
	p := d.newPlot("Grants per second", "per s")
	ok, step := d.rates(history.OK)
	refused, _ := d.rates(history.Fail)
	top := 1.0
	for i := range ok {
		top = max(top, ok[i])
	}
	scale := ticks(0, top*1.05, 6)
	p.y = func(v float64) float64 { return p.bottom - (p.bottom-p.top)*min(v/(top*1.08), 1) }
	for _, t := range scale {
		p.level(t, short3(t))
	}
	p.bands()
	p.lostWindows()
	p.steps("oks", ok, step, 1)
	most := slices.Max(append(slices.Clone(refused), 0))
	said := "refused"
	if most > 0 {
		by := top / most // on a scale of its own: a polling lock is refused a hundred times for a grant
		p.steps("fails", refused, step, min(by, 1))
		if by < 1 {
			said = fmt.Sprintf("refused (scaled down, at most %.0f per s)", most)
		}
	}
	p.time()
	p.legend(entry{"oks", "line", "ok", ""}, entry{"fails", "line", said, ""}, entry{"band", "", "fault", `style="opacity:.3"`}, entry{"lost", "", "no grant", `style="opacity:.7"`})
	return p.writeTo(w)
}

// rates gives how many acquires of a kind there were a second, and the length of
// a step in ns.
func (d *drawing) rates(is history.Type) ([]float64, int64) {
	step := int64(50e6)
	for _, s := range []int64{100e6, 200e6, 500e6, 1e9, 2e9, 5e9, 10e9, 60e9, 600e9, 3600e9} {
		if d.last/step <= 150 {
			break
		}
		step = s
	}
	out := make([]float64, d.last/step+1)
	for _, a := range d.acquires {
		if a.is == is {
			out[a.at/step] += 1e9 / float64(step)
		}
	}
	return out, step
}

func (p *plot) steps(class string, values []float64, step int64, by float64) {
	var b strings.Builder
	for i, v := range values {
		pen := "L"
		if i == 0 {
			pen = "M"
		}
		fmt.Fprintf(&b, "%s%s %sH%s", pen, num(p.x(int64(i)*step)), num(p.y(v*by)), num(p.x(min(int64(i+1)*step, p.d.last))))
	}
	p.path("curve "+class, b.String())
}
