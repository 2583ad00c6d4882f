package getopt

import "strings"

// helpWidth and helpColumn are the width of help texts and the column of the descriptions.
const helpWidth, helpColumn = 80, 30

// Help lists the options that have a help text, in the order of the table,
// under the headings of their groups, in lines of at most 80 columns.
func Help(table []Option) string {
	var b strings.Builder
	group := ""
	for i := range table {
		o := &table[i]
		if o.Help == "" {
			continue
		}
		if o.Group != group {
			group = o.Group
			b.WriteString("\n" + group + ":\n")
		}
		b.WriteString(entry(o))
	}
	return b.String()
}

func entry(o *Option) string {
	left := "      --" + o.Long
	if o.Short != 0 {
		left = "  -" + string(o.Short) + ", --" + o.Long
	}
	switch {
	case o.Absent != "":
		left += "[=" + o.Value + "]"
	case o.Value != "":
		left += " " + o.Value
	}
	var b strings.Builder
	b.WriteString(left)
	column := len(left)
	if column > helpColumn-2 {
		b.WriteByte('\n')
		column = 0
	}
	b.WriteString(strings.Repeat(" ", helpColumn-column))
	column = helpColumn
	for i, word := range strings.Fields(o.Help) {
		if i > 0 && column+1+len(word) > helpWidth {
			b.WriteString("\n" + strings.Repeat(" ", helpColumn))
			column = helpColumn
		} else if i > 0 {
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	b.WriteByte('\n')
	return b.String()
}
