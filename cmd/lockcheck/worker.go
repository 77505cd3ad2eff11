package main

import (
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/experiment"
)

const workerName = "worker"

// ownWorker is the command of a worker that is this program.
func ownWorker() *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", workerName)
	if self, err := os.Executable(); err == nil {
		cmd = exec.Command(self, workerName)
		cmd.Args[0] = os.Args[0] // a test binary tells by it that it is to be lockcheck
	}
	return cmd
}

func (a *app) workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:   workerName,
		Short: "Speak the worker protocol on standard input and output",
		Long: `Speaks the worker protocol (docs/protocol.md) on standard input and output, with
lockcheck's own clients. The runner starts it; by hand it is good for trying the
protocol out.`,
		Example: `  echo '{"id":1,"op":"init","init":{"protocol":1,"backend":"redis","client":"redis/set-nx","endpoints":["127.0.0.1:6379"],"ttl":1000000000}}' | lockcheck worker`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := wire.Serve(c.Context(), a.in, a.out, catalog.Constructor); err != nil {
				return exit{exitFailed, err}
			}
			return nil
		},
	}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Versions of lockcheck and of what it uses here", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write([]byte("lockcheck " + experiment.Version() + "\n"))
			return err
		},
	}
}
