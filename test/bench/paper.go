package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// paper writes the figures: tables for people, and for programs a line of JSON for each row.
type paper struct {
	text  io.Writer
	lines *json.Encoder // nil: none
	title string        // of the current table
	heads []string
}

// line is a row of a table, or one part's own figures.
type line struct {
	Table   string         `json:"table"`
	At      time.Time      `json:"at"`
	Load    float64        `json:"load_average"`
	Cells   map[string]any `json:"cells,omitempty"`
	Figures any            `json:"figures,omitempty"`
}

// table prints one heading and one row of column names.
func (p *paper) table(title string, columns ...string) {
	p.title, p.heads = title, columns
	fmt.Fprintf(p.text, "\n### %s\n| %s |\n|%s\n", title, strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

// row prints one row of the table.
func (p *paper) row(cells ...any) {
	p.print(cells)
	named := make(map[string]any, len(cells))
	for i, c := range cells {
		named[p.heads[i]] = c
	}
	p.write(line{Cells: named})
}

// figures prints one row, and for programs the exact values.
func (p *paper) figures(exact any, cells ...any) {
	p.print(cells)
	p.write(line{Figures: exact})
}

func (p *paper) print(cells []any) {
	words := make([]string, len(cells))
	for i, c := range cells {
		words[i] = fmt.Sprint(c)
	}
	fmt.Fprintf(p.text, "| %s |\n", strings.Join(words, " | "))
}

func (p *paper) note(format string, args ...any) { fmt.Fprintf(p.text, "\n"+format+"\n", args...) }

func (p *paper) write(l line) {
	if p.lines == nil {
		return
	}
	l.Table, l.At, l.Load = p.title, time.Now().UTC(), loadAverage()
	if err := p.lines.Encode(l); err != nil {
		fmt.Fprintln(p.text, "(not written as JSON:", err, ")")
	}
}
