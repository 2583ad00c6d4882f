// Package slurmconf reads Slurm's configuration: files of KEY=VALUE lines such as slurm.conf, with
// their includes, the output of sacctmgr dump, and tables that sacctmgr prints.
//
// It decides how a text is divided into lines, keys and values, and reports every malformed line
// with its file and number. It gives no key a meaning: the package mapping does.
package slurmconf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/config/strict"
)

// Bounds of all files that one call reads.
const (
	MaxSize  = 64 << 20 // bytes
	maxFiles = 1000
	maxDepth = 16 // of includes
	// maxFaults is how many faults are collected: a file of another kind has one a line.
	maxFaults = 100
)

// Pair is a key and its value. The key is as written; compare it with strings.EqualFold.
type Pair struct{ Key, Value string }

// Line is a line, with those that continue it.
type Line struct {
	File   string
	Number int // of its first line, from 1
	Pairs  []Pair
}

// Value returns the value of a key in any case, and whether the line has it. The last one counts.
func (l *Line) Value(key string) (string, bool) {
	for _, p := range slices.Backward(l.Pairs) {
		if strings.EqualFold(p.Key, key) {
			return p.Value, true
		}
	}
	return "", false
}

// reader collects the lines and faults of a file and its includes.
type reader struct {
	lines   []Line
	faults  strict.Faults
	dir     string   // of the first file
	stack   []string // files that are being read
	files   int
	size    int64
	cluster string // the value of ClusterName so far
}

// Read reads a file of KEY=VALUE lines and the files that it includes. The error is strict.Faults:
// malformed lines, missing includes, include loops and files that are too large.
func Read(path string) ([]Line, error) {
	r := &reader{dir: filepath.Dir(path)}
	r.file(path, "", 0)
	if len(r.faults) > 0 {
		return nil, r.faults
	}
	return r.lines, nil
}

func (r *reader) fault(file string, line int, format string, args ...any) {
	switch len(r.faults) {
	case maxFaults:
		r.faults = append(r.faults, strict.Fault{File: file, Line: line, Problem: "too many faults: reading stopped"})
	case maxFaults + 1:
	default:
		r.faults = append(r.faults, strict.Fault{File: file, Line: line, Problem: fmt.Sprintf(format, args...)})
	}
}

// stopped reports whether no more is read.
func (r *reader) stopped() bool { return len(r.faults) > maxFaults }

// file reads one file, which a line of another includes; from is "" for the first.
func (r *reader) file(path, from string, line int) {
	if from == "" {
		from = path
	}
	if r.files++; r.files > maxFiles {
		r.fault(from, line, "more than %d files", maxFiles)
		return
	}
	text, err := readBounded(path, MaxSize-r.size)
	if err != nil {
		r.fault(from, line, "%v", err)
		return
	}
	r.size += int64(len(text))
	r.stack = append(r.stack, path)
	r.text(path, text)
	r.stack = r.stack[:len(r.stack)-1]
}

// errTooLarge is returned for files beyond MaxSize in total.
var errTooLarge = fmt.Errorf("the files are larger than %d MiB in total", MaxSize>>20)

func readBounded(path string, most int64) (string, error) {
	info, err := os.Stat(path) // before opening: a pipe would block
	switch {
	case err != nil:
		return "", inWords(err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a file", path)
	case info.Size() > most:
		return "", errTooLarge
	}
	f, err := os.Open(path)
	if err != nil {
		return "", inWords(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = errTooLarge
	}
	return strings.ToValidUTF8(string(text), "\uFFFD"), err
}

// inWords describes why a file cannot be opened.
func inWords(err error) error {
	if at, is := errors.AsType[*fs.PathError](err); is && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no file %s", at.Path)
	}
	return err
}

// text reads the lines of a file.
func (r *reader) text(path, text string) {
	number, start := 0, 0
	var whole strings.Builder
	for raw := range strings.Lines(text) {
		if r.stopped() {
			return
		}
		number++
		if whole.Len() == 0 {
			start = number
		}
		part := withoutComment(strings.TrimRight(raw, "\r\n"))
		if before, goes := strings.CutSuffix(strings.TrimRight(part, " \t"), `\`); goes {
			whole.WriteString(before + " ")
			continue
		}
		r.line(path, start, whole.String()+part)
		whole.Reset()
	}
	r.line(path, start, whole.String())
}

// withoutComment cuts a line at the first "#" without a backslash before it.
func withoutComment(line string) string {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '#':
			return line[:i]
		}
	}
	return line
}

func (r *reader) line(path string, number int, text string) {
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	if word, rest, _ := strings.Cut(text, " "); strings.EqualFold(word, "include") && !strings.HasPrefix(strings.TrimSpace(rest), "=") {
		r.include(path, number, strings.TrimSpace(rest))
		return
	}
	pairs, err := ParsePairs(text)
	if err != nil {
		r.fault(path, number, "%v", err)
		return
	}
	l := Line{path, number, pairs}
	if name, set := l.Value("ClusterName"); set {
		r.cluster = name
	}
	r.lines = append(r.lines, l)
}

// include reads a file that a line names: relative to the folder of the first file, and from a copy
// of the folder if the absolute path does not exist.
func (r *reader) include(path string, number int, name string) {
	name = strings.ReplaceAll(strings.Trim(name, `"`), "%c", r.cluster)
	switch {
	case name == "":
		r.fault(path, number, "Include names no file")
		return
	case !filepath.IsAbs(name):
		name = filepath.Join(r.dir, name)
	default:
		if near := filepath.Join(r.dir, filepath.Base(name)); !exists(name) && exists(near) {
			name = near
		}
	}
	switch {
	case slices.Contains(r.stack, name):
		r.fault(path, number, "include loop: %s includes itself", name)
	case len(r.stack) >= maxDepth:
		r.fault(path, number, "includes are more than %d deep", maxDepth)
	default:
		r.file(name, path, number)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// ErrMalformed is wrapped by every error about the syntax of a line.
var ErrMalformed = errors.New("malformed line")

// ParsePairs reads a line without its comment: KEY=VALUE words, values in double quotes if they
// hold blanks. Blanks around "=" and the operators "+=" and "-=" are accepted.
func ParsePairs(text string) ([]Pair, error) {
	var pairs []Pair
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		at := strings.IndexFunc(text, func(c rune) bool { return !isKey(c) })
		if at <= 0 {
			return nil, fmt.Errorf("%w: %q is not KEY=VALUE", ErrMalformed, firstWord(text))
		}
		key, rest := text[:at], strings.TrimLeft(text[at:], " \t")
		rest = strings.TrimLeft(rest, "+-*/")
		if !strings.HasPrefix(rest, "=") {
			return nil, fmt.Errorf("%w: %q is not KEY=VALUE", ErrMalformed, firstWord(text))
		}
		value, after, err := cutValue(rest[1:])
		if err != nil {
			return nil, fmt.Errorf("%w of %s", err, key)
		}
		pairs, text = append(pairs, Pair{key, value}), after
	}
	return pairs, nil
}

// cutValue returns the value at the start of a text, and what follows it.
func cutValue(text string) (value, rest string, err error) {
	trimmed := strings.TrimLeft(text, " \t")
	if quoted, is := strings.CutPrefix(trimmed, `"`); is {
		value, rest, closed := strings.Cut(quoted, `"`)
		if !closed {
			return "", "", fmt.Errorf("%w: no closing quote in the value", ErrMalformed)
		}
		return value, rest, nil
	}
	end := strings.IndexAny(trimmed, " \t")
	if end < 0 {
		end = len(trimmed)
	}
	if word := trimmed[:end]; len(trimmed) < len(text) && strings.Contains(word, "=") { // KEY= OTHER=VALUE
		return "", trimmed, nil
	}
	return strings.ReplaceAll(trimmed[:end], `\#`, "#"), trimmed[end:], nil
}

func isKey(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.'
}

func firstWord(text string) string {
	word := strings.Fields(text)[0]
	return word[:min(len(word), 60)]
}
