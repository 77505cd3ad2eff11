package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/generator"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/runner"
)

// A loop is what a bare loop is told.
type loop struct {
	Worker int
	Addr   string
	Store  string
	Keys   string
	Lasts  time.Duration
}

const (
	benchWorkers = 5
	benchLasts   = 3 * time.Second
)

func benchWorkload(keys string) (generator.Config, error) {
	k, err := generator.ParseKeys(keys)
	return generator.Config{Workers: benchWorkers, Keys: k, TTL: time.Second, RetryDelay: time.Millisecond, Wait: time.Second, Writes: 1, Check: true}, err
}

// bareLoop does what a worker does, with go-redis alone: no runner, no pipe, no
// history. It prints how many sections it came through.
func bareLoop() {
	var l loop
	if err := json.NewDecoder(os.Stdin).Decode(&l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(255)
	}
	cfg, err := benchWorkload(l.Keys)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(255)
	}
	ctx := context.Background()
	rc := redis.NewClient(&redis.Options{Addr: l.Addr, PoolSize: 1, MaxRetries: -1})
	store := wire.NewStoreClient(l.Store)
	release := redis.NewScript(`if redis.call("GET",KEYS[1])==ARGV[1] then return redis.call("DEL",KEYS[1]) end return 0`)
	g := generator.New(1, l.Worker, cfg)
	owner := fmt.Sprint("owner-", l.Worker)
	out := generator.Outcome{}
	n := 0
	for end := time.Now().Add(l.Lasts); time.Now().Before(end); {
		a := g.Next(out)
		time.Sleep(a.After)
		out = generator.Outcome{Type: history.OK}
		var err error
		switch a.F {
		case history.Acquire:
			var ok bool
			if ok, err = rc.SetNX(ctx, a.Key, owner, time.Second).Result(); err == nil && !ok {
				out = generator.Outcome{Type: history.Fail, Error: history.ErrHeld}
			}
		case history.Check:
			err = rc.Get(ctx, a.Key).Err()
		case history.Read, history.Write:
			m := store.Do(ctx, wire.Command{Op: a.F, Key: a.Key, Grant: 1, Value: &a.Value})
			if m.Value != nil {
				out.Value = *m.Value
			}
		case history.Release:
			err = release.Run(ctx, rc, []string{a.Key}, owner).Err()
			n++
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, a.F, err)
			os.Exit(255)
		}
	}
	fmt.Println(n)
}

func benchCluster(b *testing.B, proxied bool) *local.Cluster {
	b.Helper()
	c, err := local.Lab(b.Context(), cluster.Spec{Backend: cluster.Redis, Workers: benchWorkers, Dir: b.TempDir(), Proxy: proxied})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// serveStore serves a store whose entries go to record.
func serveStore(b *testing.B, c *local.Cluster, record func(fencedstore.Entry)) {
	b.Helper()
	ln, err := c.ListenStore()
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: fencedstore.New(fencedstore.None, record)}
	go srv.Serve(ln)
	b.Cleanup(func() { srv.Close() })
}

func bare(b *testing.B, keys string, proxied bool) float64 {
	c := benchCluster(b, proxied)
	serveStore(b, c, func(fencedstore.Entry) {})
	var outs [benchWorkers]bytes.Buffer
	var cmds []*exec.Cmd
	for i := range benchWorkers {
		cmd := exec.Command("/proc/self/exe", "bareloop")
		in, err := json.Marshal(loop{i, c.Endpoints(i)[0], c.StoreURL(i), keys, benchLasts})
		if err != nil {
			b.Fatal(err)
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &outs[i], os.Stderr
		if err := c.StartWorker(i, cmd); err != nil {
			b.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	total := 0
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		var n int
		if _, err := fmt.Sscan(outs[i].String(), &n); err != nil {
			b.Fatal(err)
		}
		total += n
	}
	return float64(total) / benchLasts.Seconds()
}

func commanded(b *testing.B, keys string, proxied bool) float64 {
	c := benchCluster(b, proxied)
	m := testMachine()
	judge := newLiveJudge(history.Header{}, nil)
	rec, err := history.NewRecorder(io.Discard, history.Header{}, time.Now(), judge.add)
	if err != nil {
		b.Fatal(err)
	}
	r := runner.New(runner.Config{
		Place: c, Workers: benchWorkers, OpTimeout: 5 * time.Second, Recorder: rec, Log: m.Log,
		Setup:   wire.Setup{Backend: cluster.Redis, Client: "redis/set-nx", TTL: time.Second.Nanoseconds()},
		Command: func(int) *exec.Cmd { return m.Worker(nil) },
	})
	serveStore(b, c, r.RecordStore)
	if err := r.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	cfg, err := benchWorkload(keys)
	if err != nil {
		b.Fatal(err)
	}
	r.Workload(b.Context(), 1, cfg, benchLasts)
	r.Close()
	if err := rec.Close(); err != nil {
		b.Fatal(err)
	}
	res, err := judge.finish(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return float64(res.Exposure.ReleasesOK) / benchLasts.Seconds()
}

// BenchmarkCycles measures what the runner costs: sections a second of five
// workers, commanded over their pipes, recorded and judged, beside a bare
// go-redis loop in the same places with the same requests, in one run.
func BenchmarkCycles(b *testing.B) {
	for _, proxied := range []bool{false, true} {
		for _, keys := range []string{"1", "5"} {
			link := map[bool]string{false: "bridge", true: "toxiproxy"}[proxied]
			b.Run(link+"/keys="+keys, func(b *testing.B) {
				var base, ours float64
				n := 0
				for b.Loop() {
					base += bare(b, keys, proxied)
					ours += commanded(b, keys, proxied)
					n++
				}
				b.ReportMetric(base/float64(n), "bare/s")
				b.ReportMetric(ours/float64(n), "commanded/s")
				b.ReportMetric(ours/base, "ratio")
			})
		}
	}
}
