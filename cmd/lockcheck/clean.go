package main

import (
	"fmt"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/cluster/docker"
)

const guardianName = "guardian"

// ownGuardian is the command of a guardian that is this program.
func ownGuardian(args ...string) *exec.Cmd {
	cmd := ownWorker()
	cmd.Args = append([]string{cmd.Args[0], guardianName}, args...)
	return cmd
}

func (a *app) guardianCommand() *cobra.Command {
	return &cobra.Command{
		Use: guardianName + " RUN", Hidden: true, Args: cobra.ExactArgs(1),
		Short: "Remove the containers of a run when standard input ends",
		RunE: func(c *cobra.Command, args []string) error {
			if err := docker.Guard(c.Context(), a.in, args[0]); err != nil {
				return exit{exitFailed, err}
			}
			return nil
		},
	}
}

func (a *app) cleanCommand() *cobra.Command {
	var all, json bool
	c := &cobra.Command{
		Use:   "clean",
		Short: "Remove containers, networks and volumes that runs have left behind",
		Long: `Removes the containers, networks and volumes of runs whose lockcheck has ended.
There are none, as a rule: each run removes its own, and a guardian does so after
a kill -9. Nothing else is touched. What is local needs no cleaning.`,
		Example: "  lockcheck clean\n  lockcheck clean --all",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			left, err := docker.Find(c.Context(), "")
			if err != nil {
				return exit{exitFailed, err}
			}
			gone := []docker.Left{}
			for _, l := range left {
				if all || l.Abandoned() {
					gone = append(gone, l)
				}
			}
			if err := docker.Remove(c.Context(), gone); err != nil {
				return exit{exitFailed, err}
			}
			if json {
				return printJSON(a.out, gone)
			}
			for _, l := range gone {
				fmt.Fprintf(a.out, "removed %s %.12s of run %s\n", l.Kind, l.ID, l.Run)
			}
			fmt.Fprintf(a.out, "%d removed, %d left to runs that go on\n", len(gone), len(left)-len(gone))
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "those of runs that still go on, too")
	c.Flags().BoolVar(&json, "json", false, "print what was removed as JSON")
	return c
}
