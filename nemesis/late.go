package nemesis

import (
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
)

// heldFor is longer than any run: what is held goes out when the toxic is
// removed, over the connection that it came in on.
const heldFor = time.Hour

// late holds what is said on links of a worker and delivers it after the heal:
// the write that arrives after the next holder's.
var lateEntry = linkEntry("late",
	"links of workers to servers and store hold every byte and deliver it after the heal, over the same connections",
	[]string{Store, All, EveryNode},
	func(Step) (string, toxiproxy.Attributes) {
		return "latency", toxiproxy.Attributes{"latency": heldFor.Milliseconds()}
	},
	drawWay)
