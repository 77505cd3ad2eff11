//go:build race

package linear

// histories is fewer when each takes ten times as long.
const histories = 10_000
