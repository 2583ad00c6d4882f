package ui

import (
	"bufio"
	"io"
	"strings"
)

// Table is rows under headings, for listings of tens or hundreds of rows. The last cell of a row with fewer cells
// than Head is text that spans the other columns.
type Table struct {
	Head  []string
	Right string // for each column a byte: 'r' aligns it to the right
	Rows  [][]string
	Wide  []int // columns to truncate when a line is too long, first one first
	Bare  bool  // without the headings
	Prose bool  // the last column is text, which is never truncated
}

// leastCell is the least width of a truncated column.
const leastCell = 8

// WriteTable prints a table so that it fits the terminal; without a terminal nothing is truncated.
func (p *Process) WriteTable(t Table) error {
	width, edge := p.Width()
	out := bufio.NewWriter(p.Stdout)
	t.write(out, width, edge)
	return out.Flush()
}

// Lines returns the printed lines, each truncated to width columns.
func (t *Table) Lines(width int) []string {
	var out strings.Builder
	t.write(&out, width, true)
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// lines returns the printed lines: the headings, if wanted, and the rows.
func (t *Table) lines() [][]string {
	if t.Bare {
		return t.Rows
	}
	return append([][]string{t.Head}, t.Rows...)
}

func (t *Table) write(out io.Writer, width int, edge bool) {
	rows := t.lines()
	columns := make([]Column, len(t.Head))
	total := len(columns) - 1
	for i := range columns {
		for _, row := range rows {
			if i < len(row) && (i < len(row)-1 || len(row) == len(columns)) {
				columns[i].Width = max(columns[i].Width, Columns([]byte(Printable(row[i]))))
			}
		}
		columns[i].Right = i < len(t.Right) && t.Right[i] == 'r'
		if i > 0 {
			columns[i].Before = " "
		}
		total += columns[i].Width
	}
	for _, i := range t.Wide {
		for edge && columns[i].Width > max(leastCell, len(t.Head[i])) && total > width {
			columns[i].Width--
			total--
		}
	}
	last := &columns[len(columns)-1]
	switch {
	case edge && total > width && !t.Prose:
		last.Width = max(last.Width-(total-width), 1)
	case !last.Right:
		last.Width = 0
	}
	for _, row := range rows {
		var line []byte
		for i := range row {
			if i == len(row)-1 && len(row) < len(columns) {
				line = append(append(line, columns[i].Before...), Printable(row[i])...)
				continue
			}
			line = columns[i].Append(line, func(dst []byte) []byte { return AppendPrintable(dst, row[i]) }, i == len(columns)-1)
		}
		io.WriteString(out, strings.TrimRight(string(line), " ")+"\n") // an error shows at Flush
	}
}

// WriteParsable prints a table with | between its fields, and a terminator at the end of each line.
func (p *Process) WriteParsable(t Table, end string) error {
	var b strings.Builder
	for _, row := range t.lines() {
		for i, cell := range row {
			if i > 0 {
				b.WriteByte('|')
			}
			b.WriteString(strings.ReplaceAll(Printable(cell), "|", `\x7c`))
		}
		b.WriteString(end + "\n")
	}
	_, err := io.WriteString(p.Stdout, b.String())
	return err
}

// Facts prints names and values under a title; empty values are left out.
func (p *Process) Facts(title string, facts [][2]string) error {
	widest := 0
	for _, f := range facts {
		widest = max(widest, len(f[0]))
	}
	var b strings.Builder
	b.WriteString(Printable(title) + "\n")
	for _, f := range facts {
		if f[1] != "" {
			b.WriteString("  " + f[0] + strings.Repeat(" ", widest-len(f[0])+2) + Printable(f[1]) + "\n")
		}
	}
	_, err := io.WriteString(p.Stdout, b.String())
	return err
}
