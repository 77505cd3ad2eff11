package experiment

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/cluster/local"
)

// TestMain runs the tests inside the lab, and this binary as the workers.
func TestMain(m *testing.M) {
	if code, done := local.Stage(); done {
		os.Exit(code)
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "worker":
			if err := wire.Serve(context.Background(), os.Stdin, os.Stdout, catalog.Constructor); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(255)
			}
			return
		case "bareloop":
			bareLoop()
			return
		}
	}
	bin, err := filepath.Abs("../bin")
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

func testMachine() Machine {
	return Machine{
		Worker: func(*Options) *exec.Cmd { return exec.Command("/proc/self/exe", "worker") },
		Log:    slog.New(slog.DiscardHandler),
	}
}

// options are those of an ordinary run into a folder of the test.
func options(t testing.TB) Options {
	o := Defaults()
	o.Out, o.Seed = t.TempDir(), 1
	return o
}
