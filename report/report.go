// Package report shows people what was found: the end of a run and the timeline
// of one anomaly in a terminal, and the directory that a run leaves behind.
//
// It judges nothing and hides nothing: verdicts and sentences are the checker's,
// and whatever is left out of a drawing is said. No text of a history reaches a
// terminal raw, since keys and errors come from the system under test.
package report

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lockcheck/lockcheck/checker"
)

const (
	defaultWidth = 100
	minWidth     = 60
	maxWidth     = 400
	// maxText bounds one message of a checker or a lock's error in the terminal;
	// all of it is in results.json.
	maxText = 1500
)

func width(w int) int {
	if w == 0 {
		return defaultWidth
	}
	return min(max(w, minWidth), maxWidth)
}

// clean makes text harmless for a terminal: whatever does not print, line ends,
// escapes and marks that turn the writing direction among them, is spelled out.
func clean(s string) string {
	if printable(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// Clean makes text of the system under test harmless for a terminal.
func Clean(s string) string { return clean(s) }

func printable(s string) bool {
	for i, r := range s {
		if !strconv.IsPrint(r) {
			return false
		}
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return false
			}
		}
	}
	return true
}

// clip is clean and no longer than n characters.
func clip(s string, n int) string {
	if len(s) > 8*n { // what is cut off need not be cleaned
		s = s[:8*n]
	}
	s = clean(s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// quote names a key so that an empty or hostile one does no harm.
func quote(key string, n int) string {
	if len(key) > 8*n {
		key = key[:8*n]
	}
	q := strconv.Quote(key)
	if utf8.RuneCountInString(q) <= n {
		return q
	}
	return string([]rune(q)[:n-2]) + `…"`
}

// wrap breaks text between words into lines of at most width characters; only a
// word that is longer than that is broken itself.
func wrap(text string, width int) []string {
	var lines []string
	line, used := "", 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if used > 0 && used+1+n > width {
			lines, line, used = append(lines, line), "", 0
		}
		for n > width {
			r := []rune(word)
			lines, word, n = append(lines, string(r[:width])), string(r[width:]), n-width
		}
		if used > 0 {
			line, used = line+" ", used+1
		}
		line, used = line+word, used+n
	}
	if used > 0 {
		lines = append(lines, line)
	}
	return lines
}

// A paint is how one thing is coloured.
type paint string

const (
	plain  paint = ""
	bold   paint = "1"
	dim    paint = "2"
	red    paint = "1;31"
	green  paint = "32"
	yellow paint = "33"
	blue   paint = "34"
	cyan   paint = "36"
)

func (p paint) on(s string, color bool) string {
	if !color || p == plain || s == "" {
		return s
	}
	return "\x1b[" + string(p) + "m" + s + "\x1b[0m"
}

func verdictPaint(v checker.Verdict) paint {
	switch v {
	case checker.Valid:
		return green
	case checker.Invalid:
		return red
	case checker.NotApplicable:
		return dim
	}
	return yellow
}

// pad fills s with spaces up to n characters.
func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}

// plural says how many of something there are.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// command writes an argument list as a shell reads it back, so that it can be
// copied whatever is in it.
func command(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = shellWord(a)
	}
	return strings.Join(words, " ")
}

func shellWord(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-+=./,:@%", r)
	}
	if s != "" && strings.TrimFunc(s, safe) == "" {
		return s
	}
	if printable(s) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(s) { // bytes: the shell puts them together again
		switch c := s[i]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + "'"
}
