package gqueue

import (
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/pkg/cluster"
)

// The fitted table has columns as wide as their content, within these bounds. When a line is too
// long, columns are narrowed until the last has its least width.
const (
	mostName, mostID, mostState, mostHosts = 24, 24, 10, 20
	leastLast                              = 16
)

// squeezes are the columns to narrow, in order, and their least widths. A truncated ID ends with
// dots, since half of one could name another job.
func squeezes() []struct {
	letters string
	least   int
} {
	return []struct {
		letters string
		least   int
	}{{"juP", 8}, {"i", 18}, {"Y", 14}, {"juP", 5}, {"i", 12}, {"Y", 10}}
}

// fit returns columns for the letters so that a line has at most width columns. Without an edge no
// column is narrowed, and the last is not truncated. O(rows × letters).
func fit(letters string, v view, rows []row, width int, edge bool) []column {
	all := fields()
	columns := make([]column, len(letters))
	for i := range columns {
		c := &columns[i]
		*c = column{letter: letters[i], field: fieldOf(all, letters[i])}
		c.Right, c.Dots = strings.IndexByte("iMlD", letters[i]) >= 0, endsWithDots(letters[i])
		if i > 0 {
			c.Before = " "
		}
	}
	widen(columns, v, rows, width)
	last := &columns[len(columns)-1]
	free := width - (len(columns) - 1)
	for i := range columns[:len(columns)-1] {
		free -= columns[i].Width
	}
	for _, squeeze := range squeezes() {
		if !edge {
			break // lines may have any length
		}
		for _, letter := range []byte(squeeze.letters) {
			for i := range columns {
				c := &columns[i]
				for c.letter == letter && c.Width > squeeze.least && free < min(last.Width, leastLast) {
					c.Width--
					free++
				}
			}
		}
	}
	if last.Width = 0; edge {
		last.Width = max(free, 1)
	}
	return columns
}

// widen makes the columns as wide as their content. It visits all columns of a row together: a long
// queue does not fit into the processor's cache.
func widen(columns []column, v view, rows []row, width int) {
	var open []*column // that may still become wider
	most := make(map[*column]int, len(columns))
	for i := range columns {
		c := &columns[i]
		c.Width = len(c.field.head)
		most[c] = mostOf(c.letter, width)
		if i == len(columns)-1 {
			most[c] = leastLast // more of it is not needed here
		}
		if c.Width < most[c] {
			open = append(open, c)
		}
	}
	var scratch []byte
	for r := range rows {
		wider := false
		for _, c := range open {
			scratch = c.field.write(scratch[:0], v, &rows[r])
			if n := ui.Columns(scratch); n > c.Width {
				c.Width = min(n, max(most[c], c.Width))
				wider = true
			}
		}
		if wider {
			open = slices.DeleteFunc(open, func(c *column) bool { return c.Width >= most[c] })
		}
	}
}

func mostOf(letter byte, width int) int {
	switch letter {
	case 'j', 'u', 'P':
		return mostName
	case 'i':
		return mostID
	case 'T':
		return mostState
	case 'Y':
		return mostHosts
	}
	return width
}

// UseColour of states, in addition to the state's word.
const (
	plainInk = "\x1b[0m"
	goodInk  = "\x1b[32m"
	busyInk  = "\x1b[33m"
	badInk   = "\x1b[31m"
)

// paint colours the state at the end of a line, which takes width columns.
func paint(line []byte, state cluster.JobState, width int) []byte {
	ink := badInk
	switch {
	case state == cluster.Pending || width <= 0 || width > len(line):
		return line
	case state == cluster.Running || state == cluster.Completed:
		ink = goodInk
	case !state.Final():
		ink = busyInk
	}
	at := len(line) - width
	word := string(line[at:])
	line = append(line[:at], ink...)
	line = append(line, word...)
	return append(line, plainInk...)
}
