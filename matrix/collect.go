package matrix

import (
	"fmt"
	"os"
	"path/filepath"
)

// Collect copies the run directories of the shards in dirs into one folder, and
// writes the matrix there. A folder that is there already is left as it is, since
// the result is the same.
func (r *Result) Collect(out string, dirs []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, row := range r.Rows {
		for _, run := range row.Runs {
			if run.Dir == "" {
				continue
			}
			if err := collect(out, dirs, run.Dir); err != nil {
				return fmt.Errorf("merge: %v, seed %d: %w", row.Cell, run.Seed, err)
			}
		}
	}
	return r.Write(out)
}

func collect(out string, dirs []string, run string) error {
	if !filepath.IsLocal(run) {
		return fmt.Errorf("run directory %q is not below its shard's folder", run)
	}
	to := filepath.Join(out, run)
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	for _, d := range dirs {
		from := filepath.Join(d, run)
		if _, err := os.Stat(from); err == nil {
			return os.CopyFS(to, os.DirFS(from))
		}
	}
	return fmt.Errorf("run directory %s is in none of %v", run, dirs)
}
