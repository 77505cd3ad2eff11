package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/verify"
)

type verifyFlags struct {
	o        experiment.Options
	seed     uint64
	seeds    int
	parallel int
	clients  []string
	json     bool
}

func (a *app) verifyCommand() *cobra.Command {
	f := &verifyFlags{o: experiment.Defaults()}
	c := &cobra.Command{
		Use:   "verify",
		Short: "Planted bugs against their honest twins",
		Long: `Plays every lock that is broken on purpose, and the honest one that it was made
from, in the same story under the same seed. A bug is caught when its history
shows what is wrong, of the right property and kind, within 30 s, and its twin's
history is clean. Exits with 0 if every bug was caught and there was no false
alarm, with 1 if not, and with 2 if something had to be skipped.

The histories are kept below --out in folders named after the clients, and can be
judged again with 'lockcheck check'.`,
		Example: `  lockcheck verify
  lockcheck verify --seeds 5 --parallel 4
  lockcheck verify --client faulty/zk-orphan
  lockcheck check store/verify/faulty/zk-orphan/*/*`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.verify(c.Context(), f) },
	}
	c.Flags().StringVar(&f.o.Out, "out", filepath.Join(f.o.Out, "verify"), "folder for run directories")
	c.Flags().StringVar(&f.o.Network, "network", f.o.Network, "lab (namespaces), loopback, or auto")
	c.Flags().StringVar(&f.o.Proxy, "proxy", f.o.Proxy, "toxiproxy on the worker links: always, or auto (only for faults that need it)")
	c.Flags().Uint64Var(&f.seed, "seed", rand.Uint64N(1<<32), "the first seed")
	c.Flags().IntVar(&f.seeds, "seeds", 1, "how many seeds to play every pair under")
	c.Flags().IntVar(&f.parallel, "parallel", 4, "runs at a time")
	c.Flags().StringSliceVar(&f.clients, "client", nil, "only these broken locks")
	c.Flags().BoolVar(&f.json, "json", false, "print the rows as JSON")
	return c
}

// pairs are those that were asked for.
func (f *verifyFlags) pairs() ([]verify.Pair, error) {
	pairs := verify.Pairs()
	if len(f.clients) == 0 {
		return pairs, nil
	}
	var chosen []verify.Pair
	for _, name := range f.clients {
		i := slices.IndexFunc(pairs, func(p verify.Pair) bool { return p.Client == name })
		if i < 0 {
			return nil, fmt.Errorf("client %q is not one that is broken on purpose; see 'lockcheck list clients'", name)
		}
		chosen = append(chosen, pairs[i])
	}
	return chosen, nil
}

func (a *app) verify(ctx context.Context, f *verifyFlags) error {
	if f.parallel < 1 || f.seeds < 1 {
		return usage(fmt.Errorf("parallel %d and seeds %d have to be at least 1", f.parallel, f.seeds))
	}
	pairs, err := f.pairs()
	if err != nil {
		return usage(err)
	}
	if left, err := a.enterLab(ctx, &f.o); left || err != nil {
		return err
	}
	fmt.Fprintf(a.err, "seed %d  %s  %d planted bugs and their honest twins, %d at a time\n", f.seed, f.o.Out, len(pairs), f.parallel)
	done, all := 0, 2*len(pairs)*f.seeds
	rows := verify.Play(ctx, verify.Config{
		Pairs: pairs, Options: f.o, Seed: f.seed, Seeds: f.seeds, Parallel: f.parallel, Machine: a.machine(),
		Told: func(r verify.Run) {
			done++
			fmt.Fprintf(a.err, "%*d/%d  %-27s seed %d  %5.1fs  %s\n", len(fmt.Sprint(all)), done, all, r.Client, r.Seed, r.Took.Seconds(), runSaid(r))
		},
	})
	if f.json {
		if err := printJSON(a.out, rows); err != nil {
			return err
		}
	} else if err := a.printVerify(f, rows); err != nil {
		return exit{exitFailed, err}
	}
	code := exitValid
	for _, r := range rows {
		switch r.Outcome {
		case verify.Caught:
		case verify.Skipped:
			code = worse(code, exitUnknown)
		default:
			code = worse(code, exitInvalid)
		}
	}
	return ended(code, nil)
}

func runSaid(r verify.Run) string {
	switch {
	case r.Skipped != "":
		return "skipped: " + r.Skipped
	case len(r.Missing) > 0:
		return fmt.Sprintf("missed %v (found %v) %s", r.Missing, r.Kinds, r.Message)
	case r.First > 0:
		return fmt.Sprintf("%s at %.1f s: %s", r.Verdict, r.First.Seconds(), strings.Join(r.Kinds, ", "))
	case r.Message != "":
		return "not clean: " + r.Message
	}
	return r.Verdict
}

func (a *app) printVerify(f *verifyFlags, rows []verify.Row) error {
	counts := map[string]int{}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(a.out)
	fmt.Fprintln(w, "planted bug\thonest twin\tscenario\tto be found\toutcome\tfirst violation")
	for _, r := range rows {
		counts[r.Outcome]++
		var expect []string
		for _, e := range r.Expect {
			expect = append(expect, e.String())
		}
		first := "-"
		if r.First > 0 {
			first = fmt.Sprintf("%.1f s", r.First.Round(100*time.Millisecond).Seconds())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Client, r.Twin, r.Scenario, strings.Join(expect, ", "), r.Outcome, first)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "\n%d of %d caught, %d missed, %d false alarms, %d skipped\nhistories: %s\n",
		counts[verify.Caught], len(rows), counts[verify.Missed], counts[verify.FalseAlarm], counts[verify.Skipped], filepath.Join(f.o.Out, "CLIENT", "*", "*", "history.jsonl"))
	return nil
}
