package zookeeper

import (
	"fmt"
	"net/url"
	"sort"
	"strconv"
	"strings"
)

const (
	root = "/lockcheck"
	// seqDigits is the length of the number that ZooKeeper appends to the name
	// of a sequential node.
	seqDigits = 10
)

// Dir is the parent of the contenders for the lock of that name. Escaping keeps
// any name in one path element, and apart from every other name: "%" alone and
// an escaped dot are nothing that QueryEscape would produce.
func Dir(name string) string {
	e := url.QueryEscape(name)
	switch e {
	case "":
		e = "%"
	case ".", "..":
		e = strings.ReplaceAll(e, ".", "%2E")
	}
	return root + "/" + e
}

// A contender's node begins with its owner id, so that it can be found again
// when the reply to its creation was lost.
func prefix(owner string) string { return owner + "-" }

// sequence is the place in the queue that the server has given to a node.
func sequence(node string) (int64, error) {
	if len(node) < seqDigits {
		return 0, fmt.Errorf("%q is not a contender's node", node)
	}
	return strconv.ParseInt(node[len(node)-seqDigits:], 10, 64)
}

// ahead gives the nearest contender ahead of node, "" if node is the first. It
// fails if node does not stand in the queue.
func ahead(children []string, node string) (string, error) {
	type place struct {
		node string
		seq  int64
	}
	var queue []place
	for _, c := range children {
		if seq, err := sequence(c); err == nil { // another kind of node has no place
			queue = append(queue, place{c, seq})
		}
	}
	sort.Slice(queue, func(i, j int) bool { return queue[i].seq < queue[j].seq })
	for i, p := range queue {
		switch {
		case p.node != node:
		case i == 0:
			return "", nil
		default:
			return queue[i-1].node, nil
		}
	}
	return "", fmt.Errorf("%s is not in the queue any more", node)
}
