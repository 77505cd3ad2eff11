package verify

import (
	"log/slog"
	"os/exec"
	"testing"

	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/scenario"
)

// quick are reports that take a few seconds; make reports tells all of them.
var quick = []string{"D2", "D10"}

// Every row of a public report comes out as theory says.
func TestReports(t *testing.T) {
	for _, name := range quick {
		t.Run(name, func(t *testing.T) {
			r, ok := scenario.FindReport(name)
			if !ok {
				t.Fatal("no such report")
			}
			o := experiment.Defaults()
			o.Out = t.TempDir()
			for _, row := range Tell(t.Context(), Telling{
				Report: r, Options: o, Seed: 1, Parallel: 4,
				Machine: experiment.Machine{
					Worker: func(*experiment.Options) *exec.Cmd { return exec.Command("/proc/self/exe", "worker") },
					Log:    slog.New(slog.DiscardHandler),
				},
			}) {
				if row.Deviation != "" || row.Skipped != "" {
					t.Errorf("%s, %s: %s%s", row.Row.About, row.Client, row.Deviation, row.Skipped)
				}
			}
		})
	}
}
