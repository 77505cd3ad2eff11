package nemesis

import toxiproxy "github.com/Shopify/toxiproxy/v2/client"

// reset ends connections when something is said on them. Those that were made
// while it is in force end with a reset; toxiproxy ends older ones in order.
var resetEntry = linkEntry("reset",
	"links of workers end when something is said on them, and what was said is lost",
	[]string{EveryNode, All, Store, Leader},
	func(Step) (string, toxiproxy.Attributes) { return "reset_peer", toxiproxy.Attributes{"timeout": 0} },
	nil)
