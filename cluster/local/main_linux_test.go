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
