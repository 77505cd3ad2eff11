// Command lockcheck finds out whether a distributed lock keeps its promise: it
// runs the lock on real servers, breaks things meanwhile, records every event
// and judges the history.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/internal/guard"
)

// Exit codes; they are Jepsen's.
const (
	exitValid   = 0
	exitInvalid = 1
	exitUnknown = 2
	exitUsage   = 254 // bad arguments or malformed input
	exitFailed  = guard.Failed
)

func main() {
	if code, done := local.Stage(); done {
		os.Exit(code)
	}
	defer guard.Recover()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go guard.Wrap(func() {
		<-ctx.Done()
		stop() // a second Ctrl-C ends at once
	})()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// An exit carries the code that the command is to end with; err may be nil.
type exit struct {
	code int
	err  error
}

func (e exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e exit) Unwrap() error { return e.err }

// usage is an error in what the user asked for.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return exit{exitUsage, err}
}

// app is what the commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
}

// run carries out one command line and gives the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errw io.Writer) int {
	a := &app{in: in, out: out, err: errw}
	root := &cobra.Command{
		Use:   "lockcheck",
		Short: "Find out whether a distributed lock keeps its promise",
		Long: `lockcheck runs a distributed lock on real servers, stops and breaks things while
workers hold it, records every event, and judges the history.

Exit codes: 0 valid, 1 invalid, 2 unknown, 254 bad arguments or malformed input,
255 lockcheck itself failed.`,
		Example: `  lockcheck demo
  lockcheck run --backend etcd --nemesis pause --duration 30s
  lockcheck scenario gc-pause --backend redis --store none
  lockcheck check store/latest/history.jsonl`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       experiment.Version(),
	}
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errw)
	root.SetArgs(args)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w\nSee 'lockcheck %s --help'", err, c.Name()))
	})
	root.AddCommand(a.runCommand(), a.scenarioCommand(), a.demoCommand(), a.verifyCommand(), a.matrixCommand(), a.mergeCommand(), a.serveCommand(), a.granularityCommand(), a.checkCommand(), a.reportCommand(), a.showCommand(), a.convertCommand(), a.listCommand(), a.doctorCommand(), a.workerCommand(), a.guardianCommand(), a.cleanCommand(), a.versionCommand())
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitValid
	}
	var e exit
	if !errors.As(err, &e) {
		e = exit{exitUsage, err} // what cobra itself refuses: an unknown command or argument
	}
	if e.err != nil {
		fmt.Fprintf(errw, "lockcheck: %v\n", e.err)
	}
	return e.code
}

// codeOf gives the exit code of a verdict.
func codeOf(v checker.Verdict) int {
	switch v {
	case checker.Invalid:
		return exitInvalid
	case checker.Unknown:
		return exitUnknown
	}
	return exitValid
}

// worse gives the exit code of two runs together: invalid, then failed, then
// unknown, then valid.
func worse(a, b int) int {
	rank := map[int]int{exitValid: 0, exitUnknown: 1, exitUsage: 2, exitFailed: 3, exitInvalid: 4}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// ended turns an exit code into what a command returns.
func ended(code int, err error) error {
	if code == exitValid && err == nil {
		return nil
	}
	return exit{code, err}
}
