//go:build !linux

package local

import "os/exec"

// dieWithParent can do nothing where there is no parent-death signal: after a
// kill -9 of lockcheck, its servers stay.
func dieWithParent(*exec.Cmd) {}

// killGroup kills the process alone.
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func kernelVersion() string { return "unknown" }
