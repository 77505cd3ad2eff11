package nemesis

import toxiproxy "github.com/Shopify/toxiproxy/v2/client"

// clientCut drops what is said on links of a worker. toxiproxy's time-out of 0
// takes the bytes, throws them away and ends the connection when it is removed,
// so that nothing arrives late. New connections are accepted and hear nothing.
var clientCutEntry = linkEntry("client-cut",
	"links of workers to servers drop everything; the connections end with the heal",
	[]string{EveryNode, EveryNode, Majority, Leader},
	func(Step) (string, toxiproxy.Attributes) { return "timeout", toxiproxy.Attributes{"timeout": 0} },
	drawWay)
