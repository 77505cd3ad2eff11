package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Dir is the directory that one run writes into.
type Dir struct {
	Path string
	// Warnings say which links could not be made; some file systems have none,
	// and a run is worth as much without them.
	Warnings []string

	out, rel string // Path is out joined with rel
}

const (
	stampFormat = "20060102T150405.000Z"
	// maxRuns is how many runs may begin in one moment under one name before
	// something must be wrong.
	maxRuns = 10000
	// maxName leaves room in the 255 bytes that file systems give a name.
	maxName = 200
)

// The links in the folder of all runs.
const (
	currentLink = "current" // the run that began last
	latestLink  = "latest"  // the run that ended last
)

// Create makes the directory of a run that begins now, <out>/<name>/<UTC time>/,
// and lets <out>/current point to it. Runs that begin in the same millisecond
// each get their own: the later one's name is that of the next free millisecond.
func Create(out, name string, now time.Time) (*Dir, error) {
	name = dirName(name)
	parent := filepath.Join(out, name)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, cannotWrite(out, err)
	}
	now = now.UTC()
	for range maxRuns {
		stamp := now.Format(stampFormat)
		err := os.Mkdir(filepath.Join(parent, stamp), 0o755)
		if err == nil {
			d := &Dir{Path: filepath.Join(parent, stamp), out: out, rel: filepath.Join(name, stamp)}
			d.link(currentLink)
			return d, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, cannotWrite(out, err)
		}
		now = now.Add(time.Millisecond)
	}
	return nil, cannotWrite(out, fmt.Errorf("%s has %d runs of this moment already", parent, maxRuns))
}

func cannotWrite(out string, err error) error {
	return fmt.Errorf("make a run directory in %q: %w (choose another place with --out DIR)", out, err)
}

// dirName makes one harmless path element of a run's name: clients are called
// faulty/etcd-no-recheck, and nemeses pause,kill.
func dirName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("_-+=.,@", r):
			return r
		}
		return '-'
	}, name)
	name = strings.TrimLeft(name[:min(len(name), maxName)], ".-") // neither hidden, nor "..", nor like a flag
	switch name {
	case "":
		return "run"
	case currentLink, latestLink:
		return name + "-run"
	}
	return name
}

// Finish lets <out>/latest point to this run.
func (d *Dir) Finish() { d.link(latestLink) }

// link points <out>/<name> at the run, in one step: whoever follows it sees the
// old run or the new one.
func (d *Dir) link(name string) {
	temp := filepath.Join(d.out, fmt.Sprintf(".%s.%016x", name, rand.Uint64()))
	err := os.Symlink(d.rel, temp)
	if err == nil {
		if err = os.Rename(temp, filepath.Join(d.out, name)); err != nil {
			os.Remove(temp)
		}
	}
	if err != nil {
		d.Warnings = append(d.Warnings, fmt.Sprintf("no link %s to this run: %v", filepath.Join(d.out, name), err))
	}
}

// WriteJSON writes v, indented, as the file of that name. The file is whole or
// not there.
func (d *Dir) WriteJSON(name string, v any) error {
	return WriteJSON(filepath.Join(d.Path, name), v)
}

// WriteJSON writes v, indented, as a file that is whole or not there.
func WriteJSON(path string, v any) error {
	return WriteFile(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(v)
	})
}

// WriteFile has fill write a file that is whole or not there: it is written beside
// its place and then moved.
func WriteFile(path string, fill func(io.Writer) error) error {
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%016x", filepath.Base(path), rand.Uint64()))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = fill(f)
	if err == nil {
		err = f.Sync() // else the move could reach the disk before what it moves
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
