package nemesis

import (
	"math/rand/v2"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
)

// slicer cuts what is said into pieces of a few bytes with pauses in between, so
// that whoever reads a message must put it together.
var slicerEntry = linkEntry("slicer",
	"links of workers deliver everything in pieces of 1 to 32 bytes, with pauses in between",
	[]string{EveryNode, All, Store},
	func(s Step) (string, toxiproxy.Attributes) {
		return "slicer", toxiproxy.Attributes{"average_size": s.Slice, "size_variation": s.Slice / 2, "delay": s.Latency.Microseconds()}
	},
	func(rng *rand.Rand, _ Config, s *Step) {
		s.Slice = 1 << rng.IntN(6)
		s.Latency = time.Duration(rng.IntN(5)) * time.Millisecond
	})
