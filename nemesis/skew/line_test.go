package skew

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// TestMulFixed compares with arithmetic that has no limits.
func TestMulFixed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		p := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		p.Rsh(p, 32) // rounds down, also for negative numbers
		want := int64(new(big.Int).And(p, new(big.Int).SetUint64(1<<64-1)).Uint64())
		if got := mulFixed(a, b); got != want {
			t.Fatalf("mulFixed(%d, %d) = %d, want %d", a, b, got, want)
		}
	})
}

func TestLine(t *testing.T) {
	l := line{base: 1000, offset: 50, before: fixed(-500_000), after: fixed(1_000_000)}
	for now, want := range map[int64]int64{800: 150, 999: 50, 1000: 50, 1001: 51, 1100: 150} {
		if got := l.at(now); got != want {
			t.Errorf("at %d: %d, want %d", now, got, want)
		}
	}
	if got := (line{offset: -100}).skewed(40); got != 0 {
		t.Errorf("before the epoch: %d, want 0", got)
	}
}

func TestSlotRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() line {
			n := rapid.Int64()
			return line{n.Draw(t, "base"), n.Draw(t, "offset"), n.Draw(t, "before"), n.Draw(t, "after")}
		}
		want := [clocks]line{draw(), draw()}
		b := make([]byte, slotSize)
		putSlot(b, want)
		if got := getSlot(b); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// TestSlotsFit proves that the slots end before their page does.
func TestSlotsFit(t *testing.T) {
	if end := slotOf(slots-1) + slotSize; end > pageSize {
		t.Errorf("the last slot ends at %d", end)
	}
	if a, b := slotOf(0), slotOf(slots); a != b {
		t.Errorf("generation %d has slot %d, generation 0 has %d", slots, b, a)
	}
}
