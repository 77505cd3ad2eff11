//go:build !linux

package experiment

func memoryPeak() uint64 { return 0 }
