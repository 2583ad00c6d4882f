// Package config reads the one file that each daemon and the commands have, and its drop-ins.
//
// It decides the value of every setting from the text of the files alone, and finds all faults at
// once, each with its file and line: wrong syntax, unknown keys, values of the wrong kind, values
// that contradict each other. It never opens what a setting names, never dials, and holds no policy
// of the cluster: partitions, limits and timeouts that all controllers must agree on are replicated
// state, not files. The only file that it writes by itself is the drop-in with the controllers for
// the commands.
//
// Every key has a default, so an absent file is valid. NAME.toml may have a directory NAME.d next
// to it. Its *.toml files are read in the order of their names. A value of a later file replaces
// that of an earlier one, key by key; lists are replaced whole. Durations are written "90s", "5m",
// "7d", sizes "64GiB".
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/greylag/greylag/internal/config/strict"
)

// maxFile is the largest size of a file; a real one has a few KiB.
const maxFile = 256 << 10

// settings is the target of each kind of file.
type settings interface {
	// check reports invalid values, and sets what follows from the host.
	check(*checker)
}

// load reads path and its drop-ins into cfg, which holds the defaults. Only an optional main file
// may be absent. Faults are returned as strict.Faults; other errors mean that a file could not be
// read.
func load(path string, optional bool, cfg settings) error {
	files, err := filesOf(path, optional)
	if err != nil {
		return err
	}
	sources := make([]strict.Source, len(files))
	for i, file := range files {
		text, err := readFile(file)
		if err != nil {
			return err
		}
		sources[i] = strict.Source{Name: file, Text: text}
	}
	faults := strict.Decode(path, sources, cfg, func(c *strict.Checker) { cfg.check(&checker{c}) })
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// filesOf returns the file and its drop-ins, the last one with priority.
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

// dropIns returns the directory of a file's drop-ins.
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

// pick returns the path to read and whether it may be absent: only the standard one may.
func pick(path, standard string) (string, bool) {
	if path == "" {
		return standard, true
	}
	return path, false
}
