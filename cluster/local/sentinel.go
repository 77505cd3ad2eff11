package local

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/cluster"
)

var sentinelRole = role{server: redisSentinel, ports: []int{26379}}

const (
	sentinelServers = 3 // a master and its replicas
	sentinels       = 3
)

// Sentinel's own times, in milliseconds. A master is down after one second, and
// the whole failover then takes two or three.
const (
	downAfter       = 1000
	failoverTimeout = 3000
)

// A sentinelDriver runs a master n1 with the replicas n2 and n3, and the
// sentinels s1 to s3 on nodes of their own: one process a node, so that a node
// can be killed, stopped or cut off without a second meaning.
type sentinelDriver struct {
	redis    redisDriver
	sentinel string
}

func (d *sentinelDriver) roles() []named {
	rs := d.redis.roles()
	for _, r := range numbered("s", sentinels, sentinelRole) {
		// A connection that is refused is tried again a second later, so
		// sentinels start when there is somebody to connect to.
		r.second = true
		rs = append(rs, r)
	}
	return rs
}

// split tells the redis servers from the sentinels.
func (d *sentinelDriver) split(all []*member) (servers, sentinels []*member) {
	return all[:d.redis.nodes], all[d.redis.nodes:]
}

func (d *sentinelDriver) command(m *member, all []*member) (*exec.Cmd, error) {
	servers, _ := d.split(all)
	master := servers[0]
	if m.role.server == redisSentinel {
		return d.sentinelCommand(m, all)
	}
	var more []string
	if m != master {
		more = append(more, fmt.Sprintf("replicaof %s %d", master.host.addr(), master.ports[0]))
	}
	conf, err := d.redis.config(m, more...)
	if err != nil {
		return nil, err
	}
	return exec.Command(d.redis.path, conf), nil
}

// sentinelCommand gives a sentinel at its first start the knowledge that it
// would otherwise gather over some ten seconds of gossip.
func (d *sentinelDriver) sentinelCommand(m *member, all []*member) (*exec.Cmd, error) {
	servers, sentinels := d.split(all)
	master := servers[0]
	conf := []string{
		fmt.Sprintf("port %d", m.ports[0]),
		"bind " + m.host.addr(),
		"protected-mode no",
		"dir " + quote(m.dataDir()),
		"sentinel myid " + sentinelID(m),
		"sentinel announce-ip " + m.host.addr(),
		fmt.Sprintf("sentinel announce-port %d", m.ports[0]),
		fmt.Sprintf("sentinel monitor %s %s %d %d", cluster.MasterName, master.host.addr(), master.ports[0], len(sentinels)/2+1),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", cluster.MasterName, downAfter),
		fmt.Sprintf("sentinel failover-timeout %s %d", cluster.MasterName, failoverTimeout),
		fmt.Sprintf("sentinel parallel-syncs %s %d", cluster.MasterName, len(servers)-1),
	}
	for _, r := range servers[1:] {
		conf = append(conf, fmt.Sprintf("sentinel known-replica %s %s %d", cluster.MasterName, r.host.addr(), r.ports[0]))
	}
	for _, s := range sentinels {
		if s != m {
			conf = append(conf, fmt.Sprintf("sentinel known-sentinel %s %s %d %s", cluster.MasterName, s.host.addr(), s.ports[0], sentinelID(s)))
		}
	}
	file, err := writeConfig(m, "sentinel.conf", conf)
	if err != nil {
		return nil, err
	}
	return exec.Command(d.sentinel, file), nil
}

// sentinelID is the 40 hexadecimal digits by which sentinels know one another.
func sentinelID(m *member) string { return fmt.Sprintf("%x", sha1.Sum([]byte(m.addr(0)))) }

func (d *sentinelDriver) ready(ctx context.Context, all []*member) error {
	servers, sentinels := d.split(all)
	if err := poll(ctx, "wait for the replicas of "+servers[0].name, func(ctx context.Context) error {
		return replicasOnline(ctx, servers[0].door(), len(servers)-1)
	}); err != nil {
		return err
	}
	if err := each(sentinels, func(m *member) error { return d.rejoined(ctx, m, all) }); err != nil {
		return err
	}
	return setNX(ctx, servers[0])
}

func replicasOnline(ctx context.Context, addr string, want int) error {
	v, err := askRedis(ctx, addr, "INFO", "replication")
	if err != nil {
		return err
	}
	f := infoFields(v)
	if f["role"] != "master" {
		return fmt.Errorf("%s has the role %q", addr, f["role"])
	}
	online := 0
	for i := range want {
		if strings.Contains(f["slave"+strconv.Itoa(i)], "state=online") {
			online++
		}
	}
	if online != want {
		return fmt.Errorf("%d of %d replicas are online", online, want)
	}
	return nil
}

// rejoined waits until a sentinel knows everybody and can form a quorum, or
// until a redis-server serves in whatever role it has now.
func (d *sentinelDriver) rejoined(ctx context.Context, m *member, all []*member) error {
	if m.role.server != redisSentinel {
		return poll(ctx, "wait for "+m.name, func(ctx context.Context) error { return inRole(ctx, m.door()) })
	}
	servers, sentinels := d.split(all)
	return poll(ctx, "wait for "+m.name+" to know the others", func(ctx context.Context) error {
		if _, err := askRedis(ctx, m.door(), "SENTINEL", "CKQUORUM", cluster.MasterName); err != nil {
			return err
		}
		err := linked(ctx, m, "SENTINELS", "sentinel", len(sentinels)-1)
		return errors.Join(err, linked(ctx, m, "REPLICAS", "slave", len(servers)-1))
	})
}

// inRole asks a redis-server whether it is a master or a replica in step.
func inRole(ctx context.Context, addr string) error {
	v, err := askRedis(ctx, addr, "INFO", "replication")
	if err != nil {
		return err
	}
	f := infoFields(v)
	if f["role"] == "slave" && f["master_link_status"] != "up" {
		return fmt.Errorf("%s has lost its master", addr)
	}
	return nil
}

// linked counts the instances of a kind that a sentinel is connected to and
// finds nothing wrong with.
func linked(ctx context.Context, m *member, list, flags string, want int) error {
	v, err := askRedis(ctx, m.door(), "SENTINEL", list, cluster.MasterName)
	if err != nil {
		return err
	}
	items, _ := v.([]any)
	n := 0
	for _, it := range items {
		if fields(it)["flags"] == flags {
			n++
		}
	}
	if n < want {
		return fmt.Errorf("%s is connected to %d of %d %s", m.name, n, want, list)
	}
	return nil
}

// leader is the master that the sentinel with the newest configuration names.
func (d *sentinelDriver) leader(ctx context.Context, all []*member) (string, error) {
	servers, sentinels := d.split(all)
	type view struct {
		addr  string
		epoch int
	}
	views := make([]view, len(sentinels))
	errs := make([]error, len(sentinels))
	_ = each(sentinels, func(m *member) error {
		i := indexOf(sentinels, m)
		v, err := askRedis(ctx, m.door(), "SENTINEL", "MASTER", cluster.MasterName)
		if err != nil {
			errs[i] = err
			return nil
		}
		f := fields(v)
		epoch, err := strconv.Atoi(f["config-epoch"])
		views[i], errs[i] = view{net.JoinHostPort(f["ip"], f["port"]), epoch}, err
		return nil
	})
	var best view
	for _, v := range views {
		if v.addr != "" && (best.addr == "" || v.epoch > best.epoch) {
			best = v
		}
	}
	for _, m := range servers {
		if m.addr(0) == best.addr {
			return m.name, nil
		}
	}
	return "", fmt.Errorf("%w: no sentinel names one: %w", ErrNoLeader, errors.Join(errs...))
}

// handOver asks one sentinel after the other to promote a replica, as if the
// master could not be reached.
func (d *sentinelDriver) handOver(ctx context.Context, all []*member) error {
	_, sentinels := d.split(all)
	var errs []error
	for _, s := range sentinels {
		_, err := askRedis(ctx, s.door(), "SENTINEL", "FAILOVER", cluster.MasterName)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
	}
	return errors.Join(errs...)
}

func (d *sentinelDriver) versions(ctx context.Context, all []*member) (map[string]string, error) {
	return d.redis.versions(ctx, all)
}

func (d *sentinelDriver) told(ctx context.Context, m *member) (time.Time, time.Duration, error) {
	return d.redis.told(ctx, m)
}
