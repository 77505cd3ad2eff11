package experiment

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
)

// aimSeeds is how many runs stand behind each median.
const aimSeeds = 5

// aimed runs until the first violation and gives when the last event of its
// first anomaly was, or the whole duration if nothing was found.
func aimed(b *testing.B, o Options, target string, seed uint64) (after time.Duration, found bool) {
	b.Helper()
	o.Target, o.Seed, o.Out = target, seed, b.TempDir()
	o.Stop, o.Duration, o.Workers, o.Store = true, time.Minute, 8, fencedstore.None
	res, err := Run(b.Context(), o, testMachine())
	if err != nil {
		b.Fatal(err)
	}
	at := -1
	for name, p := range res.Properties {
		for _, a := range p.Anomalies {
			if last := int(slices.Max(a.Ops)); slices.Contains(res.Required, name) && (at < 0 || last < at) {
				at = last
			}
		}
	}
	if at < 0 {
		return o.Duration, false
	}
	f, err := os.Open(filepath.Join(res.Dir, "history.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	r, err := history.Open(f, f.Name())
	if err != nil {
		b.Fatal(err)
	}
	for {
		var op history.Op
		if err := r.Read(&op); err != nil {
			b.Fatalf("event %d: %v", at, err)
		}
		if op.Index == at {
			return time.Duration(op.Time), true
		}
	}
}

// BenchmarkTarget measures what aiming at the holder is worth: the median time
// from the start of a run to its first violation, with --target holder and with
// --target random, the same seeds, in one run.
func BenchmarkTarget(b *testing.B) {
	for _, c := range []struct{ backend, client, fault string }{
		{"redis", "redis/set-nx", "pause"},
		{"etcd", "etcd/lease", "pause"},
		{"redis", "redis/set-nx", "late"},
	} {
		b.Run(fmt.Sprintf("%s/%s", c.backend, c.fault), func(b *testing.B) {
			o := Defaults()
			o.Backend, o.Client, o.Nemesis = c.backend, c.client, []string{c.fault}
			if err := o.Settle(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				medians := map[string]float64{}
				for _, target := range []string{nemesis.Holder, nemesis.Random} {
					var all []time.Duration
					missed := 0
					for seed := range uint64(aimSeeds) {
						after, found := aimed(b, o, target, seed+1)
						if !found {
							missed++
						}
						all = append(all, after)
					}
					slices.SortFunc(all, cmp.Compare)
					medians[target] = all[len(all)/2].Seconds()
					b.ReportMetric(medians[target], "s-"+target)
					b.ReportMetric(float64(missed), "missed-"+target)
				}
				b.ReportMetric(medians[nemesis.Random]/medians[nemesis.Holder], "ratio")
			}
		})
	}
}
