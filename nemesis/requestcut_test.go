package nemesis

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// A request of the kind is found in whatever pieces it comes, and nothing else is
// taken for one: not the greeting, nor what is inside of a request.
func TestRequestsInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frame := func(number, kind uint32, rest []byte) []byte {
			b := binary.BigEndian.AppendUint32(nil, uint32(8+len(rest)))
			return append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, number), kind), rest...)
		}
		said := frame(0, 12, make([]byte, 36)) // a greeting whose next number happens to be 12
		want := false
		for i := range rapid.IntRange(1, 5).Draw(t, "requests") {
			kind := rapid.SampledFrom([]uint32{1, 2, 4, 8, 11, 12}).Draw(t, "kind")
			want = want || kind == 8 || kind == 12
			said = append(said, frame(uint32(i+1), kind, frame(7, 12, nil)[:rapid.IntRange(0, 12).Draw(t, "rest")])...)
		}
		var r requests
		got := false
		for len(said) > 0 {
			n := rapid.IntRange(1, len(said)).Draw(t, "piece")
			got = r.ask(said[:n], 12, 8) || got
			said = said[n:]
		}
		if got != want {
			t.Fatalf("found %v, want %v", got, want)
		}
	})
}
