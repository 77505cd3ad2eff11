// Package labtest runs the tests of a package inside the lab.
package labtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockcheck/lockcheck/cluster/local"
)

// Main is the TestMain of tests that start servers. It runs them inside the lab,
// with bin, the folder of what make builds, on the PATH. The test binary is started
// again as whatever the tests need beside them: a first argument that is one of
// commands runs that in place of the tests.
func Main(m *testing.M, bin string, commands map[string]func()) {
	if code, done := local.Stage(); done {
		os.Exit(code)
	}
	if len(os.Args) > 1 {
		if f := commands[os.Args[1]]; f != nil {
			f()
			return
		}
	}
	bin, err := filepath.Abs(bin)
	if err == nil {
		err = os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(255)
	}
	if local.Inside() {
		os.Exit(m.Run())
	}
	code, err := local.Enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}
