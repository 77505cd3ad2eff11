package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// redlockNodes is how many independent servers there are: the article's five.
const redlockNodes = 5

var redisRole = role{server: redisServer, ports: []int{6379}}

// readyKey is set and deleted by the first operation.
const readyKey = "lockcheck:ready"

// A redisDriver runs independent redis-servers: one for "redis", five for
// "redlock".
type redisDriver struct {
	path  string
	nodes int
	aof   bool
}

func (d *redisDriver) roles() []named { return numbered("n", d.nodes, redisRole) }

func (d *redisDriver) command(m *member, _ []*member) (*exec.Cmd, error) {
	conf, err := d.config(m)
	if err != nil {
		return nil, err
	}
	return exec.Command(d.path, conf), nil
}

// config writes m's configuration unless it is there already: what a Sentinel
// has rewritten in it must survive a restart.
func (d *redisDriver) config(m *member, more ...string) (file string, err error) {
	appendOnly := "no"
	if d.aof {
		appendOnly = "yes"
	}
	ip := m.host.addr()
	return writeConfig(m, "redis.conf", append([]string{
		fmt.Sprintf("port %d", m.ports[0]),
		"bind " + ip,
		"protected-mode no",
		"dir " + quote(m.dataDir()),
		`save ""`,
		"appendonly " + appendOnly,
		// A full synchronisation waits 5 s for more replicas otherwise.
		"repl-diskless-sync yes",
		"repl-diskless-sync-delay 0",
		// Sentinels tell these to clients, so they must not be guessed.
		"replica-announce-ip " + ip,
		fmt.Sprintf("replica-announce-port %d", m.ports[0]),
	}, more...))
}

// quote makes a path one word of a redis configuration.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// writeConfig writes a file into m's directory if there is none, and makes sure
// that the data directory exists.
func writeConfig(m *member, name string, conf []string) (file string, err error) {
	if err := os.MkdirAll(m.dataDir(), 0o700); err != nil {
		return "", fmt.Errorf("create data directory of %s: %w", m.name, err)
	}
	file = filepath.Join(m.dir, name)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := os.WriteFile(file, []byte(lines(conf...)), 0o600); err != nil {
		return "", fmt.Errorf("write configuration of %s: %w", m.name, err)
	}
	return file, nil
}

func (d *redisDriver) ready(ctx context.Context, all []*member) error {
	return each(all, func(m *member) error { return setNX(ctx, m) })
}

// setNX does what a lock's acquire and release do, until it succeeds.
func setNX(ctx context.Context, m *member) error {
	return poll(ctx, "set a key on "+m.name, func(ctx context.Context) error {
		_, err := askRedis(ctx, m.door(), "SET", readyKey, m.name, "NX", "PX", "1000")
		if err != nil && !errors.Is(err, errNil) {
			return err
		}
		_, err = askRedis(ctx, m.door(), "DEL", readyKey)
		return err
	})
}

func (d *redisDriver) rejoined(ctx context.Context, m *member, _ []*member) error {
	return setNX(ctx, m)
}

func (d *redisDriver) leader(ctx context.Context, all []*member) (string, error) {
	if len(all) > 1 {
		return "", ErrNoLeader
	}
	if _, err := askRedis(ctx, all[0].door(), "PING"); err != nil {
		return "", err
	}
	return all[0].name, nil
}

func (d *redisDriver) versions(ctx context.Context, all []*member) (map[string]string, error) {
	v, err := askRedis(ctx, all[0].door(), "INFO", "server")
	if err != nil {
		return nil, err
	}
	return map[string]string{"redis_version": infoFields(v)["redis_version"]}, nil
}

// told asks for the time, which comes as seconds and microseconds.
func (d *redisDriver) told(ctx context.Context, m *member) (time.Time, time.Duration, error) {
	v, err := askRedis(ctx, m.addr(0), "TIME")
	if err != nil {
		return time.Time{}, 0, err
	}
	parts, _ := v.([]any)
	if len(parts) != 2 {
		return time.Time{}, 0, fmt.Errorf("TIME answers %v", v)
	}
	var n [2]int64
	for i := range n {
		s, _ := parts[i].(string)
		if n[i], err = strconv.ParseInt(s, 10, 64); err != nil {
			return time.Time{}, 0, fmt.Errorf("TIME answers %v: %w", v, err)
		}
	}
	return time.Unix(n[0], n[1]*1000), time.Microsecond, nil
}
