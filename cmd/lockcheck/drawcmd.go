package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/report"
)

func (a *app) reportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report DIR",
		Short: "Draw the report of a run anew",
		Long: `Writes report.html, timeline.svg, latency.svg, rate.svg and history.txt of a run
directory from its history.jsonl, results.json and test.json. A history that nobody
has judged yet, because lockcheck was killed, is judged. Prints the report's path.`,
		Example: "  lockcheck report store/latest",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("report takes one run directory"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return a.report(c.Context(), args[0]) },
	}
}

func (a *app) report(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "history.jsonl")); err != nil {
		return usage(fmt.Errorf("%s is no run directory: %w", dir, err))
	}
	if err := errors.Join(report.Draw(ctx, dir)...); err != nil {
		var bad *history.MalformedError
		if errors.As(err, &bad) {
			return usage(err)
		}
		return exit{exitFailed, err}
	}
	fmt.Fprintln(a.out, filepath.Join(dir, report.PageFile))
	return nil
}

type showFlags struct {
	around  int
	context int
}

func (a *app) showCommand() *cobra.Command {
	f := &showFlags{}
	c := &cobra.Command{
		Use:   "show DIR|FILE",
		Short: "Read a history: one event a line",
		Long: `Prints a history in aligned columns, times in milliseconds, with colours on a
terminal. It takes what check takes: a run directory, a file, or - for standard
input.`,
		Example: `  lockcheck show store/latest | less
  lockcheck show store/latest --around 120
  lockcheck show history.edn --around 120 --context 5`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("show takes one run directory or file, or - for standard input"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return a.show(f, args[0]) },
	}
	c.Flags().IntVar(&f.around, "around", -1, "show only the events around the one with this index")
	c.Flags().IntVar(&f.context, "context", 15, "how many on each side")
	return c
}

func (a *app) show(f *showFlags, file string) error {
	if f.context < 0 {
		return usage(fmt.Errorf("--context %d is below 0", f.context))
	}
	in, err := a.open(file)
	if err != nil {
		return usage(err)
	}
	defer in.Close()
	src, err := history.Open(in, file)
	if err != nil {
		return usage(err)
	}
	defer src.Close()
	src = history.InOrder(src)
	text := report.NewHistoryText(a.out, colour(a.out))
	text.Head()
	shown := 0
	for {
		var o history.Op
		err := src.Read(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return usage(errors.Join(err, text.Flush()))
		}
		if f.around >= 0 && o.Index > f.around+f.context {
			break
		}
		if f.around < 0 || o.Index >= f.around-f.context {
			text.Event(&o)
			shown++
		}
	}
	if err := text.Flush(); err != nil {
		return exit{exitFailed, err}
	}
	if shown == 0 && f.around >= 0 {
		return usage(fmt.Errorf("%s has no event around %d", file, f.around))
	}
	return nil
}
