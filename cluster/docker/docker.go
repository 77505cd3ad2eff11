// Package docker runs the servers under test in containers, with the drivers of
// cluster/local and the workers on this machine.
//
// Each node is two containers: one that does nothing but hold the network (so
// that the address and the packet rules outlive a server that is killed) and the
// server itself, which is another container after each restart. A toxiproxy stands
// in a container of its own, and workers reach servers and the store through it.
//
// It needs an engine on this machine, since the data directories are bind mounts.
// Nothing outlives the run: a guardian process removes what is left, by label, when
// lockcheck ends in whatever way. The reaper of testcontainers is not used: it is
// an image, and images cannot be counted on.
package docker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
	"github.com/docker/docker/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"

	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
)

// Name is that of the provider, and of its network in results.
const Name = "docker"

// Options say how containers are made. The zero value is right on a machine with
// an engine and a local image, but for Guardian.
type Options struct {
	Image    string                         // one image for everything; "" for those of the environment, see Images
	Publish  bool                           // reach the containers by published ports only, as with Docker Desktop
	NoRules  bool                           // do not drop packets, although it may be permitted
	Guardian func(args ...string) *exec.Cmd // makes the command that runs Guard; nil for no guardian
}

// Start starts a cluster in containers.
func Start(ctx context.Context, spec cluster.Spec, o Options) (*local.Cluster, error) {
	e, err := newEngine(ctx, spec, o)
	if err != nil {
		return nil, fmt.Errorf("start %s in containers: %w", spec.Backend, err)
	}
	return local.On(ctx, e, spec)
}

const (
	// labelRun marks everything that is made for a run, with the run's id;
	// labelOwner has the process that made it.
	labelRun   = "org.lockcheck.run"
	labelOwner = "org.lockcheck.pid"
	// callLimit bounds one request to the engine.
	callLimit = time.Minute
	// controlBase and proxyBase are where toxiproxy listens, in its container: for
	// lockcheck's own questions to the servers, and for the workers.
	controlBase = 19000
	proxyBase   = 20000
	proxyStride = 16 // ports kept for one worker
)

// An engine makes places for one run.
type engine struct {
	cli      *testcontainers.DockerClient
	id       string
	images   images
	publish  bool
	rules    bool
	subnet   subnet
	network  *testcontainers.DockerNetwork
	spec     cluster.Spec
	proxies  *toxiproxy.Client
	ports    map[int]string // of the toxiproxy container, to addresses on this machine
	guardian *guardian
	version  map[string]string

	mu    sync.Mutex
	boxes []*box
	nodes int // that were handed out
	links int
	close sync.Once
	err   error
}

func newEngine(ctx context.Context, spec cluster.Spec, o Options) (_ *engine, err error) {
	cli, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	e := &engine{cli: cli, spec: spec, id: newID(), ports: map[int]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if err := e.look(ctx, o); err != nil {
		return nil, err
	}
	if e.images, err = e.chooseImages(ctx, o.Image); err != nil {
		return nil, err
	}
	if e.guardian, err = startGuardian(e.id, o.Guardian); err != nil {
		return nil, err
	}
	if err := e.makeNetwork(ctx); err != nil {
		return nil, err
	}
	return e, e.startPlaces(ctx)
}

func newID() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// ErrNoEngine is wrapped when no Docker engine answers.
var ErrNoEngine = errors.New("no Docker engine answers")

// noReaper keeps testcontainers from starting its own image. It reads its settings
// once, from the environment.
var noReaper = sync.OnceValue(func() error {
	tclog.SetDefault(silent{})
	return os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
})

type silent struct{}

func (silent) Printf(string, ...any) {}

// connect finds the engine, as the docker command does.
func connect(ctx context.Context) (*testcontainers.DockerClient, error) {
	if err := noReaper(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cli, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err == nil {
		_, err = cli.Ping(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (%w): start one, or say with DOCKER_HOST where it is; without it there is --provider local", ErrNoEngine, err)
	}
	return cli, nil
}

// Available says why there are no containers to be had here, nil if there are.
func Available(ctx context.Context) error {
	cli, err := connect(ctx)
	if err != nil {
		return err
	}
	return cli.Close()
}

// PacketRules says why packets between containers cannot be dropped here, nil if
// they can: nodes are then cut off by taking them off the network as a whole.
func PacketRules() error {
	switch {
	case runtime.GOOS != "linux":
		return errors.New("packet rules need Linux")
	case os.Geteuid() != 0:
		return errors.New("packet rules in containers' networks need root")
	}
	return nil
}

// look asks the engine what kind it is.
func (e *engine) look(ctx context.Context, o Options) error {
	info, err := e.cli.Info(ctx)
	if err != nil {
		return fmt.Errorf("ask the engine about itself: %w", err)
	}
	host := e.cli.DaemonHost()
	if !strings.HasPrefix(host, "unix://") && !strings.HasPrefix(host, "npipe://") {
		return fmt.Errorf("the engine at %s is on another machine: data directories cannot be shared with it", host)
	}
	// In these, containers live behind another network than ours.
	far := runtime.GOOS != "linux" || strings.Contains(info.OperatingSystem, "Docker Desktop") || slices.Contains(info.SecurityOptions, "name=rootless")
	e.publish = far || o.Publish
	e.rules = !far && !o.NoRules && PacketRules() == nil
	e.version = map[string]string{"docker": info.ServerVersion}
	return nil
}

func (e *engine) labels() map[string]string {
	return map[string]string{labelRun: e.id, labelOwner: fmt.Sprint(os.Getpid())}
}

// A subnet is a /24 that is given out by hand, so that a node which was taken off
// the network gets its address back.
type subnet [3]byte

func (s subnet) ip(last int) string { return fmt.Sprintf("%d.%d.%d.%d", s[0], s[1], s[2], last) }

// subnetTries is how many subnets are tried: others may be taken.
const subnetTries = 20

func (e *engine) makeNetwork(ctx context.Context) error {
	var why error
	for range subnetTries {
		b := make([]byte, 2)
		_, _ = rand.Read(b) // it never fails
		e.subnet = subnet{10, 128 + b[0]%100, b[1]}
		e.network, why = tcnetwork.New(ctx, tcnetwork.WithLabels(e.labels()), tcnetwork.WithIPAM(&network.IPAM{
			Driver: "default",
			Config: []network.IPAMConfig{{Subnet: e.subnet.ip(0) + "/24", Gateway: e.subnet.ip(1)}},
		}))
		if why == nil {
			return nil
		}
	}
	return fmt.Errorf("create a network: %w", why)
}

// Name implements local.Engine.
func (e *engine) Name() string { return Name }

// Proxies implements local.Engine.
func (e *engine) Proxies() *toxiproxy.Client { return e.proxies }

// Versions implements local.Engine.
func (e *engine) Versions() map[string]string {
	v := map[string]string{}
	for k, s := range e.version {
		v[k] = s
	}
	for k, s := range e.images.all() {
		v["image_"+k] = s
	}
	if v["toxiproxy"] == "" {
		delete(v, "toxiproxy")
	}
	return v
}

// Close implements local.Engine. It removes everything of this run.
func (e *engine) Close() error {
	e.close.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		_, err := sweep(ctx, e.cli, e.id)
		e.guardian.dismiss()
		e.err = errors.Join(err, e.cli.Close())
	})
	return e.err
}
