package ui

// Column is one column of a line of text.
type Column struct {
	Width  int    // 0: as wide as its text
	Right  bool   // aligned to the right
	Dots   bool   // truncated text ends with dots
	Before string // text between this column and the previous one
}

// dots end an ID or a list of nodes that does not fit: half of one could name another.
const dots = "..."

// Append adds the separator of a column and its text, truncated and padded to its width. Text at
// the end of a line is not padded.
func (c *Column) Append(line []byte, write func([]byte) []byte, last bool) []byte {
	line = append(line, c.Before...)
	at := len(line)
	line = write(line)
	if c.Width == 0 {
		return line
	}
	whole := len(line)
	line = line[:at+len(CutColumns(line[at:], c.Width))]
	if c.Dots && len(line) < whole && c.Width > len(dots) {
		copy(line[len(line)-len(dots):], dots)
	}
	blanks, n := c.Width-Columns(line[at:]), len(line)
	if blanks <= 0 || last && !c.Right {
		return line
	}
	for range blanks {
		line = append(line, ' ')
	}
	if c.Right {
		copy(line[at+blanks:], line[at:n])
		for i := range blanks {
			line[at+i] = ' '
		}
	}
	return line
}
