// Package configtest checks a page of the configuration reference (docs/config) against the struct
// that a file is read into: each key has one row with its type and default, and the file is refused
// right outside each documented range.
//
// It reads the rows of a page's tables whose first cell is one key: | `key` | type | default | range |
// meaning |. Types and defaults are written by -rewrite; ranges and meanings are written by people. It
// is for tests only.
package configtest

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// Page is one page and the file that it describes.
type Page struct {
	Text     string // of the page
	Defaults any    // struct with the tags toml and one; elements of lists have the zero value by default
	// Write formats a value for the file.
	Write func(v reflect.Value) string
	// Types names the types that are not a Go kind, a duration, a size or a list of strings.
	Types map[string]string
	// Load reads a file, and returns its faults as text.
	Load func(text string) string
	// Elements holds, for each list of tables, the keys that an element needs.
	Elements map[string]string
}

// row is a row of the reference.
type row struct {
	key, kind, standard, limits, meaning string
	line                                 int
}

var rowPattern = regexp.MustCompile("^\\| `([a-z_.]+)` \\| (.*?) \\| (.*?) \\| (.*?) \\| (.*) \\|$")

// rows returns the rows of a page by key.
func rows(text string) (byKey map[string]row, order []string) {
	byKey = map[string]row{}
	for i, line := range strings.Split(text, "\n") {
		if m := rowPattern.FindStringSubmatch(line); m != nil {
			byKey[m[1]] = row{m[1], m[2], m[3], m[4], m[5], i}
			order = append(order, m[1])
		}
	}
	return byKey, order
}

// key is a key of a struct.
type key struct {
	path, kind, standard string
	words                string // of the tag one
	list                 string // path of the list of tables that it is in
}

// keys returns the keys of the page's struct in order.
func (p *Page) keys() []key {
	return p.appendKeys(nil, "", "", reflect.ValueOf(p.Defaults))
}

func (p *Page) appendKeys(all []key, prefix, list string, v reflect.Value) []key {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name := field.Tag.Get("toml")
		if name == "" || name == "-" {
			continue
		}
		path, value := strings.TrimPrefix(prefix+"."+name, "."), v.Field(i)
		kind, known := p.kindOf(field.Type)
		switch {
		case known:
			standard := p.Write(value)
			all = append(all, key{path, kind, "`" + standard + "`", field.Tag.Get("one"), list})
		case field.Type.Kind() == reflect.Struct:
			all = p.appendKeys(all, path, list, value)
		default: // a list of tables
			all = p.appendKeys(all, path, path, reflect.New(field.Type.Elem()).Elem())
		}
	}
	return all
}

// kindOf returns the documented name of a type; false for tables, which are described key by key.
func (p *Page) kindOf(t reflect.Type) (string, bool) {
	if kind, ok := p.Types[t.Name()]; ok && t.Name() != "" {
		return kind, true
	}
	switch t.Kind() {
	case reflect.String:
		return "string", true
	case reflect.Bool:
		return "boolean", true
	case reflect.Int:
		return "integer", true
	case reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			return "list of strings", true
		}
		if t.Elem().Kind() == reflect.Int {
			return "list of integers", true
		}
	}
	return "", false
}

// Update returns the page with the present types and defaults; a default that people described in
// words stays.
func (p *Page) Update() string {
	lines := strings.Split(p.Text, "\n")
	byKey, _ := rows(p.Text)
	for _, k := range p.keys() {
		if r, ok := byKey[k.path]; ok {
			if r.standard != "" && !strings.HasPrefix(r.standard, "`") {
				k.standard = r.standard
			}
			lines[r.line] = fmt.Sprintf("| `%s` | %s | %s | %s | %s |", r.key, k.kind, k.standard, r.limits, r.meaning)
		}
	}
	return strings.Join(lines, "\n")
}

// Faults returns what is wrong with the page.
func (p *Page) Faults() []string {
	var faults []string
	fault := func(k, format string, args ...any) {
		faults = append(faults, k+": "+fmt.Sprintf(format, args...))
	}
	byKey, order := rows(p.Text)
	if len(byKey) != len(order) {
		fault("page", "a key has two rows")
	}
	known := map[string]bool{}
	for _, k := range p.keys() {
		known[k.path] = true
		r, ok := byKey[k.path]
		switch {
		case !ok:
			fault(k.path, "has no row; add: | `%s` | %s | %s | RANGE | MEANING |", k.path, k.kind, k.standard)
			continue
		case r.kind != k.kind:
			fault(k.path, "type is %s, want %s (-rewrite)", r.kind, k.kind)
		case strings.HasPrefix(r.standard, "`") && r.standard != k.standard:
			fault(k.path, "default is %s, want %s (-rewrite)", r.standard, k.standard)
		case r.standard == "" || r.limits == "" || r.meaning == "":
			fault(k.path, "has an empty cell")
		}
		if want := "`" + strings.ReplaceAll(k.words, ",", "`, `") + "`"; k.words != "" && r.limits != want {
			fault(k.path, "range is %s, want %s", r.limits, want)
		}
		for _, problem := range p.checkRange(k, r.limits) {
			fault(k.path, "%s", problem)
		}
	}
	for _, name := range order {
		if !known[name] {
			fault(name, "is not a key of the file")
		}
	}
	return faults
}
