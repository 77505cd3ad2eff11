package report

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 7e6, time.FixedZone("", 3600))

func linked(t *testing.T, link string) string {
	t.Helper()
	target, err := os.Readlink(link)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.IsAbs(target) {
		t.Errorf("%s has an absolute target: a folder that is moved loses it", target)
	}
	return filepath.Join(filepath.Dir(link), target)
}

func TestCreate(t *testing.T) {
	out := filepath.Join(t.TempDir(), "deep", "store")
	a, err := Create(out, "redis-redsync-pause", noon)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(out, "redis-redsync-pause", "20261130T110000.007Z"); a.Path != want {
		t.Errorf("%s, want %s", a.Path, want)
	}
	b, err := Create(out, "redis-redsync-pause", noon)
	if err != nil || b.Path == a.Path {
		t.Fatal(b, err)
	}
	if got := linked(t, filepath.Join(out, currentLink)); got != b.Path {
		t.Errorf("current is %s", got)
	}
	if _, err := os.Lstat(filepath.Join(out, latestLink)); err == nil {
		t.Error("latest exists before a run has ended")
	}
	b.Finish()
	a.Finish()
	if got := linked(t, filepath.Join(out, latestLink)); got != a.Path {
		t.Errorf("latest is %s", got)
	}
	if len(a.Warnings)+len(b.Warnings) > 0 {
		t.Error(a.Warnings, b.Warnings)
	}
	entries, err := os.ReadDir(out)
	if err != nil || len(entries) != 3 {
		t.Errorf("%v %v", entries, err)
	}
}

func TestCreateNames(t *testing.T) {
	out := t.TempDir()
	for name, want := range map[string]string{
		"etcd-faulty/etcd-no-recheck-pause,kill": "etcd-faulty-etcd-no-recheck-pause,kill",
		"../../etc":                              "etc", "": "run", "..": "run", "latest": "latest-run", "a\x00b\n": "a-b-",
		strings.Repeat("ü", 300): "run", strings.Repeat("x", 300): strings.Repeat("x", 200),
	} {
		d, err := Create(out, name, noon)
		if err != nil {
			t.Fatal(err)
		}
		if got := filepath.Base(filepath.Dir(d.Path)); got != want || filepath.Dir(filepath.Dir(d.Path)) != out {
			t.Errorf("%q gives %s", name, d.Path)
		}
	}
}

func TestCreateConcurrently(t *testing.T) {
	out := t.TempDir()
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			d, err := Create(out, "n", noon)
			if err != nil {
				t.Error(err)
				return
			}
			d.Finish()
			mu.Lock()
			defer mu.Unlock()
			if seen[d.Path] || len(d.Warnings) > 0 {
				t.Errorf("%s twice, or %v", d.Path, d.Warnings)
			}
			seen[d.Path] = true
		})
	}
	wg.Wait()
	for _, l := range []string{currentLink, latestLink} {
		if !seen[linked(t, filepath.Join(out, l))] {
			t.Errorf("%s points to no run", l)
		}
	}
}

func TestCreateUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{file, filepath.Join(file, "below")} {
		_, err := Create(out, "n", noon)
		if err == nil || !strings.Contains(err.Error(), out) || !strings.Contains(err.Error(), "--out DIR") {
			t.Errorf("%v", err)
		}
	}
	out := t.TempDir()
	if err := os.WriteFile(filepath.Join(out, "n"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(out, "n", noon); err == nil {
		t.Error("a file in the place of a directory is no error")
	}
}

func TestLinkIsOnlyAWarning(t *testing.T) {
	out := t.TempDir()
	if err := os.MkdirAll(filepath.Join(out, currentLink, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := Create(out, "n", noon)
	if err != nil || len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], filepath.Join(out, currentLink)) {
		t.Fatal(d, err)
	}
	entries, _ := os.ReadDir(out)
	if len(entries) != 2 {
		t.Errorf("the temporary link is left: %v", entries)
	}
}

func TestWriteJSON(t *testing.T) {
	d, err := Create(t.TempDir(), "n", noon)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []map[string]any{{"a": "<&>"}, {"b": []int{1}}} {
		if err := d.WriteJSON("results.json", v); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(d.Path, "results.json"))
	if err != nil || string(b) != "{\n  \"b\": [\n    1\n  ]\n}\n" {
		t.Errorf("%q %v", b, err)
	}
	var back map[string]any
	if json.Unmarshal(b, &back) != nil {
		t.Error("not JSON")
	}
	if err := d.WriteJSON("results.json", func() {}); err == nil || !strings.Contains(err.Error(), "results.json") {
		t.Error(err)
	}
	if err := d.WriteJSON("nowhere/results.json", 1); err == nil || !strings.Contains(err.Error(), "nowhere/results.json") {
		t.Error(err)
	}
	onlyResults(t, d)
}

func onlyResults(t *testing.T, d *Dir) {
	t.Helper()
	entries, err := os.ReadDir(d.Path)
	if err != nil || len(entries) != 1 || entries[0].Name() != "results.json" {
		t.Errorf("%v %v", entries, err)
	}
}

// A disk that fills up half way leaves the file as it was.
func TestWriteJSONFullDisk(t *testing.T) {
	d, err := Create(t.TempDir(), "n", noon)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteJSON("results.json", 1); err != nil {
		t.Fatal(err)
	}
	err = WriteFile(filepath.Join(d.Path, "results.json"), func(w io.Writer) error {
		io.WriteString(w, "half")
		return syscall.ENOSPC
	})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "results.json") {
		t.Error(err)
	}
	onlyResults(t, d)
	if b, _ := os.ReadFile(filepath.Join(d.Path, "results.json")); string(b) != "1\n" {
		t.Errorf("%q", b)
	}
}
