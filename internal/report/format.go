package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// CSV returns the table in the format of RFC 4180 with a header and Unix line ends. Null is an
// empty field. Text that a spreadsheet would evaluate as a formula gets a leading apostrophe, since
// users choose some of it.
func (t *Table) CSV() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	cells := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		cells[i] = c.Name
	}
	_ = w.Write(cells) // never fails in memory
	for _, r := range t.Rows {
		for i, c := range t.Columns {
			if cells[i] = c.plain(r[i]); c.Digits == Text && cells[i] != "" && strings.ContainsRune("=+-@\t\r", rune(cells[i][0])) {
				cells[i] = "'" + cells[i]
			}
		}
		_ = w.Write(cells)
	}
	w.Flush()
	return b.Bytes()
}

// JSONL returns the table as one JSON object a line, with the fields in the order of the columns
// and null for null.
func (t *Table) JSONL() []byte {
	var b bytes.Buffer
	names := make([][]byte, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = quoted(c.Name)
	}
	for _, r := range t.Rows {
		b.WriteByte('{')
		for i, c := range t.Columns {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(names[i])
			b.WriteByte(':')
			switch {
			case r[i].Null:
				b.WriteString("null")
			case c.Digits == Text:
				b.Write(quoted(r[i].Text))
			default:
				b.WriteString(c.plain(r[i]))
			}
		}
		b.WriteString("}\n")
	}
	return b.Bytes()
}

func quoted(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // never fails for strings
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Text returns the table for terminals without detail columns: aligned, numbers to the right.
// Control characters appear as "?".
func (t *Table) Text() []byte {
	var shown []Column
	cells := make([][]string, len(t.Rows)+1)
	for i, c := range t.Columns {
		if c.Detail || c.Seldom && !slices.ContainsFunc(t.Rows, func(r []Value) bool { return r[i].Number != 0 }) {
			continue
		}
		shown, cells[0] = append(shown, c), append(cells[0], strings.ToUpper(c.Name))
		for n, r := range t.Rows {
			cells[n+1] = append(cells[n+1], cmp.Or(tame(c.plain(r[i])), "-"))
		}
	}
	widths := make([]int, len(shown))
	for _, line := range cells {
		for i, s := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(s))
		}
	}
	var b bytes.Buffer
	for _, line := range cells {
		var l strings.Builder
		for i, s := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(s))
			if i > 0 {
				l.WriteByte(' ')
			}
			if shown[i].Digits == Text {
				l.WriteString(s + pad)
			} else {
				l.WriteString(pad + s)
			}
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	return b.Bytes()
}

// tame replaces control characters.
func tame(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == utf8.RuneError || r >= 0x200b && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '?'
		}
		return r
	}, s)
}
