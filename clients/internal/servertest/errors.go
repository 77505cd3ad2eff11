package servertest

import (
	"errors"
	"testing"

	"github.com/lockcheck/lockcheck/clients"
)

// Unknown fails the test unless err leaves open what happened.
func Unknown(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || clients.Definite(err) {
		t.Fatalf("%s: got %v, want an error that proves nothing", what, err)
	}
}

// NotDone fails the test unless err proves that nothing happened, and says
// nothing of who holds the lock.
func NotDone(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || !clients.Definite(err) || errors.Is(err, clients.ErrHeld) || errors.Is(err, clients.ErrNotHeld) {
		t.Fatalf("%s: got %v, want an error that proves that nothing happened", what, err)
	}
}

// Is fails the test unless err is the wanted one.
func Is(t testing.TB, what string, err, wanted error) {
	t.Helper()
	want(t, what, err, wanted)
}
