// Package parquet writes report tables as Apache Parquet.
//
// It decides the types of columns from the table: text is UTF-8, numbers are decimals with the
// table's scale, integers are 64-bit; every column is nullable. The same table gives the same
// bytes. It reads nothing, and decides nothing about the content of a table.
package parquet

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/parquet-go/parquet-go"

	"github.com/greylag/greylag/internal/report"
)

// precision is the number of decimal digits that every 64-bit number can hold.
const precision = 18

// Encode encodes a table, compressed with zstd.
func Encode(t *report.Table) ([]byte, error) {
	schema, err := schemaOf(t)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := parquet.NewWriter(&b, schema, parquet.CreatedBy("greylag", "1", "0"))
	rows := make([]parquet.Row, 0, len(t.Rows))
	for _, r := range t.Rows {
		line := make(parquet.Row, len(t.Columns))
		for i, c := range t.Columns {
			line[i] = valueOf(c, r[i]).Level(0, defined(r[i]), i)
		}
		rows = append(rows, line)
	}
	if _, err := w.WriteRows(rows); err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	return b.Bytes(), nil
}

func defined(v report.Value) int {
	if v.Null {
		return 0
	}
	return 1
}

func valueOf(c report.Column, v report.Value) parquet.Value {
	switch {
	case v.Null:
		return parquet.NullValue()
	case c.Digits == report.Text:
		return parquet.ByteArrayValue([]byte(v.Text))
	}
	return parquet.Int64Value(v.Number)
}

// schemaOf makes the schema through a struct type: groups of the library sort their
// columns by name, structs keep them in order.
func schemaOf(t *report.Table) (*parquet.Schema, error) {
	fields := make([]reflect.StructField, len(t.Columns))
	for i, c := range t.Columns {
		f := reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: reflect.TypeFor[int64]()}
		tag := c.Name + ",optional,zstd"
		switch {
		case c.Digits == report.Text:
			f.Type = reflect.TypeFor[string]()
		case c.Digits > 0:
			tag += fmt.Sprintf(",decimal(%d:%d)", c.Digits, precision)
		}
		f.Tag = reflect.StructTag(fmt.Sprintf("parquet:%q", tag))
		fields[i] = f
	}
	schema := parquet.SchemaOf(reflect.New(reflect.StructOf(fields)).Interface())
	if n := len(schema.Columns()); n != len(t.Columns) {
		return nil, fmt.Errorf("parquet: %d columns became %d", len(t.Columns), n)
	}
	return schema, nil
}
