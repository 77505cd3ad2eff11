// Package experiment carries out one run: it starts the servers, the fenced
// store and the workers, lets the nemesis loose, and has the history judged as
// it grows. Whatever happens, the run directory holds what was seen.
package experiment

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/docker"
	"github.com/lockcheck/lockcheck/cluster/external"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/generator"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/runner"
	"github.com/lockcheck/lockcheck/scenario"
)

// Options say what to run. Durations are nanoseconds in JSON.
type Options struct {
	Backend      string             `json:"backend"`
	Client       string             `json:"client"`
	ClientCmd    []string           `json:"client_cmd,omitempty"` // a program that speaks the worker protocol
	Scenario     string             `json:"scenario,omitempty"`
	Key          string             `json:"key,omitempty"` // that a scenario is about; "" for its own
	Workers      int                `json:"workers"`
	Keys         string             `json:"keys"`
	TTL          time.Duration      `json:"ttl"`
	Store        fencedstore.Policy `json:"store"`
	Nemesis      []string           `json:"nemesis"`
	Target       string             `json:"target"`
	Interval     time.Duration      `json:"interval"`
	AtOnce       int                `json:"at_once"`
	Duration     time.Duration      `json:"duration"`
	Seed         uint64             `json:"seed"`
	Plan         []nemesis.Step     `json:"-"` // in place of one that is drawn
	Require      []string           `json:"require"`
	Hold         time.Duration      `json:"hold"`
	RetryDelay   time.Duration      `json:"retry_delay"`
	Wait         time.Duration      `json:"wait"`
	NodeTimeout  time.Duration      `json:"node_timeout,omitempty"` // for one server of several; 0 for the client's own
	Rate         float64            `json:"rate"`
	Renew        *bool              `json:"renew"` // nil for the client's own default
	Persistence  string             `json:"persistence"`
	OnSuspended  string             `json:"on_suspended"`
	Provider     string             `json:"provider"`           // of the servers
	Image        string             `json:"image,omitempty"`    // docker: one for everything
	ExternalFile string             `json:"external,omitempty"` // external: what is there
	External     *external.Config   `json:"-"`                  // read from it, or made of flags
	Network      string             `json:"network"`
	NetworkNote  string             `json:"network_note,omitempty"` // why "auto" did not choose the lab
	Proxy        string             `json:"proxy"`
	Stop         bool               `json:"stop_on_violation"`
	Out          string             `json:"-"`
}

// Defaults gives the options of an ordinary run.
func Defaults() Options {
	return Options{
		Backend: cluster.Redis, Workers: 5, Keys: "coarse", TTL: time.Second, Store: fencedstore.Monotonic,
		Target: nemesis.Holder, Interval: 2 * time.Second, AtOnce: 1, Duration: 20 * time.Second,
		Hold: 3 * time.Millisecond, RetryDelay: 10 * time.Millisecond, Wait: 5 * time.Second,
		Persistence: "none", OnSuspended: runner.Continue, Provider: ProviderLocal, Network: local.NetworkAuto, Proxy: "auto", Out: "store",
	}
}

// Providers of servers, as the command line spells them.
const (
	ProviderLocal    = "local"    // on this machine, in the lab or on loopback
	ProviderDocker   = "docker"   // in containers
	ProviderExternal = "external" // they exist already
)

// Providers lists them.
var Providers = []string{ProviderLocal, ProviderDocker, ProviderExternal}

// settleExternal reads what is there.
func (o *Options) settleExternal() (err error) {
	if o.Provider != ProviderExternal {
		return nil
	}
	if o.External == nil || len(o.External.Nodes) == 0 && o.ExternalFile != "" {
		safe := o.External != nil && o.External.IsATestCluster
		if o.ExternalFile == "" {
			return fmt.Errorf("provider external needs --external FILE or --endpoint")
		}
		if o.External, err = external.Read(o.ExternalFile); err != nil {
			return err
		}
		o.External.IsATestCluster = safe
	}
	return o.External.Settle(o.Backend)
}

// namespaces says whether packets between servers can be lost: where the provider
// is local it is for the caller to know whether there is a lab.
func (o *Options) namespaces(lab bool) bool {
	if o.Provider == ProviderExternal {
		return false
	}
	if o.Provider == ProviderDocker {
		return docker.PacketRules() == nil
	}
	return lab
}

// writesInSection bounds the writes of one section.
const writesInSection = 2

// maxWorkers bounds a run: the lab has one namespace for each.
const maxWorkers = 100

// Settle fills in what follows from the rest and refuses what makes no sense.
func (o *Options) Settle() error {
	if !slices.Contains(cluster.Backends, o.Backend) {
		return fmt.Errorf("backend %q is not known; there are %s", o.Backend, strings.Join(cluster.Backends, ", "))
	}
	if err := o.settleClient(); err != nil {
		return err
	}
	if _, err := generator.ParseKeys(o.Keys); err != nil {
		return err
	}
	if _, err := fencedstore.ParsePolicy(string(o.Store)); err != nil {
		return err
	}
	if err := o.settleScenario(); err != nil {
		return err
	}
	for _, p := range o.Require {
		if !slices.Contains(checker.Properties, p) {
			return fmt.Errorf("property %q is not known; there are %s", p, strings.Join(checker.Properties, ", "))
		}
	}
	if err := o.settleChoices(); err != nil {
		return err
	}
	if err := o.settleExternal(); err != nil {
		return err
	}
	return o.Possible(o.namespaces(o.Network != local.NetworkLoopback))
}

func (o *Options) settleClient() error {
	if len(o.ClientCmd) > 0 {
		if o.Client == "" {
			o.Client = "cmd/" + strings.Trim(strings.ReplaceAll(o.ClientCmd[0], "/", "-"), "-.")
		}
		return nil
	}
	if o.Client == "" {
		e, err := catalog.Default(o.Backend)
		if err != nil {
			return err
		}
		o.Client = e.Name
	}
	e, err := catalog.Find(o.Client)
	if err != nil {
		return err
	}
	if !e.On(o.Backend) {
		return fmt.Errorf("client %s does not run on %s; it runs on %s", o.Client, o.Backend, strings.Join(e.Backends, ", "))
	}
	if o.Renew == nil {
		o.Renew = &e.Renews
	}
	return nil
}

// Missing says what the lock under test lacks here, and what brings it: a program
// that has not been built. Servers are local.Find's business.
func (o *Options) Missing() error {
	if len(o.ClientCmd) > 0 {
		return nil
	}
	if p, ok := catalog.Foreigner(o.Client); ok {
		if err := p.Missing(); err != nil {
			return fmt.Errorf("client %s: %w", o.Client, err)
		}
		return nil
	}
	_, err := o.program()
	return err
}

// program gives the path of the program that offers the lock, "" for lockcheck
// itself.
func (o *Options) program() (string, error) {
	e, err := catalog.Find(o.Client)
	if len(o.ClientCmd) > 0 || err != nil || e.Program() == "" {
		return "", nil
	}
	path, err := local.Built(e.Program())
	if err != nil {
		return "", fmt.Errorf("%s is missing, which client %s needs: make bin/%s", e.Program(), o.Client, e.Program())
	}
	return path, nil
}

func (o *Options) settleScenario() error {
	if o.Scenario == "" {
		return nil
	}
	s, err := scenario.Find(o.Scenario)
	if err != nil {
		return err
	}
	o.Workers, o.TTL = s.Workers, max(o.TTL, s.TTL)
	if s.NodeTimeout {
		o.NodeTimeout = o.TTL
	}
	if len(o.Require) == 0 {
		o.Require = s.Require
	}
	if len(o.Nemesis) > 0 || len(o.Plan) > 0 {
		return fmt.Errorf("a scenario brings its own faults: leave --nemesis and --plan out")
	}
	return nil
}

func (o *Options) settleChoices() error {
	for _, c := range []struct {
		flag, value string
		known       []string
	}{
		{"persistence", o.Persistence, []string{"none", "aof"}},
		{"on-suspended", o.OnSuspended, []string{runner.Continue, runner.Pause}},
		{"provider", o.Provider, Providers},
		{"network", o.Network, []string{local.NetworkAuto, local.NetworkLab, local.NetworkLoopback}},
		{"proxy", o.Proxy, []string{"auto", "always"}},
	} {
		if !slices.Contains(c.known, c.value) {
			return fmt.Errorf("%s %q is none of %s", c.flag, c.value, strings.Join(c.known, ", "))
		}
	}
	switch {
	case o.Workers < 1 || o.Workers > maxWorkers:
		return fmt.Errorf("workers %d is not between 1 and %d", o.Workers, maxWorkers)
	case o.TTL < 100*time.Millisecond:
		return fmt.Errorf("ttl %v is below 100ms, which no server here keeps to", o.TTL)
	case o.Backend == cluster.Etcd && o.TTL%time.Second != 0:
		return fmt.Errorf("ttl %v: etcd leases last whole seconds", o.TTL)
	case o.Scenario == "" && o.Duration <= 0:
		return fmt.Errorf("duration %v is not above zero", o.Duration)
	case o.Interval <= 0 && len(o.Nemesis) > 0:
		return fmt.Errorf("interval %v is not above zero", o.Interval)
	case o.AtOnce < 1:
		return fmt.Errorf("at-once %d is below 1", o.AtOnce)
	case o.Hold < 0 || o.RetryDelay < 0 || o.Wait < 0 || o.Rate < 0:
		return fmt.Errorf("hold, retry-delay, wait and rate cannot be below zero")
	}
	if len(o.Require) == 0 {
		o.Require = checker.DefaultRequired
	}
	if o.Nemesis == nil {
		o.Nemesis = []string{} // a list in test.json, empty or not
	}
	return nil
}

// name is the folder that the run's directory goes into.
func (o *Options) name() string {
	what := "none"
	switch {
	case o.Scenario != "":
		what = o.Scenario
	case len(o.Plan) > 0 && len(o.Nemesis) == 0:
		what = "plan"
	case len(o.Nemesis) > 0:
		what = strings.Join(o.Nemesis, "+")
	}
	client := strings.TrimPrefix(o.Client, o.Backend+"/")
	return strings.NewReplacer("/", "-", ":", "-").Replace(o.Backend + "-" + client + "-" + what)
}

// proxied reports whether the links lead through toxiproxy: they need not when
// no fault of the run works on a link.
func (o *Options) proxied() bool { return o.Proxy == "always" || o.any(nemesis.OnLinks) }

// clocks reports whether the processes need clocks that can be moved: as usual
// they have their own, so that a run does not depend on what moves them.
func (o *Options) clocks() bool { return o.any(nemesis.OnClocks) }

// any reports whether a fault of the run acts on a kind of thing.
func (o *Options) any(acts nemesis.Acts) bool {
	faults := o.Nemesis
	if s, err := scenario.Find(o.Scenario); err == nil {
		faults = s.Needs(o.Backend)
	}
	return nemesis.Any(acts, faults, o.Plan)
}

// opTimeout is after what time the outcome of an operation counts as unknown. In
// a run it is well below the time after which a lock is called stuck: etcd never
// answers what was proposed while nobody led, and a client that waits longer for
// that than the lock may rest would be blamed for it. In a story a slow server is
// no finding, so there is more time.
func (o *Options) opTimeout() time.Duration {
	if o.Scenario != "" {
		return max(5*time.Second, 4*o.TTL)
	}
	return max(1500*time.Millisecond, 3*o.TTL)
}

// A Machine is what a run needs of the world around it.
type Machine struct {
	Guardian func(args ...string) *exec.Cmd // makes the command that runs docker.Guard with an id

	Worker func(o *Options) *exec.Cmd // makes the command of lockcheck's own worker
	Log    *slog.Logger               // for warnings that people should see at once
	Live   func(Live)                 // called a few times a second; may be nil
	Begun  func(dir string)           // called with the run directory; may be nil

	Planned func([]nemesis.Step) // called with the plan before anything breaks; may be nil
}

// Live is the state of a run that goes on.
type Live struct {
	Elapsed   time.Duration
	Status    runner.Status
	Anomalies int
	Phase     string
}

// ReadOptions reads the options of an earlier run from its test.json.
func ReadOptions(file string) (Options, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return Options{}, fmt.Errorf("parameters of the run: %w", err)
	}
	p := parameters{Options: Defaults()}
	if err := json.Unmarshal(b, &p); err != nil {
		return Options{}, fmt.Errorf("%s: %w", file, err)
	}
	return p.Options, nil
}
