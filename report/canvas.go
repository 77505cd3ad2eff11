package report

import (
	"bufio"
	"strconv"
	"strings"
	"unicode/utf8"
)

// glyphs are the strokes of a strip.
type glyphs struct {
	section, sectionFrom, sectionTo rune
	lease, leaseFrom, leaseTo       rune
	paused, faulty                  rune
	waiting, flying, turning        rune
	falling, landing                rune
	pointing, before, after         rune
	axis, tick, refused             rune
}

var (
	unicodeGlyphs = glyphs{
		section: '━', sectionFrom: '┣', sectionTo: '┫',
		lease: '┄', leaseFrom: '└', leaseTo: '┤',
		paused: '▒', faulty: '░',
		waiting: '·', flying: '╌', turning: '╮',
		falling: '┊', landing: '▼',
		pointing: '▲', before: '◀', after: '▶',
		axis: '─', tick: '┬', refused: '✗',
	}
	asciiGlyphs = glyphs{
		section: '=', sectionFrom: '[', sectionTo: ']',
		lease: '-', leaseFrom: '+', leaseTo: '|',
		paused: '/', faulty: '%',
		waiting: '.', flying: '~', turning: '.',
		falling: ':', landing: 'v',
		pointing: '^', before: '<', after: '>',
		axis: '-', tick: '+', refused: 'X',
	}
)

// A cell is one character of a canvas; zero is empty, a space is not.
type cell struct {
	r rune
	p paint
}

// A canvas is a grid of characters, each row with a label in front.
type canvas struct {
	cols   int
	ascii  bool
	labels []string
	rows   [][]cell
}

// add begins a new row below and gives its number.
func (c *canvas) add(label string) int {
	c.labels = append(c.labels, label)
	c.rows = append(c.rows, make([]cell, c.cols))
	return len(c.rows) - 1
}

func (c *canvas) put(row, col int, r rune, p paint) {
	if c.ascii && r >= utf8.RuneSelf {
		r = '?'
	}
	if col >= 0 && col < c.cols {
		c.rows[row][col] = cell{r, p}
	}
}

// fill draws a stroke over the columns from and to, both included.
func (c *canvas) fill(row, from, to int, r rune, p paint) {
	for col := from; col <= to; col++ {
		c.put(row, col, r, p)
	}
}

// fillEmpty is fill, behind what is there.
func (c *canvas) fillEmpty(row, from, to int, r rune, p paint) {
	for col := max(from, 0); col <= min(to, c.cols-1); col++ {
		if c.rows[row][col].r == 0 {
			c.rows[row][col] = cell{r, p}
		}
	}
}

func (c *canvas) write(row, col int, s string, p paint) {
	for _, r := range s {
		c.put(row, col, r, p)
		col++
	}
}

// fits reports whether s can stand at col with an empty column on each side.
func (c *canvas) fits(row, col int, s string) bool {
	n := utf8.RuneCountInString(s)
	if col < 0 || col+n > c.cols {
		return false
	}
	for i := max(col-1, 0); i <= min(col+n, c.cols-1); i++ {
		if c.rows[row][i].r != 0 {
			return false
		}
	}
	return true
}

// tryWrite writes s at the first of the columns where it fits.
func (c *canvas) tryWrite(row int, s string, p paint, cols ...int) bool {
	for _, col := range cols {
		if c.fits(row, col, s) {
			c.write(row, col, s, p)
			return true
		}
	}
	return false
}

// longest gives the longest run of r in a row between two columns.
func (c *canvas) longest(row, from, to int, r rune) (at, n int) {
	run := 0
	for col := max(from, 0); col <= min(to, c.cols-1); col++ {
		if c.rows[row][col].r != r {
			run = 0
			continue
		}
		if run++; run > n {
			at, n = col-run+1, run
		}
	}
	return at, n
}

// row gives a row as text, colours included.
func (c *canvas) row(i int, color bool) string {
	var b strings.Builder
	p := bold
	if strings.HasPrefix(c.labels[i], " ") {
		p = plain
	}
	b.WriteString(p.on(c.labels[i], color))
	used := c.cols
	for used > 0 && c.rows[i][used-1].r == 0 {
		used--
	}
	b.WriteString(strings.Repeat(" ", max(0, gutter-utf8.RuneCountInString(c.labels[i]))))
	for from := 0; from < used; {
		p := c.rows[i][from].p
		var part strings.Builder
		for ; from < used && c.rows[i][from].p == p; from++ {
			part.WriteRune(max(c.rows[i][from].r, ' '))
		}
		b.WriteString(p.on(part.String(), color))
	}
	return b.String()
}

// printer writes lines, in ASCII alone where that is asked for.
type printer struct {
	w     *bufio.Writer
	ascii bool
}

func (p *printer) line(s string) {
	p.w.WriteString(p.plain(strings.TrimRight(s, " ")))
	p.w.WriteByte('\n')
}

// plain spells out what is beyond ASCII, if that is asked for. Colours pass. What
// is to be wrapped or cut goes through here first, since it grows.
func (p *printer) plain(s string) string {
	if !p.ascii {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case r == '…':
			b.WriteByte('~')
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}
