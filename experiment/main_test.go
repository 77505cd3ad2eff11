package experiment

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/internal/labtest"
)

// TestMain runs the tests inside the lab, and this binary as the workers.
func TestMain(m *testing.M) {
	labtest.Main(m, "../bin", map[string]func(){"worker": serve, "bareloop": bareLoop})
}

func serve() {
	if err := wire.Serve(context.Background(), os.Stdin, os.Stdout, catalog.Constructor); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(255)
	}
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
