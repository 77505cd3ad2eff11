package skew

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// A line is the correction of one clock as a function of the real time: straight,
// but for a bend at the base. asm/clock_amd64.S computes the same.
type line struct {
	base   int64 // ns on the real clock
	offset int64 // ns at the base
	before int64 // ns of correction per ns before the base, 32.32 fixed point
	after  int64 // and from the base on
}

// at is the correction at the real time now.
func (l line) at(now int64) int64 {
	rate := l.after
	if now < l.base {
		rate = l.before
	}
	return l.offset + mulFixed(now-l.base, rate)
}

// skewed is what a process reads at the real time now.
func (l line) skewed(now int64) int64 { return max(0, now+l.at(now)) }

// mulFixed is a * b / 2^32, rounded down, without losing what is above 64 bits on
// the way.
func mulFixed(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	// The product of the same bits read as unsigned is too large by the other
	// factor, 64 bits up, for each negative one.
	if a < 0 {
		hi -= uint64(b)
	}
	if b < 0 {
		hi -= uint64(a)
	}
	return int64(hi<<32 | lo>>32)
}

// fixed is a drift in parts per million as a 32.32 fixed point number.
func fixed(ppm float64) int64 { return int64(math.Round(ppm / 1e6 * (1 << 32))) }

// The layout of a control page, which asm/clock_amd64.S knows too.
const (
	pageSize      = 4096
	offMagic      = 0
	offGeneration = 8
	offSlots      = 64
	slotSize      = clocks * lineSize
	lineSize      = 32
	slots         = 32 // a power of two
	magic         = 0x6b636f6c636b736c
)

// slotOf is where the slot of a generation begins in its page.
func slotOf(generation uint64) int { return offSlots + int(generation%slots)*slotSize }

func putSlot(b []byte, ls [clocks]line) {
	for i, l := range ls {
		for j, v := range []int64{l.base, l.offset, l.before, l.after} {
			binary.LittleEndian.PutUint64(b[i*lineSize+j*8:], uint64(v))
		}
	}
}

func getSlot(b []byte) (ls [clocks]line) {
	for i := range ls {
		for j, p := range []*int64{&ls[i].base, &ls[i].offset, &ls[i].before, &ls[i].after} {
			*p = int64(binary.LittleEndian.Uint64(b[i*lineSize+j*8:]))
		}
	}
	return ls
}
