// Package local runs the servers under test on this machine, either in a lab of
// Linux namespaces or on loopback ports.
//
// The lab needs neither root nor Docker. The program re-executes itself as
// outer (the user's process), init (PID 1 of new namespaces) and lab (the rest
// of main), and gives every server node and every worker a network namespace of
// its own on one bridge. Nothing outlives the outer process, however it ends.
// A main that wants the lab begins like this, and so does a TestMain:
//
//	if code, done := local.Stage(); done {
//		os.Exit(code)
//	}
//	...
//	if !local.Inside() {
//		code, err := local.Enter()
//		...
//		os.Exit(code)
//	}
//	c, err := local.Lab(ctx, spec)
//
// Loopback runs the same servers without namespaces. What needs a namespace is
// then refused with ErrNoNamespaces, never imitated: there is no packet loss
// between nodes, and a client that learns a server's address from another
// server (as Sentinel clients do) goes past its proxy.
//
// A worker's links are proxied from before its first packet or not at all,
// because a redirection put under a live connection ends it.
package local
