package matrix

import (
	"math"
	"testing"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/experiment"
)

// Every point of the chart can be seen, and stands by where it belongs.
func TestChartPoints(t *testing.T) {
	r, _ := carryOut(t, spec(t, NoFault, "pause", "kill", "server-pause"), Shard{1, 1}, func(o experiment.Options) (string, checker.Anomaly) {
		if len(o.Nemesis) > 0 {
			return checker.Lease, checker.Anomaly{Kind: "overlap"}
		}
		return "", checker.Anomaly{}
	})
	c := newChart(r)
	n := 0
	for _, p := range c.panels {
		for i, pt := range p.points {
			n++
			if covers(pt, p.points[:i]) {
				t.Errorf("%v is covered", pt.row.Cell)
			}
			if pt.y > 0 && math.Hypot(pt.px-pt.tx, pt.py-pt.ty) > 8*radius {
				t.Errorf("%v stands %v, %v and belongs to %v, %v", pt.row.Cell, pt.px, pt.py, pt.tx, pt.ty)
			}
		}
	}
	if n != len(r.Rows) || c.unknown != 0 {
		t.Errorf("%d points of %d cells", n, len(r.Rows))
	}
}
