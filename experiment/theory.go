package experiment

import (
	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/scenario"
)

// AsExpected is what is said of a scenario that came out as theory says.
const AsExpected = "as expected"

// Deviation says in what a scenario did not come out as theory says, or "".
// There is no theory of a foreign program.
func Deviation(o *Options, res *checker.Results) string {
	s, err := scenario.Find(o.Scenario)
	e, cerr := catalog.Find(o.Client)
	if err != nil || cerr != nil || s.Theory == nil {
		return ""
	}
	return s.Theory(scenario.Case{
		Backend: o.Backend, Client: o.Client, Tokens: e.Tokens, Fence: e.Tokens && o.Store != fencedstore.None,
		Durable: local.Durable(cluster.Spec{Backend: o.Backend, Persistence: o.Persistence}),
	}).Deviation(res)
}

// theory is what the result says of that.
func theory(o *Options, res *checker.Results) string {
	s, err := scenario.Find(o.Scenario)
	_, cerr := catalog.Find(o.Client)
	switch off := Deviation(o, res); {
	case err != nil || cerr != nil || s.Theory == nil:
		return ""
	case off != "":
		return off
	}
	return AsExpected
}

// GCPauseDeviation is Deviation for the scenario gc-pause, as the demo asks it.
func GCPauseDeviation(r *Result, tokens bool) string {
	s, err := scenario.Find("gc-pause")
	if err != nil {
		return err.Error()
	}
	return s.Theory(scenario.Case{Tokens: tokens, Fence: tokens && r.Store != string(fencedstore.None)}).Deviation(&r.Results)
}
