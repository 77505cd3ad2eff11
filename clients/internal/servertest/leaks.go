package servertest

import (
	"runtime"
	"testing"

	"github.com/lockcheck/lockcheck/clients"
)

// Leaks checks that clients which are closed leave no goroutine behind: a worker
// makes a new one after every unknown outcome. The test must not be parallel.
func Leaks(t *testing.T, s Subject) {
	t.Helper()
	round := func() {
		l, err := s.New(Within(t, startWithin), s.Config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Acquire(Within(t, startWithin), s.request(t.Name()+string(rune(lastID.Load())))); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(Within(t, startWithin)); err != nil {
			t.Fatal(err)
		}
	}
	s.Config.Renew, s.Config.Observer = true, &Recorder{}
	round() // what a library starts once and for all
	before := runtime.NumGoroutine()
	for range 10 {
		round()
	}
	Eventually(t, "the goroutines end", func() bool { return runtime.NumGoroutine() < before+10 })
}

var _ clients.Observer = &Recorder{}
