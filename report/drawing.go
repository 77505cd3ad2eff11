package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

// The files that Draw writes.
const (
	PageFile     = "report.html"
	TimelineFile = "timeline.svg"
	LatencyFile  = "latency.svg"
	RateFile     = "rate.svg"
	TextFile     = "history.txt"
)

// Draw writes what people look at into a run directory: report.html, the SVG
// files and history.txt, from its history.jsonl, results.json and test.json. A
// history without results is judged. Each error names the file that could not be
// drawn; the others are drawn all the same.
func Draw(ctx context.Context, dir string) []error {
	d := &drawing{dir: dir}
	if err := d.read(ctx); err != nil {
		return []error{err}
	}
	var errs []error
	for _, f := range []struct {
		name string
		fill func(io.Writer) error
	}{
		{TimelineFile, d.timeline}, {LatencyFile, d.latency}, {RateFile, d.rate}, {PageFile, d.page}, {TextFile, d.text},
	} {
		if err := d.write(f.name, f.fill); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// A drawing is what one pass over a history found out for all the files.
type drawing struct {
	dir     string
	res     *checker.Results
	about   about
	header  history.Header
	workers history.Process

	property string
	first    *checker.Anomaly
	wrong    map[int]string // events of anomalies, and what these are

	scan     *scan
	near     neighbourhood
	events   int
	last     int64
	acquires []acquired
	opened   map[history.Process]history.Op
	pic      *scene // chosen once
}

// about is what a run says of itself: test.json, and what results.json has
// beside the judgement.
type about struct {
	Options  map[string]any    `json:"options"`
	Version  string            `json:"version"`
	Started  string            `json:"started"`
	Network  string            `json:"network"`
	Versions map[string]string `json:"versions"`
	Machine  map[string]any    `json:"machine"`
}

func (a *about) option(name string) string {
	if v, ok := a.Options[name]; ok && v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

// acquired is one try for a lock.
type acquired struct {
	at, took int64
	proc     history.Process
	is       history.Type
}

// write draws one file. What goes wrong in a drawing costs that file alone.
func (d *drawing) write(name string, fill func(io.Writer) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("draw %s: %v\n%s", filepath.Join(d.dir, name), p, debug.Stack())
		}
	}()
	return WriteFile(filepath.Join(d.dir, name), fill)
}

// read makes the one pass.
func (d *drawing) read(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("draw the run %s: %v\n%s", d.dir, p, debug.Stack())
		}
	}()
	if err := readJSON(filepath.Join(d.dir, "test.json"), &d.about); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	d.res = &checker.Results{}
	if err := readJSON(filepath.Join(d.dir, "results.json"), d.res); errors.Is(err, os.ErrNotExist) {
		if err := d.judge(ctx); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	d.property, d.first = d.res.First()
	d.blame()
	return d.eachOp(d.start, d.add)
}

func readJSON(file string, v any) error {
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

// judge judges a history that nobody has judged: lockcheck was killed before it
// came to that.
func (d *drawing) judge(ctx context.Context) error {
	var j *checker.Judge
	err := d.eachOp(func(h history.Header) { j = checker.New(h) }, func(o *history.Op) error { j.Add(o); return nil })
	if err == nil {
		res := j.Finish(ctx)
		d.res = &res
	}
	return err
}

// eachOp reads the history from its beginning. What is handed over may be kept.
func (d *drawing) eachOp(start func(history.Header), add func(*history.Op) error) error {
	file := filepath.Join(d.dir, "history.jsonl")
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("draw the run: %w", err)
	}
	defer f.Close()
	rd := history.NewReader(f, file)
	in := history.InOrder(rd)
	begun := false
	for {
		var o history.Op
		err := in.Read(&o)
		if !begun {
			begun = true
			start(rd.Header)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = add(&o)
		}
		if err != nil {
			return err
		}
	}
}

// blame notes which events anomalies are about.
func (d *drawing) blame() {
	d.wrong = map[int]string{}
	for _, name := range append(slices.Clone(checker.Properties), slices.Sorted(maps.Keys(d.res.Properties))...) {
		p := d.res.Properties[name]
		if p == nil {
			continue
		}
		for i := range p.Anomalies {
			a := &p.Anomalies[i]
			for n, idx := range a.Ops {
				if n == len(a.Ops)-1 || d.wrong[idx] == "" {
					d.wrong[idx] = kindOf(a)
				}
			}
		}
	}
}

func (d *drawing) start(h history.Header) {
	d.header = h
	d.workers = history.Process(h.Workers())
	d.scan = newScan("", h.Reentrant)
	d.scan.all = true
	d.opened = map[history.Process]history.Op{}
	d.near.begin(d.first)
}

func (d *drawing) add(o *history.Op) error {
	d.events++
	d.last = max(d.last, o.Time)
	d.scan.add(o)
	d.near.add(o)
	switch {
	case !o.Process.Worker() || o.Type == history.Info && history.Single(o.F):
	case o.Type == history.Invoke:
		if o.F == history.Acquire {
			d.opened[o.Process] = history.Op{Time: o.Time}
		}
	case o.F == history.Acquire:
		if from, ok := d.opened[o.Process]; ok {
			d.acquires = append(d.acquires, acquired{o.Time, o.Time - from.Time, o.Process, o.Type})
		}
		delete(d.opened, o.Process)
	}
	return nil
}

// worker gives the worker that a process belongs to.
func (d *drawing) worker(p history.Process) history.Process {
	if d.workers > 0 && p.Worker() {
		return p % d.workers
	}
	return p
}

// A neighbourhood keeps the events around what is most worth seeing: the first
// anomaly, else an access that the store refused, else a fault, else the
// beginning; and the events of the anomaly, however far away.
type neighbourhood struct {
	ops    []history.Op
	proof  map[int]bool
	far    []history.Op
	last   int   // index of the last event of the anomaly, -1 for none
	until  int64 // its time
	center int   // place in ops
	rank   int
	total  int
}

// reach is how many events are kept on each side.
const reach = 3000

const (
	centerStart = iota
	centerFault
	centerRefused
	centerAnomaly
)

func (n *neighbourhood) begin(a *checker.Anomaly) {
	n.last, n.until, n.proof = -1, -1, map[int]bool{}
	if a == nil {
		return
	}
	for _, i := range a.Ops {
		n.last = max(n.last, i)
		n.proof[i] = true
	}
	for _, i := range a.Faults {
		n.proof[i] = true
	}
	n.until = a.Time
}

func (n *neighbourhood) add(o *history.Op) {
	n.total++
	if rank := n.rankOf(o); rank > n.rank {
		n.rank = rank
		n.trim(reach)
		n.center = len(n.ops)
	} else if len(n.ops)-n.center > reach {
		if n.proof[o.Index] {
			n.far = append(n.far, *o)
		}
		if n.rank == centerAnomaly {
			return
		}
		n.later(o)
		return
	}
	n.ops = append(n.ops, *o)
}

// later keeps the latest events beside the window, in case that something of a
// higher rank comes.
func (n *neighbourhood) later(o *history.Op) {
	n.ops = append(n.ops, *o)
	if len(n.ops) > n.center+4*reach {
		keep := n.center + reach
		tail := n.ops[len(n.ops)-reach:]
		n.keepProof(n.ops[keep : len(n.ops)-reach])
		n.ops = append(n.ops[:keep:keep], tail...)
	}
}

// trim leaves the latest events.
func (n *neighbourhood) trim(most int) {
	if cut := len(n.ops) - most; cut > 0 {
		n.keepProof(n.ops[:cut])
		n.ops = slices.Clone(n.ops[cut:])
	}
}

func (n *neighbourhood) keepProof(ops []history.Op) {
	for i := range ops {
		if n.proof[ops[i].Index] {
			n.far = append(n.far, ops[i])
		}
	}
}

func (n *neighbourhood) rankOf(o *history.Op) int {
	switch {
	case n.last >= 0 && o.Index == n.last, n.last < 0 && n.until >= 0 && o.Time >= n.until && n.rank < centerAnomaly:
		return centerAnomaly
	case o.Process == history.Store && o.Type == history.Fail:
		return centerRefused
	case o.Process == history.Nemesis:
		if v, ok := history.FaultOf(o); ok && v.Phase == history.Done {
			return centerFault
		}
	}
	return centerStart
}

// window gives the events around the center.
func (n *neighbourhood) window() []history.Op {
	return n.ops[max(0, n.center-reach):min(len(n.ops), n.center+reach)]
}

// withProof is the window and the events of the anomaly, in order.
func (n *neighbourhood) withProof() []history.Op {
	all := append(slices.Clone(n.far), n.window()...)
	slices.SortFunc(all, func(a, b history.Op) int { return a.Index - b.Index })
	return slices.CompactFunc(all, func(a, b history.Op) bool { return a.Index == b.Index })
}

// again is the command line that runs it again.
func (d *drawing) again() string {
	if s := d.about.option("scenario"); s != "" {
		return command([]string{"lockcheck", "scenario", s, "--from", d.dir})
	}
	return command([]string{"lockcheck", "run", "--from", d.dir})
}

// title says in one line what was run.
func (d *drawing) title() string {
	var parts []string
	client, backend := d.about.option("client"), d.about.option("backend")
	if client != "" {
		parts = append(parts, client+" on "+backend)
	}
	if s := d.about.option("scenario"); s != "" {
		parts = append(parts, s)
	} else if n, ok := d.about.Options["nemesis"].([]any); ok && len(n) > 0 {
		var names []string
		for _, x := range n {
			names = append(names, fmt.Sprint(x))
		}
		parts = append(parts, strings.Join(names, ", "))
	}
	if s := d.about.option("store"); s != "" {
		parts = append(parts, "store "+s)
	}
	if len(parts) == 0 {
		return clip(filepath.Base(d.dir), 100)
	}
	return clip(strings.Join(parts, ", "), 160)
}
