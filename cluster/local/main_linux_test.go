package local

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestMain runs the tests inside the lab, and this binary as whatever helper a
// test wants.
func TestMain(m *testing.M) {
	if code, done := Stage(); done {
		os.Exit(code)
	}
	bin, err := filepath.Abs("../../bin")
	if err == nil {
		err = os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err == nil {
		// Under -race every helper would wait a second before it exits.
		err = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
	if len(os.Args) > 2 && os.Args[1] == helperArg {
		os.Exit(helper(os.Args[2], os.Args[3:]))
	}
	if Inside() {
		os.Exit(m.Run())
	}
	code, err := Enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}
