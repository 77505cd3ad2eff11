package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/matrix"
)

type granularityFlags struct {
	o    experiment.Options
	keys []string
	seed uint64
	json bool
}

func (a *app) granularityCommand() *cobra.Command {
	f := &granularityFlags{o: experiment.Defaults()}
	c := &cobra.Command{
		Use:   "granularity",
		Short: "One lock for everything, one a user, one an order: what each costs",
		Long: `Sends one stream of orders, the same for every row, through locks that cut it up
differently, one run after the other, and prints throughput, waiting time and
contention side by side. A wait is counted from an order's first try to its grant.
Nothing is broken meanwhile. Exits with 1 if a lock broke a promise; fine keys that
nobody contends for prove nothing about the lock, and that is no error here.`,
		Example: `  lockcheck granularity
  lockcheck granularity --backend etcd --workers 20 --hold 10ms
  lockcheck granularity --keys coarse,2,8,order --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.granularity(c.Context(), f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.o.Backend, "backend", f.o.Backend, "servers: redis, redis-sentinel, redlock, zookeeper, etcd")
	fl.StringVar(&f.o.Client, "client", "", "lock (default: the backend's)")
	fl.StringSliceVar(&f.keys, "keys", []string{"coarse", "user", "order"}, "granularities: coarse, user, order, or a number of keys")
	fl.IntVar(&f.o.Workers, "workers", f.o.Workers, "worker processes")
	fl.DurationVar(&f.o.Hold, "hold", f.o.Hold, "mean time in the section")
	fl.DurationVar(&f.o.RetryDelay, "retry-delay", f.o.RetryDelay, "mean time between two tries for the lock")
	fl.Float64Var(&f.o.Rate, "rate", 0, "orders a second over all workers; 0 for as many as go")
	fl.DurationVar(&f.o.Duration, "duration", 10*time.Second, "of each run")
	fl.DurationVar(&f.o.TTL, "ttl", f.o.TTL, "lease or session time-out")
	fl.Uint64Var(&f.seed, "seed", rand.Uint64N(1<<32), "of the stream of orders")
	fl.StringVar(&f.o.Out, "out", f.o.Out, "folder for run directories")
	fl.StringVar(&f.o.Network, "network", f.o.Network, "lab (namespaces), loopback, or auto")
	fl.BoolVar(&f.json, "json", false, "print the rows as JSON")
	return c
}

func (a *app) granularity(ctx context.Context, f *granularityFlags) error {
	f.o.Seed = f.seed
	for _, k := range f.keys {
		o := f.o
		o.Keys = k
		if err := o.Settle(); err != nil {
			return usage(err)
		}
		f.o.Client = o.Client
	}
	if _, err := local.Find(f.o.Backend); err != nil {
		fmt.Fprintf(a.out, "backend %s was skipped: %v\nverdict: unknown\n", f.o.Backend, err)
		return exit{code: exitUnknown}
	}
	fmt.Fprintf(a.err, "seed %d  %s on %s, %d workers, %v each\n", f.seed, f.o.Client, f.o.Backend, f.o.Workers, f.o.Duration)
	var rows []matrix.Orders
	code := exitValid
	for _, k := range f.keys {
		row, err := a.granular(ctx, f.o, k)
		if err != nil {
			return exit{exitFailed, err}
		}
		if row.Anomalies > 0 {
			code = exitInvalid
		}
		rows = append(rows, row)
	}
	if f.json {
		if err := printJSON(a.out, rows); err != nil {
			return err
		}
		return ended(code, nil)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "keys\tlocks\torders\torders/s\twait p50\tp99\tmax\tfound it taken\trefused per order\tanomalies")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f\t%v\t%v\t%v\t%.1f %%\t%.2f\t%d\n", r.Keys, r.Locks, r.Done, r.PerSecond, short(r.P50), short(r.P99), short(r.Max), 100*r.Contended, r.Refused, r.Anomalies)
	}
	if err := w.Flush(); err != nil {
		return exit{exitFailed, err}
	}
	return ended(code, nil)
}

func short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// granular is the run of one granularity.
func (a *app) granular(ctx context.Context, o experiment.Options, keys string) (matrix.Orders, error) {
	o.Keys = keys
	res, err := a.runChild(ctx, o)
	if err != nil {
		return matrix.Orders{}, err
	}
	if ctx.Err() != nil {
		return matrix.Orders{}, ctx.Err()
	}
	ops, err := readHistory(res)
	if err != nil {
		return matrix.Orders{}, err
	}
	row := matrix.MeasureOrders(keys, ops, res.Lasted)
	row.Verdict, row.Dir = res.Verdict, res.Dir
	for name, p := range res.Properties {
		if slices.Contains(res.Required, name) {
			row.Anomalies += p.AnomalyCount
		}
	}
	return row, nil
}
