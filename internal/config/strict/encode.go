package strict

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Shown is a type that is written in another form than TOML would.
type Shown interface{ Write() any }

// EncodeTable returns a struct with the same keys whose durations and sizes are in quotes, with a
// unit. It leaves out empty tables with the tag empty:"omit", so that they can be added below by
// hand, which TOML refuses after "reservation = []".
func EncodeTable(v reflect.Value) reflect.Value {
	var fields []reflect.StructField
	var values []reflect.Value
	for i := range v.NumField() {
		field, value := v.Type().Field(i), EncodeValue(v.Field(i))
		if field.Tag.Get("empty") == "omit" && value.Len() == 0 {
			continue
		}
		values = append(values, value)
		fields = append(fields, reflect.StructField{Name: field.Name, Type: value.Type(), Tag: field.Tag})
	}
	out := reflect.New(reflect.StructOf(fields)).Elem()
	for i := range values {
		out.Field(i).Set(values[i])
	}
	return out
}

// EncodeValue returns a value in the form that TOML writes as [Decode] reads it.
func EncodeValue(v reflect.Value) reflect.Value {
	switch x := v.Interface().(type) {
	case Shown:
		return reflect.ValueOf(x.Write())
	case time.Duration:
		return reflect.ValueOf(FormatDuration(x))
	case cluster.Bytes:
		return reflect.ValueOf(formatBytes(x))
	case []string:
		return reflect.ValueOf(append([]string{}, x...)) // a list without elements is written too
	}
	if v.Kind() == reflect.Struct {
		return EncodeTable(v)
	}
	if v.Kind() != reflect.Slice {
		return v
	}
	tables := make([]any, v.Len())
	for i := range tables {
		tables[i] = EncodeTable(v.Index(i)).Interface()
	}
	return reflect.ValueOf(tables)
}

// FormatDuration writes a duration as parseDuration reads it, days first.
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	days := ""
	if d >= day {
		days = strconv.FormatInt(int64(d/day), 10) + "d"
		if d %= day; d == 0 {
			return days
		}
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return days + text
}

// formatBytes writes a size as the decoder reads it, always with a unit.
func formatBytes(b cluster.Bytes) string {
	text := b.String()
	if b != 0 && strings.Trim(text, "0123456789") == "" {
		text += "B"
	}
	return text
}
