package nemesis

import "math/rand/v2"

// jitter delays each piece by another time, so that links answer in no order.
var jitterEntry = linkEntry("jitter",
	"links of workers delay each piece by another time, up to twice the drawn one",
	[]string{EveryNode, All, Store},
	delay,
	func(rng *rand.Rand, cfg Config, s *Step) {
		s.Latency = spread(rng, cfg.TTL/100, cfg.TTL/2)
		s.Jitter = s.Latency
	})
