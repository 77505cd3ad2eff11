package matrix

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/experiment"
)

// Recovery, hand-over, latency and fairness of the runs come together as those of
// the worst run, and are in the terminal's table, in Markdown and on the page.
func TestTimes(t *testing.T) {
	measured := map[uint64]string{
		5: `{"available":0.5,"longest_ms":1200,"acquire_ms":{"count":10,"p50":5,"p99":80,"max":900},
			"recovery_ms":{"pause":{"count":2,"p50":7,"p99":30,"max":30}},
			"hand_over_ms":{"count":1,"p50":1100,"p99":1100,"max":1100,"ttl":1000,"max_of_ttl":1.1},"fairness":0.9,"workers":5}`,
		6: `{"available":1,"longest_ms":0,"acquire_ms":{"count":10,"p50":6,"p99":70,"max":100},
			"recovery_ms":{"pause":{"count":1,"p50":3,"p99":3,"max":3,"never":1}},"fairness":0.8,"workers":5}`,
	}
	s := spec(t, "pause")
	r, dir := New(s, Shard{1, 1}), t.TempDir()
	inner := player(nil)
	play := func(ctx context.Context, o experiment.Options) (experiment.Result, error) {
		res, err := inner(ctx, o)
		if err == nil {
			err = os.WriteFile(filepath.Join(res.Dir, "results.json"), []byte(`{"availability":`+measured[o.Seed]+`}`), 0o644)
		}
		return res, err
	}
	if err := Play(t.Context(), r, Config{Dir: dir, Parallel: 3, Play: play, Find: here, Trouble: func(err error) { t.Error(err) }}); err != nil {
		t.Fatal(err)
	}
	var table, markdown, page bytes.Buffer
	if err := r.Table(&table, false); err != nil {
		t.Fatal(err)
	}
	if err := r.Markdown(&markdown, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.Page(&page, dir); err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"table": table.String(), "Markdown": markdown.String(), "page": page.String()} {
		for _, want := range []string{"75.0 %", "1.2 s", "7 ms, at most 30 ms; 1 x never", "1.1 s, at most 1.1 s, 1.10 x TTL", "6 ms", "80 ms", "900 ms", "0.80"} {
			if !strings.Contains(text, want) {
				t.Errorf("the %s has no %q", where, want)
			}
		}
	}
	if again, err := Read(dir); err != nil || again.Rows[0].Times.Longest != 1200 {
		t.Errorf("read again: %v", err)
	}
	if r.Rows[0].Runs[1].Times.Longest != 0 {
		t.Error("what the row came to was written into its run")
	}
}
