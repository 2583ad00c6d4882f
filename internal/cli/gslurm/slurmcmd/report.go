package slurmcmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// Field is a column of sacctmgr and sshare: by its first key or another one.
type Field struct {
	Keys  string // in lower case, separated by blanks; the first is that of the rows
	Title string
	Width int // negative: at the left edge
}

func (f *Field) key() string { return strings.Fields(f.Keys)[0] }

// Report is a table of sacctmgr or sshare.
type Report struct {
	Fields []Field
	Rows   []map[string]string // by the keys of the fields
}

// ReportStyle is how a report is printed.
type ReportStyle struct {
	NoHeader bool
	End      bool // with Parsable: a bar behind the last field, too
	Parsable bool
}

// Choose replaces the fields by those that a format names: account,user%20. A name may be cut short.
func (r *Report) Choose(format string) error {
	var chosen []Field
	var names []string
	for i := range r.Fields {
		names = append(names, strings.Fields(r.Fields[i].Keys)...)
	}
	for word := range strings.SplitSeq(format, ",") {
		name, width, sized := strings.Cut(strings.TrimSpace(word), "%")
		if name = strings.ToLower(name); name == "" {
			continue
		}
		i := slices.IndexFunc(r.Fields, func(f Field) bool { return slices.Contains(strings.Fields(f.Keys), name) })
		if i < 0 {
			i = slices.IndexFunc(r.Fields, func(f Field) bool {
				return slices.ContainsFunc(strings.Fields(f.Keys), func(key string) bool { return strings.HasPrefix(key, name) })
			})
		}
		if i < 0 {
			advice := "docs/from-slurm.md lists the fields"
			if near := getopt.Closest(name, names); near != "" {
				advice = "did you mean " + near + "?"
			}
			return &ui.UsageError{Problem: "Unknown field '" + word + "'", Advice: advice}
		}
		f := r.Fields[i]
		if n, err := strconv.Atoi(width); sized && (err != nil || n == 0 || n > mostWidth || n < -mostWidth) {
			return &ui.UsageError{Problem: "not a width: " + word, Advice: "write " + name + "%20"}
		} else if sized {
			f.Width = n
		}
		chosen = append(chosen, f)
	}
	if len(chosen) == 0 {
		return &ui.UsageError{Problem: "the format names no field", Advice: "write format=account,user"}
	}
	r.Fields = chosen
	return nil
}

// Print prints the report.
func (r *Report) Print(c *Command, style ReportStyle) error {
	var b strings.Builder
	line := func(cell func(f *Field) string) {
		for i := range r.Fields {
			f := &r.Fields[i]
			text := ui.Printable(cell(f))
			switch {
			case !style.Parsable:
				b.WriteString(fitText(text, f.Width) + " ")
			case style.End || i < len(r.Fields)-1:
				b.WriteString(text + "|")
			default:
				b.WriteString(text)
			}
		}
		b.WriteByte('\n')
	}
	if !style.NoHeader {
		line(func(f *Field) string { return f.Title })
		if !style.Parsable {
			line(func(f *Field) string { return strings.Repeat("-", max(f.Width, -f.Width)) })
		}
	}
	for _, row := range r.Rows {
		line(func(f *Field) string { return row[f.key()] })
	}
	return c.Write(b.String())
}

// fitText makes text as wide as a column; a plus marks what is cut.
func fitText(text string, width int) string {
	most := max(width, -width)
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "+"
	}
	return fmt.Sprintf("%*s", width, text)
}
