package guard

import "testing"

func TestWrap(t *testing.T) {
	got := -1
	exit = func(c int) { got = c }
	Wrap(func() {})()
	if got != -1 {
		t.Error("exited without a panic")
	}
	Wrap(func() { panic("as the test wants it") })()
	if got != Failed {
		t.Errorf("exit code %d", got)
	}
}
