package report

import (
	"regexp"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// Colours change nothing but colours: without them the columns are those of
// history.txt, and each kind of completion has its own.
func TestHistoryTextInColours(t *testing.T) {
	ops := []history.Op{
		{Index: 0, Process: 1, Type: history.Invoke, F: history.Acquire, Key: "k"},
		{Index: 1, Process: 1, Type: history.OK, F: history.Acquire, Key: "k"},
		{Index: 2, Process: 2, Type: history.Fail, F: history.Acquire, Key: "k", Error: history.ErrHeld},
		{Index: 3, Process: 2, Type: history.Info, F: history.Release, Key: "\x1b[31mk"},
		{Index: 4, Process: history.Nemesis, Type: history.Info, F: "pause"},
	}
	text := func(color bool) string {
		var b strings.Builder
		h := NewHistoryText(&b, color)
		h.Head()
		for i := range ops {
			h.Event(&ops[i])
		}
		if err := h.Flush(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	plain, coloured := text(false), text(true)
	if strings.Contains(plain, "\x1b") {
		t.Errorf("an escape in plain text:\n%q", plain)
	}
	if got := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(coloured, ""); got != plain {
		t.Errorf("got\n%s\nwant\n%s", got, plain)
	}
	lines := strings.Split(coloured, "\n")
	seen := map[string]bool{}
	for _, l := range lines[2:6] { // ok, fail, info, the nemesis
		c := regexp.MustCompile("\x1b\\[[0-9;]*m").FindString(l)
		if c == "" || seen[c] {
			t.Errorf("no colour of its own: %q", l)
		}
		seen[c] = true
	}
}
