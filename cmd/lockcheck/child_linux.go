package main

import "syscall"

// childAttr keeps the terminal's Ctrl-C from a run, which is told by this process,
// and ends the run should this process die.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
