package strict

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// place is where a key was set last.
type place struct {
	file string
	line int
}

// document is all files merged: the values, and where each was set by its dotted path. Elements of
// lists have paths like simulated_gpus[0].count.
type document struct {
	values map[string]any
	places map[string]place
	faults []Fault
}

func newDocument() *document {
	return &document{values: make(map[string]any), places: make(map[string]place)}
}

// add merges one file into the document. A file with wrong syntax adds its fault and no values.
func (d *document) add(file string, text []byte) {
	values := make(map[string]any)
	if err := toml.Unmarshal(text, &values); err != nil {
		line := 0
		var at *toml.DecodeError
		if errors.As(err, &at) {
			line, _ = at.Position()
		}
		d.faults = append(d.faults, Fault{File: file, Line: line, Problem: strings.TrimPrefix(err.Error(), "toml: ")})
		return
	}
	merge(d.values, values)
	w := walker{file: file, text: text, places: d.places, counts: make(map[string]int), line: 1}
	w.walk()
}

func merge(into, from map[string]any) {
	for key, value := range from {
		table, isTable := value.(map[string]any)
		there, wasTable := into[key].(map[string]any)
		if isTable && wasTable {
			merge(there, table)
		} else {
			into[key] = value
		}
	}
}

// walker records the line of every key of one file.
type walker struct {
	file   string
	text   []byte
	places map[string]place
	counts map[string]int // elements seen of each [[list]]
	prefix string
	offset int // line is the line of this byte
	line   int
	parser unstable.Parser
}

func (w *walker) walk() {
	w.parser.Reset(w.text)
	for w.parser.NextExpression() {
		switch e := w.parser.Expression(); e.Kind {
		case unstable.Table:
			w.prefix = w.path("", e.Key())
		case unstable.ArrayTable:
			list := w.path("", e.Key())
			w.prefix = list + "[" + strconv.Itoa(w.counts[list]) + "]"
			w.counts[list]++
			w.places[w.prefix] = w.places[list]
		case unstable.KeyValue:
			w.keyValue(w.prefix, e)
		}
	}
}

func (w *walker) keyValue(prefix string, kv *unstable.Node) {
	w.value(w.path(prefix, kv.Key()), kv.Value())
}

// value records the keys inside a value: inline tables, and lists of them.
func (w *walker) value(path string, v *unstable.Node) {
	n := 0
	for it := v.Children(); (v.Kind == unstable.InlineTable || v.Kind == unstable.Array) && it.Next(); {
		switch child := it.Node(); {
		case child.Kind == unstable.Comment:
		case v.Kind == unstable.InlineTable:
			w.keyValue(path, child)
		default:
			element := fmt.Sprintf("%s[%d]", path, n)
			w.places[element] = place{w.file, w.line}
			w.value(element, child)
			n++
		}
	}
}

// path records the line of each part of a key and returns the whole as a path. A part that names a
// [[list]] stands for the list's last element.
func (w *walker) path(prefix string, keys unstable.Iterator) string {
	for keys.Next() {
		if n := w.counts[prefix]; n > 0 {
			prefix += "[" + strconv.Itoa(n-1) + "]"
		}
		key := keys.Node()
		prefix = Join(prefix, string(key.Data))
		start := int(key.Raw.Offset)
		if start >= w.offset {
			w.line += bytes.Count(w.text[w.offset:start], []byte("\n"))
			w.offset = start
		}
		w.places[prefix] = place{w.file, w.line}
	}
	return prefix
}

// Join returns the path of a key in a table.
func Join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}
