package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcd listens for clients and for its peers.
var etcdRole = role{server: etcdServer, ports: []int{2379, 2380}}

const (
	etcdNodes = 3
	// In milliseconds. The election timeout bounds leases from below: 1 s.
	etcdHeartbeat = 50
	etcdElection  = 500

	// etcdTry bounds one write: proposed while there is no leader, it is lost and
	// never answered.
	etcdTry = 250 * time.Millisecond
)

// An etcdDriver runs a cluster of three.
type etcdDriver struct {
	path string
}

func (d *etcdDriver) roles() []named { return numbered("n", etcdNodes, etcdRole) }

// joiningFile marks a member that was taken out of the cluster and put in again.
const joiningFile = "joining"

func (d *etcdDriver) command(m *member, all []*member) (*exec.Cmd, error) {
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("create directory of %s: %w", m.name, err)
	}
	var cluster []string
	for _, o := range all {
		cluster = append(cluster, o.name+"="+peerURL(o))
	}
	state := "new"
	if _, err := os.Stat(filepath.Join(m.dir, joiningFile)); err == nil {
		state = "existing"
	}
	return exec.Command(d.path,
		"--name", m.name,
		"--data-dir", m.dataDir(),
		"--listen-peer-urls", peerURL(m),
		"--initial-advertise-peer-urls", peerURL(m),
		"--listen-client-urls", clientURL(m),
		"--advertise-client-urls", clientURL(m),
		"--initial-cluster", strings.Join(cluster, ","),
		"--initial-cluster-state", state,
		"--heartbeat-interval", fmt.Sprint(etcdHeartbeat),
		"--election-timeout", fmt.Sprint(etcdElection),
		// A member is to be replaced in the first seconds of a run too.
		"--strict-reconfig-check=false",
	), nil
}

func clientURL(m *member) string { return "http://" + m.addr(0) }
func peerURL(m *member) string   { return "http://" + m.addr(1) }

// etcdClient talks to the given addresses. It does not wait for a connection.
func etcdClient(addrs ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()})
}

func (d *etcdDriver) ready(ctx context.Context, all []*member) error {
	return each(all, func(m *member) error { return d.rejoined(ctx, m, all) })
}

// rejoined waits for a write through this member alone. A client that comes
// before the port is open backs off for a second, hence the look at the port.
func (d *etcdDriver) rejoined(ctx context.Context, m *member, _ []*member) error {
	if err := listening(ctx, m); err != nil {
		return err
	}
	c, err := etcdClient(m.door())
	if err != nil {
		return fmt.Errorf("connect to %s: %w", m.name, err)
	}
	defer c.Close()
	return poll(ctx, "write a key on "+m.name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, etcdTry)
		defer cancel()
		if _, err := c.Put(ctx, readyKey+m.name, ""); err != nil {
			return err
		}
		_, err := c.Delete(ctx, readyKey+m.name)
		return err
	})
}

// forget takes a member out of the cluster and adds it anew: etcd refuses one
// that comes back without its data.
func (d *etcdDriver) forget(ctx context.Context, m *member, all []*member) error {
	var others []*member
	for _, o := range all {
		if o != m {
			others = append(others, o)
		}
	}
	c, err := etcdClient(clientAddrs(others...)...)
	if err != nil {
		return fmt.Errorf("connect to the other members: %w", err)
	}
	defer c.Close()
	err = poll(ctx, "replace member "+m.name, func(ctx context.Context) error {
		list, err := c.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, e := range list.Members {
			if len(e.PeerURLs) != 1 || e.PeerURLs[0] != peerURL(m) {
				continue
			}
			if e.Name == "" {
				return nil // added by an earlier try and not started since
			}
			if _, err := c.MemberRemove(ctx, e.ID); err != nil {
				return err
			}
		}
		_, err = c.MemberAdd(ctx, []string{peerURL(m)})
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.dir, joiningFile), nil, 0o600)
}

// anew lets a member begin as at the cluster's first start.
func (d *etcdDriver) anew(m *member) error {
	err := os.Remove(filepath.Join(m.dir, joiningFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// handOver has the leader move the lead to the member after it.
func (d *etcdDriver) handOver(ctx context.Context, all []*member) error {
	name, err := d.leader(ctx, all)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(m *member) bool { return m.name == name })
	next, err := etcdStatus(ctx, all[(i+1)%len(all)])
	if err != nil {
		return fmt.Errorf("ask who is to lead: %w", err)
	}
	c, err := etcdClient(all[i].door())
	if err != nil {
		return fmt.Errorf("connect to %s: %w", name, err)
	}
	defer c.Close()
	if _, err := c.MoveLeader(ctx, next.Header.MemberId); err != nil {
		return fmt.Errorf("move the lead from %s: %w", name, err)
	}
	return nil
}

// leader is the member that says so in the newest term.
func (d *etcdDriver) leader(ctx context.Context, all []*member) (string, error) {
	terms := make([]uint64, len(all))
	errs := make([]error, len(all))
	_ = each(all, func(m *member) error {
		i := indexOf(all, m)
		s, err := etcdStatus(ctx, m)
		if err == nil && s.Leader == s.Header.MemberId {
			terms[i] = s.RaftTerm
		}
		errs[i] = err
		return nil
	})
	best := -1
	for i, t := range terms {
		if t > 0 && (best < 0 || t > terms[best]) {
			best = i
		}
	}
	if best < 0 {
		return "", fmt.Errorf("%w: no member says that it leads: %w", ErrNoLeader, errors.Join(errs...))
	}
	return all[best].name, nil
}

// etcdStatus looks at the port first: where it is closed, the library waits for
// as long as it may.
func etcdStatus(ctx context.Context, m *member) (*clientv3.StatusResponse, error) {
	conn, err := dial(ctx, m.door())
	if err != nil {
		return nil, err
	}
	conn.Close()
	c, err := etcdClient(m.door())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Status(ctx, m.door())
}

func (d *etcdDriver) versions(ctx context.Context, all []*member) (map[string]string, error) {
	s, err := etcdStatus(ctx, all[0])
	if err != nil {
		return nil, err
	}
	return map[string]string{"etcd": s.Version}, nil
}

// told reads the date of an answer over HTTP, whose fraction is cut off.
func (d *etcdDriver) told(ctx context.Context, m *member) (time.Time, time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, clientURL(m)+"/version", nil)
	if err != nil {
		return time.Time{}, 0, err
	}
	// A connection of its own: this process outlives many servers.
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return time.Time{}, 0, err
	}
	resp.Body.Close()
	t, err := http.ParseTime(resp.Header.Get("Date"))
	return t, time.Second, err
}
