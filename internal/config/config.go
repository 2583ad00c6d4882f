// Package config reads the one file that each daemon and the client have, and the drop-ins beside it.
//
// It decides, from the files' text and nothing else, what every setting is, and finds every fault in
// them at once, each with its file and line: wrong syntax, unknown keys, values of the wrong kind,
// values that make no sense together. It never opens what a setting names, never dials, and holds no
// policy of the cluster: partitions, limits and timeouts that all controllers must agree on are
// replicated state, not files. The only file that it writes by itself is the drop-in that names the
// controllers to the commands.
//
// Every key has a default, so an absent file is a valid one. NAME.toml may have a folder NAME.d beside
// it; its *.toml files are read in the order of their names, and a later file's value replaces an
// earlier one's, key by key; lists are replaced whole. Durations are written "90s", "5m", "7d", sizes
// "64GiB".
//
// The values are decoded here and not by the TOML module's own decoder, because that one stops at the
// first value of the wrong kind.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// maxFile bounds a file; a real one has a few KiB.
const maxFile = 256 << 10

// Fault is one thing that is wrong in a file. Line is 0 where no line is to blame, as when a default
// clashes with what was set.
type Fault struct {
	File    string
	Line    int
	Key     string // dotted, such as raft.profile; "" for bad syntax
	Problem string
}

// String is "file:line: key: problem".
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

// Faults is the error for files that were read but are wrong: all faults, in the order of files and
// lines.
type Faults []Fault

// Error is one fault a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// settings is what each kind of file decodes into.
type settings interface {
	// check reports values that make no sense, and fills in what follows from the host.
	check(*checker)
}

// load reads path and its drop-ins into cfg, which holds the defaults. Only an optional main file may
// be absent. Faults come back as Faults; other errors mean that a file could not be read.
func load(path string, optional bool, cfg settings) error {
	doc := newDocument()
	files, err := filesOf(path, optional)
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := readFile(file)
		if err != nil {
			return err
		}
		doc.add(file, text)
	}
	c := &checker{main: path, doc: doc}
	d := decoder{doc: doc}
	d.table("", doc.values, reflect.ValueOf(cfg).Elem())
	cfg.check(c)
	if faults := inOrder(files, doc.faults, d.faults, c.faults); len(faults) > 0 {
		return faults
	}
	return nil
}

// inOrder joins faults by file and line, each place and key once.
func inOrder(files []string, lists ...[]Fault) Faults {
	faults := slices.Concat(lists...)
	order := func(file string) int { return slices.Index(files, file) }
	slices.SortStableFunc(faults, func(a, b Fault) int {
		if a.File != b.File {
			return order(a.File) - order(b.File)
		}
		return a.Line - b.Line
	})
	// A list's element that could not be decoded is empty, which check may well dislike too.
	type what struct {
		file, key string
		line      int
	}
	told := make(map[what]bool)
	return Faults(slices.DeleteFunc(faults, func(f Fault) bool {
		w := what{f.File, f.Key, f.Line}
		again := told[w] && f.Line > 0
		told[w] = true
		return again
	}))
}

// filesOf lists the file and its drop-ins in the order in which they count.
func filesOf(path string, optional bool) ([]string, error) {
	var files []string
	switch _, err := os.Stat(path); {
	case err == nil:
		files = append(files, path)
	case !optional || !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	dir := dropIns(path)
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".toml") && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// dropIns returns the folder of a file's drop-ins.
func dropIns(path string) string { return strings.TrimSuffix(path, ".toml") + ".d" }

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFile {
		return nil, fmt.Errorf("read configuration: %s has %d bytes, at most %d", path, info.Size(), maxFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return text, nil
}

// pick returns the path to read and whether it may be absent: one that somebody named may not.
func pick(path, standard string) (string, bool) {
	if path == "" {
		return standard, true
	}
	return path, false
}
