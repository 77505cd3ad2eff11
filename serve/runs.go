package serve

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Run is one line of the list.
type Run struct {
	Dir      string // from the store's folder
	Backend  string
	Client   string
	Store    string
	Faults   []string
	Verdict  string // "none" for a run without results
	Seed     uint64
	Grants   int
	First    string // the first anomaly, in a sentence
	Started  time.Time
	Report   string // file to open; "" for none
	Matrix   bool   // not a run but a matrix of many
	Duration time.Duration
}

// When it began, for people.
func (r Run) When() string {
	if r.Started.IsZero() {
		return ""
	}
	return r.Started.Local().Format("2006-01-02 15:04:05")
}

// Fault names what was broken.
func (r Run) Fault() string { return strings.Join(r.Faults, ", ") }

// A filter chooses runs.
type filter struct{ Backend, Fault, Verdict, Text string }

func filterOf(q url.Values) filter {
	return filter{q.Get("backend"), q.Get("fault"), q.Get("verdict"), q.Get("text")}
}

func (f *filter) takes(r *Run) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	text := strings.ToLower(strings.Join([]string{r.Dir, r.Client, r.Store, r.First}, "\n"))
	return is(f.Backend, r.Backend) && is(f.Verdict, r.Verdict) &&
		(f.Fault == "" || slices.Contains(r.Faults, f.Fault)) && strings.Contains(text, strings.ToLower(f.Text))
}

// index finds the runs of a store and keeps what it has read of them.
type index struct {
	root  *os.Root
	mu    sync.Mutex
	known map[string]known
}

// known is what was read of a run, and what its results were like then.
type known struct {
	size int64
	at   time.Time
	run  Run
}

// Limits of a store: so deep lie its runs, and so many are looked at.
const (
	maxDepth = 8
	maxRuns  = 20000
)

// list gives all runs, the youngest first. cut says that there are more.
func (x *index) list() (runs []Run, cut bool, err error) {
	err = fs.WalkDir(x.root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && p != ".":
			return fs.SkipDir // what cannot be read is no run of ours
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		case strings.Count(p, "/") >= maxDepth:
			return fs.SkipDir
		case len(runs) >= maxRuns:
			cut = true
			return fs.SkipAll
		}
		if p == "." || !x.isRun(p) {
			return nil
		}
		r := x.read(p)
		runs = append(runs, r)
		if r.Matrix {
			return nil // its runs are below it
		}
		return fs.SkipDir
	})
	slices.SortStableFunc(runs, func(a, b Run) int { return b.Started.Compare(a.Started) })
	return runs, cut, err
}

// isRun reports whether a folder holds a run, or a matrix.
func (x *index) isRun(dir string) bool {
	for _, name := range []string{"test.json", "results.json", "matrix.json"} {
		if info, err := x.root.Lstat(path.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// read gives the line of a run. What is broken in its files is left out.
func (x *index) read(dir string) Run {
	name := path.Join(dir, "results.json")
	if _, err := x.root.Lstat(name); err != nil {
		name = path.Join(dir, "matrix.json")
	}
	info, err := x.root.Lstat(name)
	if err != nil {
		return x.parse(dir)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if k, ok := x.known[dir]; ok && k.size == info.Size() && k.at.Equal(info.ModTime()) {
		return k.run
	}
	if x.known == nil {
		x.known = map[string]known{}
	}
	r := x.parse(dir)
	x.known[dir] = known{info.Size(), info.ModTime(), r}
	return r
}

func (x *index) parse(dir string) Run {
	r := Run{Dir: dir, Verdict: "none"}
	var params struct {
		Started time.Time
		Options struct {
			Backend, Client, Scenario, Store string
			Nemesis                          []string
			Seed                             uint64
		}
	}
	if x.json(path.Join(dir, "test.json"), &params) {
		o := params.Options
		r.Started, r.Backend, r.Client, r.Store, r.Seed, r.Faults = params.Started, o.Backend, o.Client, o.Store, o.Seed, o.Nemesis
		if o.Scenario != "" {
			r.Faults = []string{o.Scenario}
		}
	}
	var res struct {
		Backend, Client, Store, Verdict string
		Seed                            uint64
		Required                        []string
		Exposure                        struct {
			Acquires int `json:"acquires_ok"`
		}
		Properties map[string]struct {
			Anomalies []struct {
				Message string
				Time    int64
			}
		}
		Lasted time.Duration `json:"lasted_ns"`
	}
	if x.json(path.Join(dir, "results.json"), &res) {
		r.Verdict, r.Grants, r.Duration = res.Verdict, res.Exposure.Acquires, res.Lasted
		first := int64(-1)
		for _, p := range res.Required {
			if as := res.Properties[p].Anomalies; len(as) > 0 && (first < 0 || as[0].Time < first) {
				first, r.First = as[0].Time, as[0].Message
			}
		}
	}
	x.parseMatrix(dir, &r)
	if len(r.Faults) == 0 {
		r.Faults = []string{"none"}
	}
	r.Report = x.report(dir)
	return r
}

func (x *index) parseMatrix(dir string, r *Run) {
	var m struct {
		Verdict string
		Spec    struct {
			Faults []string
			Seed   uint64
		}
		Cells []struct{ Grants int }
	}
	if !x.json(path.Join(dir, "matrix.json"), &m) {
		return
	}
	r.Matrix, r.Verdict, r.Seed, r.Faults, r.Backend = true, m.Verdict, m.Spec.Seed, m.Spec.Faults, "matrix"
	for _, c := range m.Cells {
		r.Grants += c.Grants
	}
	if info, err := x.root.Lstat(path.Join(dir, "matrix.json")); err == nil {
		r.Started = info.ModTime()
	}
}

func (x *index) report(dir string) string {
	for _, name := range []string{"report.html", "matrix.html", "linear.html"} {
		if info, err := x.root.Lstat(path.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return path.Join(dir, name)
		}
	}
	return ""
}

// maxJSON bounds what is read of one file.
const maxJSON = 64 << 20

func (x *index) json(name string, v any) bool {
	f, err := x.root.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return json.NewDecoder(io.LimitReader(f, maxJSON)).Decode(v) == nil
}
