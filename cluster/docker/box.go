package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/testcontainers/testcontainers-go"

	"github.com/lockcheck/lockcheck/cluster/local"
)

const (
	firstNode = 11
	proxyNode = 2
	apiPort   = 8474
)

// create starts a container of this run.
func (e *engine) create(ctx context.Context, req testcontainers.ContainerRequest) (string, error) {
	req.Labels = e.labels()
	c, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{ContainerRequest: req, Started: true})
	if err != nil {
		if strings.Contains(err.Error(), "pull") {
			err = fmt.Errorf("%w (make the local image with make image, or name another with --image)", err)
		}
		return "", err
	}
	return c.GetContainerID(), nil
}

// at gives a container an address on the run's network.
func (e *engine) at(req testcontainers.ContainerRequest, last int) testcontainers.ContainerRequest {
	req.Networks = []string{e.network.Name}
	req.EndpointSettingsModifier = func(m map[string]*network.EndpointSettings) {
		m[e.network.Name] = e.endpoint(last)
	}
	return req
}

func (e *engine) endpoint(last int) *network.EndpointSettings {
	return &network.EndpointSettings{
		NetworkID: e.network.ID, IPAddress: e.subnet.ip(last),
		IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: e.subnet.ip(last)},
	}
}

// startToxiproxy starts the proxy that everybody on this machine goes through.
func (e *engine) startToxiproxy(ctx context.Context) error {
	req := e.at(testcontainers.ContainerRequest{
		Image: e.images.proxy, Entrypoint: []string{"/toxiproxy"}, Cmd: []string{"-host=0.0.0.0"},
		HostConfigModifier: func(h *container.HostConfig) {
			h.ExtraHosts = []string{hostName + ":host-gateway"}
		},
		ExposedPorts: e.published(),
	}, proxyNode)
	id, err := e.create(ctx, req)
	if err != nil {
		return fmt.Errorf("start toxiproxy: %w", err)
	}
	if err := e.findPorts(ctx, id); err != nil {
		return fmt.Errorf("start toxiproxy: %w", err)
	}
	e.proxies = toxiproxy.NewClient(e.reach(apiPort))
	for {
		v, err := e.proxies.Version()
		if err == nil {
			e.version["toxiproxy"] = versionText(string(v))
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for toxiproxy: %w (last answer: %w)", ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// versionText takes the number out of {"version": "2.12.0"}.
func versionText(s string) string {
	f := strings.Split(s, `"`)
	if len(f) < 5 {
		return s
	}
	return f[3]
}

// published are all ports of the toxiproxy container that a run may use, each
// published on a port of the engine's choice; nil where it is reached directly.
func (e *engine) published() []string {
	if !e.publish {
		return nil
	}
	var all []string
	add := func(port int) { all = append(all, fmt.Sprintf("%s::%d/tcp", localhost, port)) }
	add(apiPort)
	nodes, _ := local.NodeNames(e.spec.Backend)
	for n := range nodes {
		add(controlBase + n)
	}
	for w := range e.spec.Workers {
		for n := range len(nodes) + 1 {
			add(proxyBase + w*proxyStride + n)
		}
	}
	return all
}

const (
	localhost = "127.0.0.1"
	// hostName is how a container calls this machine.
	hostName = "host.docker.internal"
)

func (e *engine) findPorts(ctx context.Context, id string) error {
	if !e.publish {
		return nil
	}
	for {
		c, err := e.cli.ContainerInspect(ctx, id)
		if err != nil {
			return err
		}
		for p, b := range c.NetworkSettings.Ports {
			if len(b) > 0 {
				e.ports[p.Int()] = net.JoinHostPort(localhost, b[0].HostPort)
			}
		}
		if len(e.ports) > 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("no port was published: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// reach is where a port of the toxiproxy container is for this machine.
func (e *engine) reach(port int) string {
	if e.publish {
		return e.ports[port]
	}
	return net.JoinHostPort(e.subnet.ip(proxyNode), strconv.Itoa(port))
}

// proxy puts a proxy on a port before an upstream.
func (e *engine) proxy(name string, port int, upstream string) (string, error) {
	if _, err := e.proxies.CreateProxy(name, net.JoinHostPort("0.0.0.0", strconv.Itoa(port)), upstream); err != nil {
		return "", err
	}
	return e.reach(port), nil
}

// Link implements local.Engine. It is called for one worker after the other, with
// the links of each in order.
func (e *engine) Link(name, upstream string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all, _ := local.NodeNames(e.spec.Backend)
	per := len(all) + 1
	port := proxyBase + e.links/per*proxyStride + e.links%per
	e.links++
	host, p, err := net.SplitHostPort(upstream)
	if err == nil && host == localhost {
		upstream = net.JoinHostPort(hostName, p)
	}
	if err != nil {
		return "", err
	}
	return e.proxy(name, port, upstream)
}

// StoreAddr implements local.Engine: this machine as the containers see it, where
// it has such an address; else they have a name for it.
func (e *engine) StoreAddr() string {
	at := net.JoinHostPort(e.subnet.ip(1), "0")
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return net.JoinHostPort(localhost, "0")
	}
	ln.Close()
	return at
}

// A box is a container that holds the network of one node.
type box struct {
	e      *engine
	name   string
	last   int // of its address
	holder string
	door   string
	netns  string

	mu     sync.Mutex
	server string // the last container in it
}

// startPlaces starts toxiproxy and what holds the nodes' networks, all at once:
// an engine takes its time for each.
func (e *engine) startPlaces(ctx context.Context) error {
	all, _ := local.NodeNames(e.spec.Backend)
	errs := make([]error, len(all)+1)
	var wg sync.WaitGroup
	wg.Go(func() { errs[len(all)] = e.startToxiproxy(ctx) })
	for i, name := range all {
		b := &box{e: e, name: name, last: firstNode + i}
		e.boxes = append(e.boxes, b)
		wg.Go(func() { errs[i] = b.hold(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// hold starts the container whose network is the node's.
func (b *box) hold(ctx context.Context) (err error) {
	// An idle toxiproxy, since every image that could be asked to sleep is bigger.
	b.holder, err = b.e.create(ctx, b.e.at(testcontainers.ContainerRequest{
		Image: b.e.images.proxy, Entrypoint: []string{"/toxiproxy"}, Cmd: []string{"-host=" + localhost},
		ConfigModifier: func(c *container.Config) { c.Hostname = b.name },
	}, b.last))
	if err == nil && b.e.rules {
		var c container.InspectResponse
		if c, err = b.e.cli.ContainerInspect(ctx, b.holder); err == nil {
			b.netns = fmt.Sprintf("/proc/%d/ns/net", c.State.Pid)
		}
	}
	if err != nil {
		return fmt.Errorf("hold the network of %s: %w", b.name, err)
	}
	return nil
}

// Node implements local.Engine. It is asked for the nodes in their order.
func (e *engine) Node(name string, ports []int) (_ local.Box, err error) {
	e.mu.Lock()
	n := e.nodes
	e.nodes++
	e.mu.Unlock()
	if n >= len(e.boxes) || e.boxes[n].name != name {
		return nil, fmt.Errorf("there is no place for %s", name)
	}
	b := e.boxes[n]
	b.door = net.JoinHostPort(b.Addr(), strconv.Itoa(ports[0]))
	if e.publish {
		if b.door, err = e.proxy("control-"+name, controlBase+n, b.door); err != nil {
			return nil, fmt.Errorf("reach %s: %w", name, err)
		}
	}
	return b, nil
}

func (b *box) Addr() string          { return b.e.subnet.ip(b.last) }
func (b *box) Door() (string, error) { return b.door, nil }

func (b *box) NetNS() (string, error) {
	if b.netns == "" {
		return "", local.ErrNoRules
	}
	_, err := os.Stat(b.netns)
	return b.netns, err
}

// Run implements local.Box: a container in the holder's network.
func (b *box) Run(cmd *exec.Cmd, dir string, log io.WriteCloser) (local.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	id, err := b.e.create(ctx, b.request(ctx, cmd.Args, dir))
	if err != nil {
		log.Close()
		return nil, err
	}
	b.server = id
	s := &server{e: b.e, id: id, done: make(chan struct{})}
	c, err := b.e.cli.ContainerInspect(ctx, id)
	if err != nil {
		log.Close()
		return nil, errors.Join(err, s.Kill())
	}
	s.pid = c.State.Pid
	go s.watch(log)
	return s, nil
}

func (b *box) request(ctx context.Context, args []string, dir string) testcontainers.ContainerRequest {
	image := b.e.images.servers
	if i, err := b.e.cli.ImageInspect(ctx, image); err == nil && i.Config != nil {
		args = officialClasses(args, i.Config.WorkingDir)
	}
	return testcontainers.ContainerRequest{
		Image: image, Entrypoint: args[:1], Cmd: args[1:],
		HostConfigModifier: func(h *container.HostConfig) {
			h.NetworkMode = container.NetworkMode("container:" + b.holder)
			h.Binds = []string{dir + ":" + dir}
		},
		ConfigModifier: func(c *container.Config) {
			c.User, c.WorkingDir = fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()), dir
			c.ExposedPorts = nil
		},
	}
}

// Detach implements local.Box.
func (b *box) Detach(ctx context.Context) error {
	return b.e.cli.NetworkDisconnect(ctx, b.e.network.ID, b.holder, true)
}

// Attach implements local.Box.
func (b *box) Attach(ctx context.Context) error {
	if on, err := b.Attached(ctx); on || err != nil {
		return err
	}
	return b.e.cli.NetworkConnect(ctx, b.e.network.ID, b.holder, b.e.endpoint(b.last))
}

// Attached implements local.Box. It asks the network, not the container.
func (b *box) Attached(ctx context.Context) (bool, error) {
	n, err := b.e.cli.NetworkInspect(ctx, b.e.network.ID, network.InspectOptions{})
	if err != nil {
		return false, err
	}
	_, on := n.Containers[b.holder]
	return on, nil
}

// A server is a container in a box.
type server struct {
	e    *engine
	id   string
	pid  int
	done chan struct{}
	err  error
}

func (s *server) Pid() int { return s.pid }

func (s *server) Wait() error {
	<-s.done
	return s.err
}

// watch copies what the server says until it ends, and then removes the container:
// the node's next server is another one.
func (s *server) watch(log io.WriteCloser) {
	ctx := context.Background()
	defer close(s.done)
	defer log.Close()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		r, err := s.e.cli.ContainerLogs(ctx, s.id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
		if err != nil {
			return // it is gone already
		}
		defer r.Close()
		_, _ = stdcopy.StdCopy(log, log, r)
	}()
	ended, errs := s.e.cli.ContainerWait(ctx, s.id, container.WaitConditionNotRunning)
	select {
	case end := <-ended:
		if end.StatusCode != 0 {
			s.err = fmt.Errorf("exit status %d", end.StatusCode)
		}
	case err := <-errs:
		if !errdefs.IsNotFound(err) {
			s.err = err
		}
	}
	select {
	case <-copied:
	case <-time.After(logLimit):
	}
	_ = s.e.cli.ContainerRemove(ctx, s.id, container.RemoveOptions{Force: true, RemoveVolumes: true}) // else it is swept up later
}

// logLimit bounds the wait for the rest of the log of a server that has ended.
const logLimit = 2 * time.Second

func (s *server) Kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	return s.e.cli.ContainerKill(ctx, s.id, "KILL")
}

// Freeze implements local.Server.
func (s *server) Freeze(ctx context.Context) error { return s.e.cli.ContainerPause(ctx, s.id) }

// Thaw implements local.Server.
func (s *server) Thaw(ctx context.Context) error {
	c, err := s.e.cli.ContainerInspect(ctx, s.id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil || !c.State.Paused {
		return err
	}
	return s.e.cli.ContainerUnpause(ctx, s.id)
}

// Frozen implements local.Server. Where this machine's kernel runs the container
// it is the kernel that is asked, else the engine.
func (s *server) Frozen(ctx context.Context) (is bool, how string, err error) {
	if is, how, err := frozenByKernel(s.pid, s.id); err == nil {
		return is, how, nil
	}
	c, err := s.e.cli.ContainerInspect(ctx, s.id)
	if err != nil {
		return false, "", err
	}
	return c.State.Paused, "the engine's word", nil
}

// Running implements local.Server.
func (s *server) Running(ctx context.Context) (bool, error) {
	c, err := s.e.cli.ContainerInspect(ctx, s.id)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return c.State.Running, nil
}

// frozenByKernel reads the freezer of a container's control group, of either
// version.
func frozenByKernel(pid int, id string) (is bool, how string, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false, "", err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || !strings.Contains(f[2], id) {
			continue
		}
		switch f[1] {
		case "freezer":
			state, err := os.ReadFile("/sys/fs/cgroup/freezer" + f[2] + "/freezer.state")
			return strings.TrimSpace(string(state)) == "FROZEN", "freezer.state", err
		case "":
			events, err := os.ReadFile("/sys/fs/cgroup" + f[2] + "/cgroup.events")
			if err == nil {
				return strings.Contains(string(events), "frozen 1"), "cgroup.events", nil
			}
		}
	}
	return false, "", errors.New("no freezer of this container is to be seen")
}
