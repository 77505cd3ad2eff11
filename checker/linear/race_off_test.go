//go:build !race

package linear

// histories is how many random histories an ordinary test compares.
const histories = 200_000
