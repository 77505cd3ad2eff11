// Package external reaches servers that lockcheck did not start and that it leaves
// alone: it breaks workers and, through toxiproxy servers that are already there,
// the workers' links. Its locks are under a prefix of their own, which is removed
// at the end. It refuses to stop, restart or reconfigure anything.
package external

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lockcheck/lockcheck/clients"
	"github.com/lockcheck/lockcheck/cluster"
)

// Name is that of the provider, and of its network in results.
const Name = "external"

// DefaultPrefix comes before the names of locks.
const DefaultPrefix = "lockcheck/"

// A Node is one server that exists.
type Node struct {
	Name     string `yaml:"name"`
	Endpoint string `yaml:"endpoint"` // host:port for this machine, as other servers tell it
	Upstream string `yaml:"upstream"` // host:port for toxiproxy's machine; "" for Endpoint
	Sentinel bool   `yaml:"sentinel"`
}

// A Toxiproxy is a server that makes links for us.
type Toxiproxy struct {
	API   string `yaml:"api"`   // host:port
	Host  string `yaml:"host"`  // where its listeners are for this machine
	Ports string `yaml:"ports"` // for links, first-last
}

// A Config says what is there. Secrets are in files or in the environment, never in
// it, so that it can be kept beside a run.
type Config struct {
	Backend   string     `yaml:"backend"`
	Master    string     `yaml:"master"` // redis-sentinel; "" for lockcheck's own name
	Prefix    string     `yaml:"prefix"`
	Nodes     []Node     `yaml:"nodes"`
	Toxiproxy *Toxiproxy `yaml:"toxiproxy"`
	Access    struct {
		User         string `yaml:"user"`
		PasswordFile string `yaml:"password_file"`
		PasswordEnv  string `yaml:"password_env"`
		TLS          bool   `yaml:"tls"`
		CA           string `yaml:"ca"`
		Cert         string `yaml:"cert"`
		Key          string `yaml:"key"`
		ServerName   string `yaml:"server_name"`
	} `yaml:"access"`

	// IsATestCluster lets addresses pass that are neither loopback nor private.
	IsATestCluster bool `yaml:"-"`
}

// Read reads a file.
func Read(file string) (*Config, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("external cluster: %w", err)
	}
	c := &Config{}
	d := yaml.NewDecoder(strings.NewReader(string(b)))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("external cluster: %s: %w", file, err)
	}
	return c, nil
}

// Settle fills in what follows and refuses what makes no sense, or is not safe.
func (c *Config) Settle(backend string) error {
	if c.Backend == "" {
		c.Backend = backend
	}
	switch {
	case c.Backend != backend:
		return fmt.Errorf("the external cluster is %s, not %s", c.Backend, backend)
	case len(c.Nodes) == 0:
		return errors.New("an external cluster needs nodes, or endpoints")
	case c.Prefix == "":
		c.Prefix = DefaultPrefix
	}
	if c.Master == "" {
		c.Master = cluster.MasterName
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Name == "" {
			n.Name = fmt.Sprintf("n%d", i+1)
		}
		if n.Upstream == "" {
			n.Upstream = n.Endpoint
		}
		if backend == cluster.Sentinel && strings.HasPrefix(n.Name, "s") {
			n.Sentinel = true
		}
		if err := c.safe(n.Endpoint); err != nil {
			return err
		}
	}
	if backend == cluster.Sentinel && !slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.Sentinel }) {
		return errors.New("redis-sentinel needs nodes that are sentinels (sentinel: true, or named s1, s2, ...)")
	}
	if c.Toxiproxy != nil {
		if _, _, err := c.Toxiproxy.ports(); err != nil {
			return err
		}
		return c.safe(c.Toxiproxy.API)
	}
	return nil
}

// ErrNotATestCluster is wrapped by the refusal of addresses that might be those of
// something that people depend on.
var ErrNotATestCluster = errors.New("it may be something that people depend on: if it is not, say --i-know-this-is-a-test-cluster")

// safe refuses addresses that are neither loopback nor private.
func (c *Config) safe(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address %q: %w", addr, err)
	}
	if c.IsATestCluster || host == "localhost" {
		return nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return fmt.Errorf("%s is a name and no address, and names can lead anywhere: %w", addr, ErrNotATestCluster)
	}
	if ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast() {
		return nil
	}
	return fmt.Errorf("%s is neither a loopback nor a private address: %w", addr, ErrNotATestCluster)
}

// access reads the secrets; nil where there are none.
func (c *Config) access() (*clients.Access, error) {
	a := c.Access
	out := &clients.Access{User: a.User, TLS: a.TLS, CA: a.CA, Cert: a.Cert, Key: a.Key, ServerName: a.ServerName}
	switch {
	case a.PasswordFile != "":
		b, err := os.ReadFile(a.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("password: %w", err)
		}
		out.Password = strings.TrimRight(string(b), "\r\n")
	case a.PasswordEnv != "":
		out.Password = os.Getenv(a.PasswordEnv)
		if out.Password == "" {
			return nil, fmt.Errorf("password: the variable %s is empty", a.PasswordEnv)
		}
	}
	if *out == (clients.Access{}) {
		return nil, nil
	}
	return out, nil
}

func (t *Toxiproxy) ports() (first, last int, err error) {
	if _, err := fmt.Sscanf(t.Ports, "%d-%d", &first, &last); err != nil || first < 1 || last < first || last > 65535 {
		return 0, 0, fmt.Errorf("ports %q of toxiproxy are not first-last", t.Ports)
	}
	return first, last, nil
}

// Names gives all nodes, and those that hold locks.
func (c *Config) Names() (all, data []string) {
	for _, n := range c.Nodes {
		all = append(all, n.Name)
		if !n.Sentinel {
			data = append(data, n.Name)
		}
	}
	return all, data
}
