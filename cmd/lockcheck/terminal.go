package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/lockcheck/lockcheck/experiment"
)

// terminal reports whether w is a terminal.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colour reports whether w wants colours.
func colour(w io.Writer) bool { return terminal(w) && os.Getenv("NO_COLOR") == "" }

// width is how wide w is.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 100
}

// liveLine shows the state of a run in one line that is written over, on a
// terminal only.
type liveLine struct {
	w     io.Writer
	shown bool
	limit time.Duration
}

func (l *liveLine) show(s experiment.Live) {
	if !terminal(l.w) {
		return
	}
	l.shown = true
	of := ""
	if l.limit > 0 {
		of = "/" + l.limit.String()
	}
	faults := "none"
	if len(s.Status.Faults) > 0 {
		faults = strings.Join(s.Status.Faults, ",")
	}
	line := fmt.Sprintf("%.1fs%s  acquires %d  info %d  fault %s  anomalies %d %s", s.Elapsed.Seconds(), of, s.Status.Acquires, s.Status.Info, faults, s.Anomalies, s.Phase)
	if n := width(l.w); len(line) >= n {
		line = line[:n-1]
	}
	fmt.Fprintf(l.w, "\r\x1b[K%s", line)
}

// clear takes the line away.
func (l *liveLine) clear() {
	if l.shown {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.shown = false
	}
}

// printJSON writes v for programs.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return exit{exitFailed, fmt.Errorf("write the result: %w", err)}
	}
	return nil
}
