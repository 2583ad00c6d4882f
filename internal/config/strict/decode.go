package strict

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Value is a type that decodes itself.
type Value interface {
	// Read stores the value of a key, or reports a fault and keeps the default.
	Read(d *Decoder, path string, value any)
}

// Decoder stores a document's values in a struct, and reports those that do not fit.
type Decoder struct {
	doc    *document
	faults []Fault
}

// Fault reports a problem with the value at a path.
func (d *Decoder) Fault(path, format string, args ...any) {
	at := d.doc.places[path]
	d.faults = append(d.faults, Fault{at.file, at.line, path, fmt.Sprintf(format, args...)})
}

func (d *Decoder) table(path string, values map[string]any, into reflect.Value) {
	fields := Keys(into.Type())
	for _, key := range slices.Sorted(maps.Keys(values)) {
		at := Join(path, key)
		i, ok := fields[key]
		if !ok {
			d.Fault(at, "unknown key%s", suggest(key, into.Type()))
			continue
		}
		field := into.Type().Field(i)
		d.value(at, values[key], into.Field(i))
		d.oneOf(at, field.Tag.Get("one"), values[key])
	}
}

// Keys maps the keys of a struct to its fields.
func Keys(t reflect.Type) map[string]int {
	fields := make(map[string]int)
	for i := range t.NumField() {
		if key := t.Field(i).Tag.Get("toml"); key != "" && key != "-" {
			fields[key] = i
		}
	}
	return fields
}

// oneOf requires that a text, or each of a list, is one of the words; none allow any.
func (d *Decoder) oneOf(path, words string, value any) {
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	all := strings.Split(words, ",")
	for _, element := range list {
		if text, isText := element.(string); words != "" && isText && !slices.Contains(all, text) {
			d.Fault(path, "%q is not one of: %s", text, strings.Join(all, ", "))
		}
	}
}

// value decodes one value, or reports that it is of the wrong kind and keeps the default. The cases
// are the kinds of fields that structs of files have.
func (d *Decoder) value(path string, value any, into reflect.Value) {
	switch target := into.Addr().Interface().(type) {
	case Value:
		target.Read(d, path, value)
		return
	case *time.Duration:
		d.Duration(path, value, target)
		return
	case *cluster.Bytes:
		d.bytes(path, value, target)
		return
	case *string:
		Assign(d, path, value, target)
		return
	case *bool:
		Assign(d, path, value, target)
		return
	case *int:
		n := int64(*target)
		Assign(d, path, value, &n)
		*target = int(n)
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		if table, isTable := value.(map[string]any); isTable {
			d.table(path, table, into)
		} else {
			d.Fault(path, "expected a table, found %s", Describe(value))
		}
	case reflect.Slice:
		d.List(path, value, into)
	default:
		d.Fault(path, "cannot be set in a file") // a field of a kind without a case above
	}
}

// Assign stores a value of exactly the required kind.
func Assign[T string | bool | int64](d *Decoder, path string, value any, into *T) {
	if v, ok := value.(T); ok {
		*into = v
		return
	}
	wanted := map[reflect.Kind]string{reflect.String: "a string in quotes", reflect.Bool: "true or false", reflect.Int64: "an integer"}
	d.Fault(path, "want %s, found %s", wanted[reflect.TypeFor[T]().Kind()], Describe(value))
}

// List decodes a list into a slice.
func (d *Decoder) List(path string, value any, into reflect.Value) {
	elements, ok := value.([]any)
	if !ok {
		d.Fault(path, "expected a list in brackets, found %s", Describe(value))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(elements), len(elements)))
	for i, element := range elements {
		d.value(path+"["+strconv.Itoa(i)+"]", element, into.Index(i))
	}
}

// Duration decodes a duration such as "1d12h".
func (d *Decoder) Duration(path string, value any, into *time.Duration) {
	text, ok := value.(string)
	if !ok {
		d.Fault(path, `want a duration in quotes, such as "90s", "5m" or "7d", found %s`, Describe(value))
		return
	}
	v, err := parseDuration(text)
	if err != nil {
		d.Fault(path, `%q is not a duration; write it like "90s", "5m", "1h30m" or "7d"`, text)
		return
	}
	*into = v
}

// maxDays keeps days far from overflow: 100 years.
const maxDays = 36500

// parseDuration reads Go's form, with days before it.
func parseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 32)
	if err != nil || n > maxDays {
		return 0, fmt.Errorf("bad days in %q", text)
	}
	total := time.Duration(n) * 24 * time.Hour
	if rest == "" {
		return total, nil
	}
	v, err := time.ParseDuration(rest)
	if v < 0 || v > maxDays*24*time.Hour {
		return 0, fmt.Errorf("bad rest in %q", text)
	}
	return total + v, err
}

func (d *Decoder) bytes(path string, value any, into *cluster.Bytes) {
	text, ok := value.(string)
	if !ok {
		d.Fault(path, `want a size in quotes, such as "64GiB", found %s`, Describe(value))
		return
	}
	v, err := cluster.ParseBytes(text, cluster.Bytes(1))
	if err != nil || text != "0" && strings.Trim(text, "0123456789") == "" {
		d.Fault(path, `%q is not a size; write it with its unit, like "64GiB" or "512MiB"`, text)
		return
	}
	*into = v
}

// Describe returns the kind of a value for messages.
func Describe(value any) string {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("the string %q", v)
	case int64:
		return fmt.Sprintf("the number %d", v)
	case float64:
		return fmt.Sprintf("the number %v", v)
	case bool:
		return fmt.Sprintf("%v", v)
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return fmt.Sprintf("the date or time %v", value)
}

// suggest returns the key that was probably meant: one whose field has the tag was:"KEY", or a key
// with at most two edits.
func suggest(key string, t reflect.Type) string {
	known := slices.Sorted(maps.Keys(Keys(t)))
	best, least := "", 3
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("was") == key {
			best, least = t.Field(i).Tag.Get("toml"), 0
		}
	}
	for _, k := range known {
		if n := distance(key, k); n < least && n < len(k) {
			best, least = k, n
		}
	}
	if best == "" {
		return "; known here: " + strings.Join(known, ", ")
	}
	return "; did you mean " + best + "?"
}

// distance is Levenshtein's distance in bytes; 64 if a key is longer than that. O(len²).
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
