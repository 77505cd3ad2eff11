package linear

import "iter"

// The operations of a list lie side by side in blocks of this many.
const (
	blockBits = 11
	blockOps  = 1 << blockBits
)

// An opList holds the operations of one key in blocks, so that nothing is copied
// while it grows and nothing has to be laid together for the decision: for either, a
// long history would be in memory twice.
type opList struct {
	blocks [][]Op // all but the last are full

	// What it has of the two kinds that may be many beside the grants. A list of them
	// is made as large as it will be: while it grows, it is in memory twice.
	tries, frees int
}

// count counts o as one of the list.
func (l *opList) count(o *Op) {
	switch {
	case o.Kind == Acquire && o.Outcome == Denied:
		l.tries++
	case o.Kind == Release && o.Outcome == Info:
		l.frees++
	}
}

// listOf is ops as a list, without a copy.
func listOf(ops []Op) (l opList) {
	for i := range ops {
		l.count(&ops[i])
	}
	for len(ops) > blockOps {
		l.blocks = append(l.blocks, ops[:blockOps:blockOps])
		ops = ops[blockOps:]
	}
	l.blocks = append(l.blocks, ops[:len(ops):len(ops)])
	return l
}

func (l *opList) len() int {
	if len(l.blocks) == 0 {
		return 0
	}
	last := len(l.blocks) - 1
	return last<<blockBits + len(l.blocks[last])
}

func (l *opList) at(i int32) *Op { return &l.blocks[i>>blockBits][i&(blockOps-1)] }

// add appends o. The first block grows with its key, since most keys are short.
func (l *opList) add(o Op) {
	l.count(&o)
	n := len(l.blocks)
	switch {
	case n == 0:
		l.blocks, n = append(l.blocks, nil), 1
	case len(l.blocks[n-1]) == blockOps:
		l.blocks, n = append(l.blocks, make([]Op, 0, blockOps)), n+1
	}
	l.blocks[n-1] = append(l.blocks[n-1], o)
}

// all gives each operation with its place.
func (l *opList) all() iter.Seq2[int32, *Op] {
	return func(yield func(int32, *Op) bool) {
		for b, block := range l.blocks {
			for i := range block {
				if !yield(int32(b<<blockBits+i), &block[i]) {
					return
				}
			}
		}
	}
}

// flat is a copy of the list in one piece.
func (l *opList) flat() []Op {
	out := make([]Op, 0, l.len())
	for _, block := range l.blocks {
		out = append(out, block...)
	}
	return out
}
