package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// ZooKeeper listens for clients, for its leader and for elections.
var zookeeperRole = role{server: "zookeeper", ports: []int{2181, 2888, 3888}}

const (
	zookeeperNodes = 3
	// tickTime bounds sessions from below (2 ticks) and, unless told otherwise,
	// from above (20 ticks).
	tickTime          = 200 * time.Millisecond
	defaultSessionMax = time.Minute
)

// A zookeeperDriver runs an ensemble of three.
type zookeeperDriver struct {
	java       string
	classPath  string
	sessionMax time.Duration
}

func (d *zookeeperDriver) roles() []named { return numbered("n", zookeeperNodes, zookeeperRole) }

// javaOptions make a small server start soon: a compiler and a collector that
// need no warming up.
var javaOptions = []string{
	"-Xmx96m", "-Xshare:auto",
	"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
	"-Djava.net.preferIPv4Stack=true",
	"-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.admin.enableServer=false",
	"-Dorg.slf4j.simpleLogger.showDateTime=true",
	"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
}

// jmx off and a main class of one server of an ensemble.
const zookeeperMain = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

func (d *zookeeperDriver) command(m *member, all []*member) (*exec.Cmd, error) {
	max := d.sessionMax
	if max <= 0 {
		max = defaultSessionMax
	}
	conf := []string{
		fmt.Sprintf("tickTime=%d", tickTime.Milliseconds()),
		"initLimit=50", // ticks: 10 s to connect and synchronise
		"syncLimit=10", // ticks: 2 s without news from the leader
		fmt.Sprintf("maxSessionTimeout=%d", max.Milliseconds()),
		"dataDir=" + m.dataDir(),
		fmt.Sprintf("clientPort=%d", m.ports[0]),
		"clientPortAddress=" + m.host.addr(),
		"maxClientCnxns=0",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
	}
	for i, o := range all {
		conf = append(conf, fmt.Sprintf("server.%d=%s:%d:%d", i+1, o.host.addr(), o.ports[1], o.ports[2]))
	}
	file, err := writeConfig(m, "zoo.cfg", conf)
	if err != nil {
		return nil, err
	}
	// Part of the data, so it goes and comes back with it.
	id := strconv.Itoa(indexOf(all, m)+1) + "\n"
	if err := os.WriteFile(filepath.Join(m.dataDir(), "myid"), []byte(id), 0o600); err != nil {
		return nil, fmt.Errorf("write id of %s: %w", m.name, err)
	}
	args := append([]string{}, javaOptions...)
	args = append(args, "-cp", d.withLogger(), zookeeperMain, file)
	return exec.Command(d.java, args...), nil
}

// withLogger adds a logger that writes to standard error where there is one:
// ZooKeeper's own package brings none, and its log would stay empty.
func (d *zookeeperDriver) withLogger() string {
	simple := filepath.Join(filepath.Dir(d.classPath), "slf4j-simple.jar")
	if _, err := os.Stat(simple); err != nil {
		return d.classPath
	}
	return d.classPath + string(os.PathListSeparator) + simple
}

func (d *zookeeperDriver) ready(ctx context.Context, all []*member) error {
	if err := each(all, func(m *member) error { return d.rejoined(ctx, m, all) }); err != nil {
		return err
	}
	return poll(ctx, "create a node", func(ctx context.Context) error { return createNode(ctx, clientAddrs(all...)) })
}

// createNode makes an ephemeral node and gives it back by closing the session.
func createNode(ctx context.Context, addrs []string) error {
	c, _, err := zk.Connect(addrs, 2*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, c.Close)() // the library takes no context
	_, err = c.Create("/lockcheck-ready", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// rejoined waits for a mode: the port accepts connections before there is a
// quorum, and a client that comes too early waits a whole second.
func (d *zookeeperDriver) rejoined(ctx context.Context, m *member, _ []*member) error {
	return poll(ctx, "wait for "+m.name+" to have a mode", func(ctx context.Context) error {
		f, err := srvr(ctx, m)
		if err == nil && f["Mode"] == "" {
			err = fmt.Errorf("%s serves no requests yet", m.name)
		}
		return err
	})
}

// srvr returns the "name: value" lines of ZooKeeper's srvr command.
func srvr(ctx context.Context, m *member) (map[string]string, error) {
	return fourLetters(ctx, m, "srvr", ": ")
}

func fourLetters(ctx context.Context, m *member, word, separator string) (map[string]string, error) {
	conn, err := dial(ctx, m.door())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, word); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(conn, respLimit))
	if err != nil {
		return nil, err
	}
	f := make(map[string]string)
	for l := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(l), separator); ok {
			f[k] = v
		}
	}
	return f, nil
}

// leader is the member that says so. A leader that was cut off may still say it
// for a while, so the one with the newest transaction counts.
func (d *zookeeperDriver) leader(ctx context.Context, all []*member) (string, error) {
	zxids := make([]uint64, len(all))
	errs := make([]error, len(all))
	_ = each(all, func(m *member) error {
		i := indexOf(all, m)
		f, err := srvr(ctx, m)
		if err == nil && f["Mode"] == "leader" {
			zxids[i], err = strconv.ParseUint(f["Zxid"], 0, 64)
		}
		errs[i] = err
		return nil
	})
	best := -1
	for i, z := range zxids {
		if z > 0 && (best < 0 || z > zxids[best]) {
			best = i
		}
	}
	if best < 0 {
		return "", fmt.Errorf("%w: no server says that it leads: %w", ErrNoLeader, errors.Join(errs...))
	}
	return all[best].name, nil
}

func (d *zookeeperDriver) versions(ctx context.Context, all []*member) (map[string]string, error) {
	env, err := fourLetters(ctx, all[0], "envi", "=")
	if err != nil {
		return nil, err
	}
	// As in "3.8.0-<commit>, built on <date>".
	version, _, _ := strings.Cut(env["zookeeper.version"], "-")
	return map[string]string{"zookeeper": version, "java": env["java.version"]}, nil
}
