package skew

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that dies while its clock is read back has no clock: neither half of
// it may look like a clock that could not be read.
func TestReadBackOfTheDying(t *testing.T) {
	c := control(t)
	target := launched(t, c, Options{}, staticGo(t))
	ms, err := mappings(target.pid())
	if err != nil {
		t.Fatal(err)
	}
	open, err := openMemory(target.pid())
	if err != nil {
		t.Fatal(err)
	}
	defer open.file.Close()
	if err := target.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Not waited for: its number is still there, its memory is not.
	if err := unix.Waitid(unix.P_PID, target.pid(), nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if err := open.follow(vdsoIn(ms), &Reading{}); !errors.Is(err, ErrNotAttached) {
		t.Errorf("memory opened before the end: %v, want ErrNotAttached", err)
	}
	if m, err := openMemory(target.pid()); !errors.Is(err, ErrNotAttached) {
		t.Errorf("memory opened after the end: %v, %v, want ErrNotAttached", m, err)
	}
}
