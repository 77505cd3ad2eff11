package nemesis

import (
	"math/rand/v2"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
)

// bandwidth lets few bytes a second pass.
var bandwidthEntry = linkEntry("bandwidth",
	"links of workers let 1 to 16 KB a second pass",
	[]string{EveryNode, All, Store},
	func(s Step) (string, toxiproxy.Attributes) { return "bandwidth", toxiproxy.Attributes{"rate": s.Rate} },
	func(rng *rand.Rand, _ Config, s *Step) { s.Rate = 1 << rng.IntN(5) })
