package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/skew"
	"github.com/lockcheck/lockcheck/scenario"
)

// A listed is one line of a list.
type listed struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Runs  bool   `json:"runs"`              // on this machine
	Why   string `json:"why_not,omitempty"` // and what mends it

	Library bool `json:"library,omitempty"` // a lock that people use, as it is
	Broken  bool `json:"broken_on_purpose,omitempty"`
}

var backendAbout = map[string]string{
	cluster.Redis:     "one redis-server",
	cluster.Sentinel:  "a redis master with two replicas and three sentinels; asynchronous replication",
	cluster.Redlock:   "five independent redis-servers",
	cluster.ZooKeeper: "an ensemble of three ZooKeeper servers",
	cluster.Etcd:      "three etcd members",
}

var propertyAbout = map[string]string{
	checker.Exclusion:    "no two holders believe at one time to hold the lock (not required by default: no lease lock keeps it under a long pause)",
	checker.Lease:        "the lock is not given out twice within a lease, and a loss is not ignored",
	checker.Fencing:      "fencing tokens grow, and the store applied none that had been overtaken",
	checker.Release:      "nobody releases or renews what another holds",
	checker.Data:         "no stale write, no lost update, no write outside of a hold",
	checker.Progress:     "somebody who tries is granted the lock in the end",
	checker.Linearizable: "some order of the lock operations explains what was seen",
}

func (a *app) listCommand() *cobra.Command {
	var json bool
	what := []string{"backends", "clients", "faults", "scenarios", "properties"}
	c := &cobra.Command{
		Use:       "list " + strings.Join(what, "|"),
		Short:     "What there is, and what this machine can run",
		Example:   "  lockcheck list backends\n  lockcheck list clients --json",
		ValidArgs: what,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(what, args[0]) {
				return usage(fmt.Errorf("list takes one of %s", strings.Join(what, ", ")))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.list(list(args[0]), json) },
	}
	c.Flags().BoolVar(&json, "json", false, "print as JSON")
	return c
}

func list(what string) []listed {
	var ls []listed
	switch what {
	case "backends":
		for _, b := range cluster.Backends {
			ls = append(ls, onBackends(listed{Name: b, About: backendAbout[b]}, b))
		}
	case "clients":
		for _, e := range catalog.All {
			ls = append(ls, onBackends(listed{Name: e.Name, About: e.About + " (on " + strings.Join(e.Backends, ", ") + ")"}, e.Backends...))
		}
		for _, e := range catalog.Libraries {
			l := onBackends(listed{Name: e.Name, About: e.About + " (on " + strings.Join(e.Backends, ", ") + ")", Library: true}, e.Backends...)
			o := experiment.Options{Client: e.Name}
			if err := o.Missing(); err != nil && l.Runs {
				l.Runs, l.Why = false, err.Error()
			}
			ls = append(ls, l)
		}
		for _, e := range catalog.Faulty {
			ls = append(ls, onBackends(listed{Name: e.Name, About: e.About + " (on " + strings.Join(e.Backends, ", ") + ")", Broken: true}, e.Backends...))
		}
		for _, e := range catalog.Reported {
			ls = append(ls, onBackends(listed{Name: e.Name, About: e.About + " (on " + strings.Join(e.Backends, ", ") + "; of a public report)"}, e.Backends...))
		}
	case "faults":
		return listFaults(local.Probe(context.Background()), skew.Probe())
	case "scenarios":
		for _, s := range scenario.All {
			on := s.Backends
			if on == nil {
				on = cluster.Backends
			}
			ls = append(ls, onBackends(listed{Name: s.Name, About: s.About + " (on " + strings.Join(on, ", ") + ")"}, on...))
		}
		for _, r := range scenario.Reports {
			ls = append(ls, listed{Name: r.Number + " " + r.Name, About: r.About + " (" + r.Source + ")", Runs: true})
		}
	case "properties":
		for _, p := range checker.Properties {
			ls = append(ls, listed{Name: p, About: propertyAbout[p], Runs: true})
		}
	}
	return ls
}

// listFaults says what each fault does, which forms it has, on which backends it
// can work, and whether it can work here: lab is why there are no namespaces,
// clocks why no clock can be moved.
func listFaults(lab, clocks error) []listed {
	var ls []listed
	for _, e := range nemesis.Faults() {
		l := listed{Name: e.Name, About: e.About}
		if forms := e.AllForms(); len(forms) > 0 {
			l.About += " (" + e.Name + ":" + strings.Join(forms, "|") + ")"
		}
		if e.Acts == nemesis.OnClocks && clocks != nil {
			l.Why = clocks.Error()
			ls = append(ls, l)
			continue
		}
		var on []string
		for _, b := range cluster.Backends {
			o := experiment.Defaults()
			o.Backend, o.Nemesis, o.Target = b, []string{e.Name}, ""
			if o.Possible(true) == nil {
				on = append(on, b)
			}
		}
		if len(on) < len(cluster.Backends) {
			l.About += "; on " + strings.Join(on, ", ")
		}
		l = onBackends(l, on...)
		if lab != nil && e.Acts == nemesis.BetweenNodes {
			l.Runs, l.Why = false, lab.Error()
		}
		ls = append(ls, l)
	}
	return ls
}

// onBackends says whether l runs here: on one of the backends at least.
func onBackends(l listed, backends ...string) listed {
	var why []string
	for _, b := range backends {
		if _, err := local.Find(b); err != nil {
			why = append(why, err.Error())
		} else {
			l.Runs = true
		}
	}
	if !l.Runs {
		l.Why = strings.Join(why, "; ")
	}
	return l
}

func (a *app) list(ls []listed, json bool) error {
	if json {
		return printJSON(a.out, ls)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for i, l := range ls {
		if l.Library && (i == 0 || !ls[i-1].Library) {
			fmt.Fprintln(w, "\nLibraries that people use, as they are:")
		}
		if l.Broken && (i == 0 || !ls[i-1].Broken) {
			fmt.Fprintln(w, "\nBroken on purpose, each beside its honest twin in 'lockcheck verify':")
		}
		fmt.Fprintf(w, "%s\t%s\n", l.Name, l.About)
		if l.Why != "" {
			fmt.Fprintf(w, "\tnot here: %s\n", l.Why)
		}
	}
	return w.Flush()
}

func (a *app) doctorCommand() *cobra.Command {
	var json bool
	c := &cobra.Command{
		Use:     "doctor",
		Short:   "What is installed, permitted and missing, and what mends it",
		Example: "  lockcheck doctor\n  lockcheck doctor --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ls := examine(c.Context())
			if json {
				if err := printJSON(a.out, ls); err != nil {
					return err
				}
			} else {
				a.printExamined(ls)
			}
			for _, l := range ls {
				if !l.Runs {
					return exit{code: exitUnknown}
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&json, "json", false, "print as JSON")
	return c
}

// examine looks at everything that a run needs.
func examine(ctx context.Context) []listed {
	lab := listed{Name: "lab", About: "namespaces for servers and workers, without root", Runs: true}
	if err := local.Probe(ctx); err != nil {
		lab.Runs, lab.Why = false, err.Error()
		var un *local.Unavailable
		if errors.As(err, &un) {
			lab.Why = fmt.Sprintf("%s: %v; %s; without it runs use --network loopback", un.Step, un.Err, un.Remedy)
		}
	}
	clocks := listed{Name: "clocks", About: "servers and workers with clocks of their own, for the clock faults", Runs: true}
	if err := skew.Probe(); err != nil {
		clocks.Runs, clocks.Why = false, err.Error()+"; everything else works without it"
	}
	return append([]listed{lab, clocks}, list("backends")...)
}

func (a *app) printExamined(ls []listed) {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, l := range ls {
		state := "ok"
		if !l.Runs {
			state = "missing"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", l.Name, state, l.About)
		if l.Why != "" {
			fmt.Fprintf(w, "\t\t%s\n", l.Why)
		}
	}
	w.Flush()
}
