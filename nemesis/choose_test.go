package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// A lab is a System made of tables, for what needs no process.
type lab struct {
	workers []Target
	up      map[string]bool
	leader  string
}

func (l *lab) Workers() []Target { return l.workers }

func (l *lab) Pid(node string) (int, error) {
	if !l.up[node] {
		return 0, errors.New("down")
	}
	return os.Getpid(), nil
}

func (l *lab) Leader(context.Context) (string, error) {
	if l.leader == "" {
		return "", errors.New("nobody leads")
	}
	return l.leader, nil
}

func (l *lab) Kill(node string) error { l.up[node] = false; return nil }

func (l *lab) Restart(_ context.Context, _ bool, nodes ...string) error {
	for _, n := range nodes {
		l.up[n] = true
	}
	return nil
}

func (l *lab) DataID(node string) (string, error) { return "data of " + node, nil }
func (l *lab) HandOver(context.Context) error     { return nil }

var sentinelSetting = Setting{
	Backend: "redis-sentinel", Workers: 3, Leads: true, Elects: true, HandsOver: true, Talk: true, Namespaces: true, Bypass: true,
	Nodes: []string{"n1", "n2", "n3", "s1", "s2", "s3"}, Data: []string{"n1", "n2", "n3"},
}

func sentinelLab() (*lab, System) {
	l := &lab{
		workers: []Target{{Worker: 0}, {Worker: 1, Grants: []uint64{7}}, {Worker: 2, Grants: []uint64{8}}},
		up:      map[string]bool{"n1": true, "n2": true, "n3": true, "s1": true, "s2": true, "s3": true}, leader: "n2",
	}
	return l, System{Setting: sentinelSetting, Workers: l, Servers: l}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		fault, target string
		pick          uint64
		down          string
		want          string // "" for nobody
	}{
		{"pause", Holder, 0, "", "[worker 1]"},
		{"pause", Holder, 5, "", "[worker 2]"},
		{"pause", Random, 3, "", "[worker 0]"},
		{"pause", All, 1, "", "[worker 0 worker 1 worker 2]"},
		{"pause", Majority, 2, "", "[worker 0 worker 2]"},
		{"pause", Minority, 1, "", "[worker 1]"},
		{"client-cut", "w2", 0, "", "[worker 2]"},
		{"pause", "w7", 0, "", ""},
		{"server-pause", Leader, 0, "", "[n2]"},
		{"server-pause", Random, 2, "", "[n3]"},
		{"server-pause", Random, 2, "n3", "[n1]"},
		{"server-pause", Majority, 1, "", "[n2 n3]"},
		{"server-pause", Majority, 1, "n2", "[n1 n3]"},
		{"server-pause", Minority, 0, "", "[n1]"},
		{"server-pause", All, 0, "", "[n1 n2 n3]"},
		{"server-kill", "s2", 0, "", "[s2]"},
		{"clock-jump", Leader, 0, "", "[n2]"},
		{"clock-jump", "s2", 0, "", "[s2]"},
		{"clock-jump:worker", Holder, 0, "", "[worker 1]"},
		{"clock-strobe:worker", "w2", 0, "", "[worker 2]"},
		{"server-kill", "s2", 0, "s2", ""},
		{"partition", All, 0, "", "[n1 n2 n3 s1 s2 s3]"},
		{"partition", "n1", 0, "n1", "[n1]"},
	} {
		t.Run(fmt.Sprint(c.fault, c.target, c.pick, c.down), func(t *testing.T) {
			l, sys := sentinelLab()
			l.up[c.down] = false
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			fault, form, _ := strings.Cut(c.fault, ":")
			ts, err := Choose(ctx, sys, Step{Fault: fault, Form: form, Target: c.target, Pick: c.pick})
			if c.want == "" {
				if !errors.Is(err, ErrNoTarget) {
					t.Error(ts, err)
				}
				return
			}
			if got := fmt.Sprint(ts); got != c.want || err != nil {
				t.Errorf("%s, want %s (%v)", got, c.want, err)
			}
		})
	}
}

// A leader is waited for, and so is a holder.
func TestChooseWaits(t *testing.T) {
	l, sys := sentinelLab()
	l.leader = ""
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Choose(ctx, sys, Step{Fault: "failover", Target: Leader}); !errors.Is(err, ErrNoTarget) {
		t.Error(err)
	}
}

// What cannot work is refused, and the message says why.
func TestRefuse(t *testing.T) {
	redis := Setting{Backend: "redis", Workers: 2, Leads: true, Nodes: []string{"n1"}, Data: []string{"n1"}, Namespaces: true}
	redlock := Setting{Backend: "redlock", Workers: 2, Nodes: []string{"n1", "n2", "n3", "n4", "n5"}, Namespaces: true}
	redlock.Data = redlock.Nodes
	loop := sentinelSetting
	loop.Namespaces = false
	zk := Setting{Backend: "zookeeper", Workers: 2, Leads: true, Elects: true, Talk: true, Durable: true, Namespaces: true, Nodes: []string{"n1", "n2", "n3"}}
	zk.Data = zk.Nodes
	etcd, fixed := zk, zk
	etcd.Backend = "etcd"
	fixed.Clocks = func() error { return errors.New("no ptrace") }
	for _, c := range []struct {
		set           Setting
		fault, target string
		want          string // "" for possible
	}{
		{redis, "partition", Holder, "partition cannot work on redis: its servers do not talk to one another"},
		{redlock, "partition:ring", "", "partition cannot work on redlock"},
		{loop, "partition", "", "partition needs the lab's namespaces"},
		{loop, "failover", "", ""},
		{loop, "late", "", "go past the proxies"},
		{sentinelSetting, "partition", "n1", ""},
		{redis, "failover", "", "failover cannot work on redis: no server takes another's place"},
		{redlock, "failover:kill", "", "failover cannot work on redlock"},
		{zk, "failover:handover", "", "its leader cannot be asked to step down"},
		{zk, "failover", Holder, ""},
		{redlock, "server-pause", Holder, ""},
		{redlock, "server-pause", Leader, "redlock has none"},
		{redis, "server-kill:keep", "", "use --persistence aof"},
		{redis, "server-kill", "", ""},
		{zk, "server-kill:keep", "", ""},
		{redis, "server-pause", Minority, "there are 1 servers"},
		{redis, "pause", Minority, "there are 2 workers"},
		{redis, "pause", "w2", "there is no worker w2: they are w0 to w1"},
		{redis, "pause", "n1", "pause acts on workers: it cannot be aimed at n1"},
		{redis, "server-pause", "w1", "server-pause acts on servers"},
		{redis, "pause", "moon", `target "moon" of pause is none of`},
		{redis, "meteor", "", `fault "meteor" is not known`},
		{redis, "clock-jump", Holder, ""},
		{redis, "clock-jump", "w1", "clock-jump acts on servers: it cannot be aimed at w1 (use clock-jump:worker)"},
		{redis, "clock-jump:worker", "w1", ""},
		{redis, "clock-jump:worker", "n1", "clock-jump acts on workers: it cannot be aimed at n1"},
		{redis, "clock-strobe:monotonic", "", `no form "monotonic"; there are server, worker`},
		{redis, "clock-drift:monotonic", "", "use clock-drift:server"},
		{zk, "clock-jump:monotonic", "", "hand monotonic deadlines to the kernel"},
		{etcd, "clock-jump:monotonic", "", ""},
		{fixed, "clock-jump", "", "clock-jump cannot work here: no ptrace"},
		{redis, "partition:star", "", `no form "star"; there are one, leader`},
		{redis, "pause:long", "", "has no forms"},
	} {
		err := Refuse(c.set, c.fault, c.target)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %s at %q: %v, want %q", c.fault, c.set.Backend, c.target, err, c.want)
		}
	}
}

// Every kind of fault can be had somewhere, says what it does, and its own
// choice of a target is one that it can take.
func TestCatalogue(t *testing.T) {
	set := sentinelSetting
	set.Durable = true
	var names []string
	for _, e := range Faults() {
		if err := Refuse(set, e.Name, ""); err != nil || e.About == "" || e.New == nil || slices.Contains(names, e.Name) {
			t.Errorf("%s: %v", e.Name, err)
		}
		for _, f := range e.Forms {
			if err := Refuse(set, e.Name+":"+f, ""); err != nil {
				t.Error(err)
			}
		}
		names = append(names, e.Name)
	}
	if !Any(OnLinks, []string{"pause", "late"}, nil) || Any(OnLinks, []string{"pause", "partition:ring"}, nil) || !Any(OnLinks, nil, []Step{{Fault: "down"}}) {
		t.Error("which faults need the proxies")
	}
}
