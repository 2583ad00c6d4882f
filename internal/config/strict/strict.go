// Package strict decodes TOML into structs and finds every fault at once, each with its file and
// line: wrong syntax, unknown keys, values of the wrong kind, values out of range.
//
// The fields of a struct carry the tags toml:"KEY", one:"A,B,C" for a word out of a fixed set, and
// was:"KEY" for the former name of a key, which the error of an unknown key then names. The values
// are decoded here and not by the TOML module's own decoder, because that one stops at the first
// value of the wrong kind. Durations are written "90s", "5m", "7d", sizes "64GiB".
package strict

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Fault is one problem of a file. Line is 0 if no line caused it, as when a default contradicts a
// setting.
type Fault struct {
	File    string
	Line    int
	Key     string // dotted, such as raft.profile; "" for bad syntax
	Problem string
}

// String returns "file:line: key: problem".
func (f Fault) String() string {
	where := f.File
	if f.Line > 0 {
		where = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	if f.Key != "" {
		where += ": " + f.Key
	}
	return where + ": " + f.Problem
}

// Faults is the error of files that were read but are invalid: all faults, in the order of files
// and lines.
type Faults []Fault

// Error returns one fault per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// Source is the text of one file.
type Source struct {
	Name string // of the file, for faults
	Text []byte
}

// Decode merges sources, stores their values in the struct that target points to, and calls check
// for what single values do not show. A value of a later source replaces that of an earlier one,
// key by key; lists are replaced whole. Decode returns all faults, in the order of sources and
// lines. main is the file of faults that no line caused.
func Decode(main string, sources []Source, target any, check func(*Checker)) Faults {
	doc := newDocument()
	files := make([]string, len(sources))
	for i, s := range sources {
		files[i] = s.Name
		doc.add(s.Name, s.Text)
	}
	d := Decoder{doc: doc}
	d.table("", doc.values, reflect.ValueOf(target).Elem())
	c := &Checker{main: main, doc: doc, faults: slices.Concat(doc.faults, d.faults)}
	check(c)
	return inOrder(files, c.faults)
}

// Locate returns problems with values of a text that Decode read without a fault, each with its
// line. find reports them.
func Locate(s Source, find func(*Checker)) Faults {
	doc := newDocument()
	doc.add(s.Name, s.Text)
	c := &Checker{main: s.Name, doc: doc}
	find(c)
	return inOrder([]string{s.Name}, c.faults)
}

// Sets reports whether one of sources sets a key. The faults are those of their syntax.
func Sets(sources []Source, key string) (bool, Faults) {
	doc := newDocument()
	for _, s := range sources {
		doc.add(s.Name, s.Text)
	}
	_, set := doc.values[key]
	return set, doc.faults
}

// inOrder sorts faults by file and line, and removes repeated ones of a place and key.
func inOrder(files []string, faults []Fault) Faults {
	order := func(file string) int { return slices.Index(files, file) }
	slices.SortStableFunc(faults, func(a, b Fault) int {
		if a.File != b.File {
			return order(a.File) - order(b.File)
		}
		return a.Line - b.Line
	})
	// An element of a list that could not be decoded is empty, and check may report it again.
	type what struct {
		file, key string
		line      int
	}
	seen := make(map[what]bool)
	return Faults(slices.DeleteFunc(faults, func(f Fault) bool {
		w := what{f.File, f.Key, f.Line}
		again := seen[w] && f.Line > 0
		seen[w] = true
		return again
	}))
}
