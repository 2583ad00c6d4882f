package slurmcmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/cli/ui"
)

// Column is one field of a line of squeue or sinfo: a value between literal texts.
type Column struct {
	Before, After string
	Width         int // 0: neither padded nor truncated
	Right         bool
	Fit           bool // at least as wide as its longest value
	Letter        byte
	Name          string // of -O; "" with -o
}

// Append adds the column to a line.
func (c *Column) Append(line []byte, text string) []byte {
	line = append(line, c.Before...)
	cut := []byte(ui.Printable(text))
	if c.Width > 0 && !c.Fit {
		cut = ui.CutColumns(cut, c.Width)
	}
	blanks := strings.Repeat(" ", max(c.Width-ui.Columns(cut), 0))
	if c.Right {
		return append(append(append(line, blanks...), cut...), c.After...)
	}
	return append(append(append(line, cut...), blanks...), c.After...)
}

// mostWidth bounds the width of a column.
const mostWidth = 100_000

// ParseFormat reads a format of -o: text with fields %[[#].][width]letter. Several % in a row count as
// one. A # makes the column at least as wide as its values.
func ParseFormat(format string) ([]Column, error) {
	var columns []Column
	before := ""
	for i := 0; i < len(format); {
		if format[i] != '%' {
			before += format[i : i+1]
			i++
			continue
		}
		for i < len(format) && format[i] == '%' {
			i++
		}
		c := Column{Before: before} // the own text of the caller, also separators such as 0x1f
		before = ""
		for ; i < len(format) && (format[i] == '.' || format[i] == '#'); i++ {
			c.Right, c.Fit = c.Right || format[i] == '.', c.Fit || format[i] == '#'
		}
		digits := i
		for i < len(format) && format[i] >= '0' && format[i] <= '9' {
			i++
		}
		c.Width, _ = strconv.Atoi(format[digits:i])
		if i == len(format) || c.Width > mostWidth {
			return nil, &ui.UsageError{Problem: fmt.Sprintf("not a format: %q", format), Advice: `write fields such as "%.18i %t"`}
		}
		c.Letter = format[i]
		if strings.HasPrefix(format[i:], "all") {
			c.Letter, i = All, i+len("all")-1
		}
		columns = append(columns, c)
		i++
	}
	if len(columns) == 0 {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("the format %q has no field", format), Advice: `write fields such as "%.18i %t"`}
	}
	columns[len(columns)-1].After = before
	return columns, nil
}

// All is the letter of %all.
const All = 0

// longWidth is the width of a field of -O without a size.
const longWidth = 20

// ParseLongFormat reads a format of -O: name[:[.][size][suffix]], separated by commas. Without a colon a
// field has 20 columns; with a colon and no size it is neither padded nor truncated. The suffix is
// literal text after each value, also in the header.
func ParseLongFormat(format string) ([]Column, error) {
	var columns []Column
	for term := range strings.SplitSeq(format, ",") {
		name, rest, sized := strings.Cut(term, ":")
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		c := Column{Name: name, Width: longWidth}
		if sized {
			rest, c.Right = strings.CutPrefix(rest, ".")
			digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
			c.Width, _ = strconv.Atoi(rest[:digits])
			c.After = rest[digits:]
		}
		if c.Width > mostWidth {
			return nil, &ui.UsageError{Problem: fmt.Sprintf("not a width: %q", term), Advice: "write fields such as JobID:10,Name:.30,State"}
		}
		columns = append(columns, c)
	}
	if len(columns) == 0 {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("the format %q has no field", format), Advice: "write fields such as JobID:10,Name:.30,State"}
	}
	return columns, nil
}

// PlainName returns the name of a field of -O without signs, in lower case.
func PlainName(name string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(name))
}

// ListLetters formats the letters of -o for the documentation, sorted; 0 is no letter.
func ListLetters(letters []byte) string {
	var all []string
	for _, letter := range letters {
		if letter != 0 {
			all = append(all, string(letter))
		}
	}
	slices.Sort(all)
	return "`" + strings.Join(all, " ") + "`"
}

// ListNames formats the names of -O for the documentation, sorted; each element holds the names of one
// field.
func ListNames(fields []string) string {
	var all []string
	for _, names := range fields {
		all = append(all, strings.Fields(names)...)
	}
	slices.Sort(all)
	return "`" + strings.Join(all, " ") + "`"
}
