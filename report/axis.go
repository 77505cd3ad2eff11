package report

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strconv"
)

// An anchor is a time that deserves a column of its own. The lower its rank the
// sooner it gets one.
type anchor struct {
	at   int64
	rank int
}

// Ranks of anchors.
const (
	rankProof  = iota // an event of the anomaly, or the edge of the picture
	rankStory         // grants, ends of leases and sections, pauses of those involved
	rankAccess        // what those involved did
	rankOther         // of others
)

// An axis maps times to columns. A pause lasts a hundred times as long as what
// it spoils, so that on a plain scale all that matters would fall into one
// column: anchors keep a distance, and what is left is shared out by duration.
type axis struct {
	at  []int64
	col []int
}

// newAxis lays the anchors out over the columns left to right, both included.
// focus is the time near which room is given first.
func newAxis(anchors []anchor, from, to, focus int64, left, right int) *axis {
	slices.SortFunc(anchors, func(a, b anchor) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(distance(a.at, focus), distance(b.at, focus)), cmp.Compare(a.at, b.at))
	})
	most := (right - left) * 2 / 5
	chosen := map[int64]bool{from: true, to: true}
	at := []int64{from}
	if to > from {
		at = append(at, to)
	}
	for _, a := range anchors {
		if len(at) >= most {
			break
		}
		if a.at > from && a.at < to && !chosen[a.at] {
			chosen[a.at] = true
			at = append(at, a.at)
		}
	}
	slices.Sort(at)
	gap := 2
	if 3*len(at) <= (right-left)/2 {
		gap = 3
	}
	x := &axis{at: at, col: make([]int, len(at))}
	free := right - left - gap*(len(at)-1)
	for i, t := range at {
		x.col[i] = left + gap*i
		if to > from {
			x.col[i] += int(math.Round(float64(free) * (float64(t-from) / float64(to-from))))
		}
	}
	return x
}

func distance(a, b int64) int64 {
	if a < b {
		return b - a
	}
	return a - b
}

// x gives the column of a time; outside of the picture that of its edge.
func (a *axis) x(t int64) int {
	i := sort.Search(len(a.at), func(i int) bool { return a.at[i] >= t })
	switch {
	case i == len(a.at):
		return a.col[i-1]
	case a.at[i] == t || i == 0:
		return a.col[i]
	}
	share := float64(t-a.at[i-1]) / float64(a.at[i]-a.at[i-1])
	return a.col[i-1] + int(share*float64(a.col[i]-a.col[i-1]))
}

// even reports whether durations can be read off the columns.
func (a *axis) even() bool {
	n := len(a.at) - 1
	if n < 2 {
		return true
	}
	for i := range a.at {
		want := float64(a.col[n]-a.col[0]) * (float64(a.at[i]-a.at[0]) / float64(a.at[n]-a.at[0]))
		if math.Abs(want-float64(a.col[i]-a.col[0])) > 3 {
			return false
		}
	}
	return true
}

// stamp says a time in ms, as exactly as a picture of that length needs it.
func stamp(ns, span int64) string {
	decimals := 0
	for limit := int64(100e6); decimals < 3 && span < limit; limit /= 10 {
		decimals++
	}
	return strconv.FormatFloat(float64(ns)/1e6, 'f', decimals, 64)
}
