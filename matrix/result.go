package matrix

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/experiment"
	"github.com/lockcheck/lockcheck/report"
)

// File is the name of what a matrix leaves behind for programs.
const File = "matrix.json"

// formatVersion is that of the file.
const formatVersion = 1

// A Run is what came of one run of a cell.
type Run struct {
	Seed         uint64              `json:"seed"`
	Verdict      checker.Verdict     `json:"verdict"`
	Properties   map[string]Property `json:"properties,omitempty"`
	Grants       int                 `json:"grants"`
	Violations   int                 `json:"violations"`             // anomalies of the required properties
	Availability *float64            `json:"availability,omitempty"` // share of the time, 0 to 1; none where it was not measured
	Times        *Times              `json:"times,omitempty"`        // its other figures
	Faults       map[string]int      `json:"faults,omitempty"`       // in force, by evidence
	First        string              `json:"first,omitempty"`        // the first anomaly, in a sentence
	Causes       []string            `json:"causes,omitempty"`       // faults that were in force at an anomaly of a required property
	Reasons      []string            `json:"reasons,omitempty"`      // why the whole is unknown
	Surprises    []string            `json:"surprises,omitempty"`    // what theory does not allow
	Theory       string              `json:"theory,omitempty"`       // of a scenario: as expected, or what is not
	Skipped      string              `json:"skipped,omitempty"`      // why it could not be carried out here
	Failed       string              `json:"failed,omitempty"`       // lockcheck itself failed
	Dir          string              `json:"dir,omitempty"`          // from the folder of the matrix
	Took         time.Duration       `json:"took_ns"`
}

// A Property is what one property came to in a run.
type Property struct {
	Verdict checker.Verdict `json:"verdict"`
	Count   int             `json:"count,omitempty"` // anomalies
	Kinds   map[string]int  `json:"kinds,omitempty"` // of those that are kept, with their class: overlap/overrun
	First   string          `json:"first,omitempty"` // the first anomaly, in a sentence
	Reason  string          `json:"reason,omitempty"`
}

// Done reports whether the run need not be carried out again.
func (run *Run) Done() bool { return run.Skipped == "" && run.Failed == "" }

// A Row is one cell with its runs, and what they come to together.
type Row struct {
	Cell
	Required     []string                   `json:"required"`
	Verdict      checker.Verdict            `json:"verdict,omitempty"` // none where the cell cannot be had
	Properties   map[string]checker.Verdict `json:"properties,omitempty"`
	Grants       int                        `json:"grants"`
	Violations   int                        `json:"violations"`
	PerThousand  float64                    `json:"violations_per_1000_grants"`
	Availability *float64                   `json:"availability,omitempty"` // the mean over the runs
	Times        *Times                     `json:"times,omitempty"`        // the worst of the runs
	Impossible   string                     `json:"impossible,omitempty"`   // why there is no such cell
	Missing      int                        `json:"missing,omitempty"`      // runs that have not been carried out
	Theory       Theory                     `json:"theory"`
	Says         string                     `json:"says"` // theory in a sentence
	Runs         []Run                      `json:"runs,omitempty"`
}

// A Result is a matrix, as matrix.json holds it.
type Result struct {
	Format  int             `json:"lockcheck_matrix"`
	Version string          `json:"version"` // of lockcheck
	Shard   string          `json:"shard,omitempty"`
	Spec    Spec            `json:"spec"`
	Verdict checker.Verdict `json:"verdict"`
	Rows    []Row           `json:"cells"`
}

// New gives the matrix of a Spec with nothing carried out.
func New(s Spec, sh Shard) *Result {
	r := &Result{Format: formatVersion, Version: experiment.Version(), Spec: s}
	if sh.Of > 1 {
		r.Shard = sh.String()
	}
	for _, c := range s.Cells() {
		row := Row{Cell: c, Required: s.required(c), Theory: s.TheoryOf(c)}
		row.Says = row.Theory.Says(row.Required)
		if f, err := ParseFault(c.Fault); err == nil && f.Scenario != "" {
			row.Says = saysStory(f)
		}
		if err := s.Impossible(c); err != nil {
			row.Impossible, row.Says = err.Error(), ""
		}
		r.Rows = append(r.Rows, row)
	}
	r.conclude()
	return r
}

// required are the properties that a cell's verdict is made of.
func (s *Spec) required(c Cell) []string {
	o := s.RunOptions(c, s.Seed)
	if err := o.Settle(); err != nil || len(o.Require) == 0 {
		return checker.DefaultRequired
	}
	return o.Require
}

// shard is the part of the runs that this result is about.
func (r *Result) shard() Shard {
	sh, err := ParseShard(r.Shard)
	if err != nil {
		return Shard{1, 1}
	}
	return sh
}

// Todo lists the runs of the shard that have not been carried out.
func (r *Result) Todo() []Place {
	sh := r.shard()
	var out []Place
	for _, p := range r.Spec.Places() {
		if run := r.find(p); sh.Has(p) && (run == nil || !run.Done()) {
			out = append(out, p)
		}
	}
	return out
}

func (r *Result) row(c Cell) *Row {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Cell == c })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
}

func (r *Result) find(p Place) *Run {
	row := r.row(p.Cell)
	if row == nil {
		return nil
	}
	i := slices.IndexFunc(row.Runs, func(run Run) bool { return run.Seed == p.Seed })
	if i < 0 {
		return nil
	}
	return &row.Runs[i]
}

// Add files what came of a run, in place of what it came to before.
func (r *Result) Add(p Place, run Run) {
	row := r.row(p.Cell)
	if row == nil {
		return // no run of this matrix
	}
	run.Seed = p.Seed
	run.surprised(row)
	if old := r.find(p); old != nil {
		*old = run
	} else {
		row.Runs = append(row.Runs, run)
	}
	slices.SortFunc(row.Runs, func(a, b Run) int {
		if a.Seed < b.Seed {
			return -1
		}
		return 1
	})
	r.conclude()
}

// surprised notes what theory does not allow.
func (run *Run) surprised(row *Row) {
	run.Surprises = nil
	if run.Theory != "" {
		if run.Theory != experiment.AsExpected {
			run.Surprises = []string{run.Theory}
		}
		return
	}
	for _, p := range checker.Properties {
		for _, k := range sorted(run.Properties[p].Kinds) {
			if !row.Theory.Allows(p, k) {
				run.Surprises = append(run.Surprises, fmt.Sprintf("%s: %s, which theory does not allow here", p, k))
			}
		}
	}
}

func sorted[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// conclude computes what follows from the runs.
func (r *Result) conclude() {
	sh := r.shard()
	due := map[Cell]int{}
	for _, p := range r.Spec.Places() {
		if sh.Has(p) {
			due[p.Cell]++
		}
	}
	r.Verdict = checker.Valid
	for i := range r.Rows {
		row := &r.Rows[i]
		row.conclude(due[row.Cell])
		if row.Verdict != 0 {
			r.Verdict = checker.Worst(r.Verdict, row.Verdict)
		}
	}
}

func (row *Row) conclude(due int) {
	row.Verdict, row.Properties, row.Grants, row.Violations, row.PerThousand, row.Availability, row.Times = 0, nil, 0, 0, 0, nil, nil
	row.Missing = max(0, due-len(row.Runs))
	if row.Impossible != "" || due == 0 && len(row.Runs) == 0 {
		return
	}
	row.Verdict = checker.Valid
	if row.Missing > 0 {
		row.Verdict = checker.Unknown
	}
	sum, measured := 0.0, 0
	for _, run := range row.Runs {
		row.Verdict = checker.Worst(row.Verdict, run.Verdict)
		row.Grants += run.Grants
		row.Violations += run.Violations
		for p, v := range run.Properties {
			if row.Properties == nil {
				row.Properties = map[string]checker.Verdict{}
			}
			row.Properties[p] = max(row.Properties[p], v.Verdict)
		}
		row.Times = row.Times.worse(run.Times)
		if run.Availability != nil {
			sum, measured = sum+*run.Availability, measured+1
		}
	}
	if row.Grants > 0 {
		row.PerThousand = 1000 * float64(row.Violations) / float64(row.Grants)
	}
	if measured > 0 {
		mean := sum / float64(measured)
		row.Availability = &mean
	}
}

// Surprises lists what theory does not allow, with the cell and the seed.
func (r *Result) Surprises() []string {
	var out []string
	for _, row := range r.Rows {
		for _, run := range row.Runs {
			for _, s := range run.Surprises {
				out = append(out, fmt.Sprintf("%v, seed %d: %s (%s)", row.Cell, run.Seed, s, run.Dir))
			}
		}
	}
	return out
}

// Failed reports whether lockcheck itself failed in a run.
func (r *Result) Failed() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool {
		return slices.ContainsFunc(row.Runs, func(run Run) bool { return run.Failed != "" })
	})
}

// Read reads the matrix of a folder.
func Read(dir string) (*Result, error) {
	file := filepath.Join(dir, File)
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("matrix: %w", err)
	}
	var r Result
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if r.Format != formatVersion {
		return nil, fmt.Errorf("%s: format %d is not %d: another version of lockcheck wrote it", file, r.Format, formatVersion)
	}
	for _, name := range r.Spec.Faults {
		if _, err := ParseFault(name); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	// What follows from the runs is computed anew: theory may have learnt.
	fresh := New(r.Spec, r.shard())
	fresh.Version = r.Version
	for _, row := range r.Rows {
		for _, run := range row.Runs {
			fresh.Add(Place{Cell: row.Cell, Seed: run.Seed}, run)
		}
	}
	return fresh, nil
}

// Write writes the matrix into a folder. The file is whole or not there.
func (r *Result) Write(dir string) error { return report.WriteJSON(filepath.Join(dir, File), r) }

// ErrOther says that two results are not of one matrix.
var ErrOther = errors.New("they are parts of different matrices")

// Merge joins shards of one matrix. A run that two of them have must have come to
// the same in both.
func Merge(parts []*Result) (*Result, error) {
	if len(parts) == 0 {
		return nil, errors.New("merge: nothing to join")
	}
	spec, err := json.Marshal(parts[0].Spec)
	if err != nil {
		return nil, err
	}
	out := New(parts[0].Spec, Shard{1, 1})
	out.Version = parts[0].Version
	var versions []string
	for _, p := range parts {
		other, err := json.Marshal(p.Spec)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(spec, other) {
			return nil, fmt.Errorf("merge: %w: shards have to be started with the same flags and the same --seed", ErrOther)
		}
		if !slices.Contains(versions, p.Version) {
			versions = append(versions, p.Version)
		}
		for _, row := range p.Rows {
			for _, run := range row.Runs {
				if err := out.join(Place{Cell: row.Cell, Seed: run.Seed}, run); err != nil {
					return nil, err
				}
			}
		}
	}
	out.Version = strings.Join(versions, ", ")
	return out, nil
}

func (r *Result) join(p Place, run Run) error {
	old := r.find(p)
	switch {
	case old == nil || !old.Done():
		r.Add(p, run)
	case run.Done() && old.Dir != run.Dir:
		return fmt.Errorf("merge: %v, seed %d was carried out twice: %s and %s", p.Cell, p.Seed, old.Dir, run.Dir)
	}
	return nil
}
