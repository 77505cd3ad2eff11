package nemesis

import (
	"math"
	"math/rand/v2"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
)

// slow delays what is said on links of a worker, both ways, by something between
// a few milliseconds and the TTL.
var slowEntry = linkEntry("slow",
	"links of workers are slow: a delay each way, from a hundredth of the TTL up to the TTL",
	[]string{EveryNode, All, Store, Leader},
	delay,
	func(rng *rand.Rand, cfg Config, s *Step) { s.Latency = spread(rng, cfg.TTL/100, cfg.TTL) })

func delay(s Step) (string, toxiproxy.Attributes) {
	return "latency", toxiproxy.Attributes{"latency": s.Latency.Milliseconds(), "jitter": s.Jitter.Milliseconds()}
}

// spread draws from a wide range so that small sizes come as often as large ones.
func spread(rng *rand.Rand, from, to time.Duration) time.Duration {
	from = max(from, time.Millisecond)
	d := float64(from) * math.Pow(float64(max(to, from))/float64(from), rng.Float64())
	return time.Duration(d).Round(time.Millisecond)
}
