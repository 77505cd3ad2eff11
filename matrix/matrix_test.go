package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/report"
)

func spec(t testing.TB, faults ...string) Spec {
	t.Helper()
	o := experiment.Defaults()
	o.Network = local.NetworkLab
	s := Spec{Backends: cluster.Backends, Clients: []string{DefaultClient}, Faults: faults, Stores: []string{"none", "monotonic"}, Repeat: 2, Seed: 5, Options: o}
	if err := s.Settle(); err != nil {
		t.Fatal(err)
	}
	return s
}

// player answers as a run would: what a cell comes to follows from its options.
func player(bad func(o experiment.Options) (property string, a checker.Anomaly)) Player {
	var n atomic.Int64
	return func(_ context.Context, o experiment.Options) (experiment.Result, error) {
		res := experiment.Result{Results: checker.Results{Properties: map[string]*checker.Result{}}, Dir: filepath.Join(o.Out, "runs", fmt.Sprint(n.Add(1)))}
		for _, p := range checker.Properties {
			res.Properties[p] = &checker.Result{Verdict: checker.Valid, Checked: 10}
		}
		res.Exposure.AcquiresOK = 100 + int(o.Seed)
		if bad != nil {
			if p, a := bad(o); p != "" {
				res.Properties[p] = &checker.Result{Verdict: checker.Invalid, AnomalyCount: 3, Anomalies: []checker.Anomaly{a}}
			}
		}
		res.Require(checker.DefaultRequired)
		if err := os.MkdirAll(res.Dir, 0o755); err != nil {
			return res, err
		}
		if err := os.WriteFile(filepath.Join(res.Dir, "history.jsonl"), []byte("{\"lockcheck\":1}\n{\"index\":4,\"time\":1,\"process\":\"nemesis\",\"type\":\"info\",\"f\":\"pause\",\"value\":{}}\n"), 0o644); err != nil {
			return res, err
		}
		return res, os.WriteFile(filepath.Join(res.Dir, "results.json"), []byte(`{"availability":{"available":0.75}}`), 0o644)
	}
}

func here(string) error { return nil }

// carryOut plays a matrix into a folder of the test.
func carryOut(t testing.TB, s Spec, sh Shard, bad func(o experiment.Options) (string, checker.Anomaly)) (*Result, string) {
	t.Helper()
	dir := t.TempDir()
	r := New(s, sh)
	if err := Play(t.Context(), r, Config{Dir: dir, Parallel: 3, Play: player(bad), Find: here, Trouble: func(err error) { t.Error(err) }}); err != nil {
		t.Fatal(err)
	}
	return r, dir
}

func stale(o experiment.Options) (string, checker.Anomaly) {
	if slices.Contains(o.Nemesis, "pause") && o.Store == "none" {
		return checker.Data, checker.Anomaly{Kind: "stale-write", Message: "process 1 wrote <b>41</b> | late", Faults: []int{4}}
	}
	return "", checker.Anomaly{}
}

// Every run belongs to exactly one shard, and every shard has some of each.
func TestShards(t *testing.T) {
	s := spec(t, NoFault, "pause", "partition")
	all := s.Places()
	for of := 1; of <= 7; of++ {
		n := 0
		for no := 1; no <= of; no++ {
			n += len(New(s, Shard{no, of}).Todo())
		}
		if n != len(all) {
			t.Errorf("%d shards have %d of %d runs", of, n, len(all))
		}
	}
	for _, bad := range []string{"0/3", "4/3", "3", "a/b", "1/0", "-1/2", "1/2/3"} {
		if _, err := ParseShard(bad); err == nil {
			t.Errorf("%q was taken for a shard", bad)
		}
	}
}

// Shards that are joined are, byte for byte, what one run would have written.
func TestMergeIsOneRun(t *testing.T) {
	s := spec(t, NoFault, "pause", "server-kill:lose")
	one, dir := carryOut(t, s, Shard{1, 1}, stale)
	whole, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	var parts []*Result
	var dirs []string
	for no := range 4 {
		part := New(s, Shard{no + 1, 4})
		for _, p := range part.Todo() {
			part.Add(p, *one.find(p))
		}
		to := t.TempDir()
		if err := part.Write(to); err != nil {
			t.Fatal(err)
		}
		for _, row := range part.Rows {
			for _, run := range row.Runs {
				if err := os.CopyFS(filepath.Join(to, run.Dir), os.DirFS(filepath.Join(dir, run.Dir))); err != nil {
					t.Fatal(err)
				}
			}
		}
		read, err := Read(to)
		if err != nil {
			t.Fatal(err)
		}
		if no > 0 { // whatever the order
			parts, dirs = append([]*Result{read}, parts...), append([]string{to}, dirs...)
		} else {
			parts, dirs = append(parts, read), append(dirs, to)
		}
	}
	merged, err := Merge(parts)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := merged.Collect(out, dirs); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(out, File))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, whole) {
		t.Errorf("merged:\n%s\none run:\n%s", got, whole)
	}
	for _, row := range merged.Rows {
		for _, run := range row.Runs {
			if _, err := os.Stat(filepath.Join(out, run.Dir, "history.jsonl")); err != nil {
				t.Error(err)
			}
		}
	}
	missing, err := Merge(parts[1:])
	if err != nil {
		t.Fatal(err)
	}
	if missing.Verdict == checker.Valid || len(missing.Todo()) == 0 {
		t.Error("a missing shard was not missed")
	}
}

func TestMergeRefuses(t *testing.T) {
	a, _ := carryOut(t, spec(t, "pause"), Shard{1, 1}, nil)
	other := spec(t, "pause")
	other.Seed++
	b, _ := carryOut(t, other, Shard{1, 1}, nil)
	if _, err := Merge([]*Result{a, b}); !errors.Is(err, ErrOther) {
		t.Errorf("matrices of two seeds were joined: %v", err)
	}
	c, _ := carryOut(t, spec(t, "pause"), Shard{1, 1}, nil)
	if _, err := Merge([]*Result{a, c}); err == nil {
		t.Log("the same runs came to the same folders, so they may be one")
	}
	c.Rows[0].Runs[0].Dir = "elsewhere"
	if _, err := Merge([]*Result{a, c}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a run that was carried out twice was joined: %v", err)
	}
	if _, err := Merge(nil); err == nil {
		t.Error("nothing was joined")
	}
}

// What is done is kept when a matrix is stopped, and the rest is done when it goes
// on; what was cut short is not kept.
func TestInterruptAndResume(t *testing.T) {
	s := spec(t, NoFault, "pause")
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	play := player(nil)
	var n atomic.Int64
	cfg := Config{Dir: dir, Parallel: 2, Find: here, Play: func(c context.Context, o experiment.Options) (experiment.Result, error) {
		if n.Add(1) == 5 {
			stop()
			return play(c, o)
		}
		return play(c, o)
	}}
	r := New(s, Shard{1, 1})
	all := len(r.Todo())
	if err := Play(ctx, r, cfg); err != nil {
		t.Fatal(err)
	}
	read, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	left := len(read.Todo())
	if left == 0 || left >= all || read.Verdict != checker.Unknown {
		t.Fatalf("%d of %d left, verdict %v", left, all, read.Verdict)
	}
	cfg.Play = func(c context.Context, o experiment.Options) (experiment.Result, error) { left--; return play(c, o) }
	cfg.Parallel = 1
	if err := Play(t.Context(), read, cfg); err != nil {
		t.Fatal(err)
	}
	if left != 0 || len(read.Todo()) != 0 || read.Verdict != checker.Valid {
		t.Errorf("%d left, %d to do, %v", left, len(read.Todo()), read.Verdict)
	}
}

// A backend that is missing is named and never passes; a run that failed is not a
// verdict.
func TestMissing(t *testing.T) {
	s := spec(t, NoFault)
	dir := t.TempDir()
	r := New(s, Shard{1, 1})
	play := player(nil)
	err := Play(t.Context(), r, Config{Dir: dir, Parallel: 2,
		Find: func(b string) error {
			if b == cluster.Etcd {
				return errors.New("no etcd here")
			}
			return nil
		},
		Play: func(ctx context.Context, o experiment.Options) (experiment.Result, error) {
			if o.Backend == cluster.Redlock {
				return experiment.Result{}, errors.New("it broke")
			}
			return play(ctx, o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var text, md, junit bytes.Buffer
	if err := errors.Join(r.Table(&text, false), r.Markdown(&md, ""), report.JUnit(&junit, r.Suites())); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]string{"table": text.String(), "markdown": md.String(), "junit": junit.String()} {
		if !strings.Contains(b, "no etcd here") || !strings.Contains(b, "it broke") {
			t.Errorf("%s says nothing of what is missing:\n%s", name, b)
		}
	}
	if r.Verdict != checker.Unknown || !r.Failed() {
		t.Errorf("%v, failed %v", r.Verdict, r.Failed())
	}
	if todo := r.Todo(); len(todo) != 8 { // both stores, two seeds, two backends
		t.Errorf("%d runs are to be tried again", len(todo))
	}
}

// What theory does not allow is told as a surprise; what it allows is not.
func TestSurprises(t *testing.T) {
	r, _ := carryOut(t, spec(t, "pause"), Shard{1, 1}, func(o experiment.Options) (string, checker.Anomaly) {
		switch o.Backend {
		case cluster.Redis:
			return stale(o)
		case cluster.Etcd:
			return checker.Exclusion, checker.Anomaly{Kind: "overlap", Class: "overrun"}
		case cluster.ZooKeeper:
			return checker.Exclusion, checker.Anomaly{Kind: "overlap", Class: "in-lease"}
		}
		return "", checker.Anomaly{}
	})
	for _, s := range r.Surprises() {
		if !strings.HasPrefix(s, "zookeeper") {
			t.Error(s)
		}
	}
	if n := len(r.Surprises()); n != 4 {
		t.Errorf("%d surprises", n)
	}
	row := r.Rows[0]
	if row.Violations != 6 || row.Grants != 211 || *row.Availability != 0.75 || row.Runs[0].Causes[0] != "pause" {
		t.Errorf("%+v", row)
	}
	var text bytes.Buffer
	if err := r.Table(&text, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"BAD 6 in 2/2", "SURPRISE", "75.0 %", "6 in 2/2 overrun"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, text.String())
		}
	}
}

// The page, the chart and the JUnit file are well-formed, whatever anomalies say.
func TestFiles(t *testing.T) {
	r, dir := carryOut(t, spec(t, "pause", NoFault), Shard{1, 1}, func(o experiment.Options) (string, checker.Anomaly) {
		p, a := stale(o)
		a.Message = "</title><script>alert(1)</script>\x00\xff ]]> `x` [a](b) @all"
		return p, a
	})
	for _, err := range r.WriteFiles(dir) {
		t.Error(err)
	}
	for _, name := range []string{ChartFile, JUnitFile} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(bytes.NewReader(b)); ; {
			if _, err := d.Token(); err != nil {
				if err.Error() != "EOF" {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, PageFile))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(page, []byte("<script")) {
		t.Error("a message became markup")
	}
	for _, run := range r.Rows[0].Runs {
		if !bytes.Contains(page, []byte(`href="./`+filepath.ToSlash(run.Dir)+`/results.json"`)) {
			t.Errorf("no link to %s", run.Dir)
		}
	}
	var md bytes.Buffer
	if err := r.Markdown(&md, ""); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(md.String(), "<script") || strings.Contains(md.String(), "@all") {
		t.Error("a message became markup or a mention")
	}
}

// The time left counts what runs as half done.
func TestProgress(t *testing.T) {
	s := spec(t, NoFault)
	var last Progress
	r := New(s, Shard{1, 1})
	play := player(nil)
	err := Play(t.Context(), r, Config{Dir: t.TempDir(), Parallel: 2, Find: here,
		Play: func(ctx context.Context, o experiment.Options) (experiment.Result, error) {
			time.Sleep(2 * time.Millisecond)
			return play(ctx, o)
		},
		Began: func(p Progress) {
			if p.Done < last.Done || len(p.Running) > 2 || p.Done > 2 && p.Done+len(p.Running) < p.All && p.Left <= 0 {
				t.Errorf("%+v after %+v", p, last)
			}
			last = p
		}})
	if err != nil {
		t.Fatal(err)
	}
	if last.Done != last.All || last.All != 20 || len(last.Running) != 0 {
		t.Errorf("%+v", last)
	}
}

func TestSpecRefuses(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"backend": func(s *Spec) { s.Backends = []string{"mysql"} }, "client": func(s *Spec) { s.Clients = []string{"x/y"} },
		"client elsewhere": func(s *Spec) { s.Backends, s.Clients = []string{"redis"}, []string{"etcd/lease"} },
		"fault":            func(s *Spec) { s.Faults = []string{"flood"} }, "form": func(s *Spec) { s.Faults = []string{"partition:star"} },
		"target": func(s *Spec) { s.Faults = []string{"pause@"} }, "scenario": func(s *Spec) { s.Faults = []string{"scenario:x"} },
		"store": func(s *Spec) { s.Stores = []string{"loose"} }, "repeat": func(s *Spec) { s.Repeat = 0 },
		"none": func(s *Spec) { s.Faults = nil }, "twice": func(s *Spec) { s.Stores = []string{"none", "none"} },
		"ttl": func(s *Spec) { s.Options.TTL = 1500 * time.Millisecond }, "duration": func(s *Spec) { s.Options.Duration = 0 },
	} {
		s := spec(t, "pause")
		change(&s)
		if err := s.Settle(); err == nil {
			t.Errorf("%s: nothing was refused", name)
		}
	}
	s := spec(t, "pause", "late")
	if s.Options.Proxy != "always" {
		t.Error("one cell needs toxiproxy, and not all have it")
	}
	b, err := json.Marshal(spec(t, "pause"))
	if err != nil || bytes.Contains(b, []byte(`"out"`)) {
		t.Errorf("%s %v", b, err)
	}
}

// A run that is unknown because something beside the lock went wrong must not look
// like one in which nothing was found.
func TestUndecidedRunsAreTold(t *testing.T) {
	row := Row{Runs: []Run{
		{Verdict: checker.Valid},
		{Verdict: checker.Unknown, Reasons: []string{"heal of server-kill (fault 1): restart n2: etcd on n2 ended during its start; its log ends:\n  fatal"}},
	}}
	want := "unknown as a whole, in 1 of 2 runs: heal of server-kill (fault 1): restart n2: etcd on n2 ended during its start"
	if got := row.why(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
