package report

import (
	"strconv"
	"strings"
)

// Text marks a column of text.
const Text = -1

// Column is one column of a table.
type Column struct {
	Name   string
	Digits int  // number of decimals, or Text
	Detail bool // omitted from the text format
	Seldom bool // shown only if a row has a value
}

// Value is one cell: text, or a number in units of the column's last decimal.
type Value struct {
	Text   string
	Number int64
	Null   bool // null, which is neither "" nor 0
}

// Table is a report before formatting.
type Table struct {
	Name    string
	Columns []Column
	Rows    [][]Value
}

// Word returns a cell with text.
func Word(s string) Value { return Value{Text: s} }

// Number returns a cell with a number.
func Number(n int64) Value { return Value{Number: n} }

// None returns a null cell.
func None() Value { return Value{Null: true} }

// row returns a row of texts and numbers.
func row(cells ...any) []Value {
	out := make([]Value, len(cells))
	for i, c := range cells {
		switch c := c.(type) {
		case string:
			out[i] = Word(c)
		case int64:
			out[i] = Number(c)
		case Value:
			out[i] = c
		}
	}
	return out
}

// plain formats a cell for text and CSV.
func (c Column) plain(v Value) string {
	switch {
	case v.Null:
		return ""
	case c.Digits == Text:
		return v.Text
	}
	return decimal(v.Number, c.Digits)
}

// decimal formats a number with the given number of decimals.
func decimal(n int64, digits int) string {
	if digits == 0 {
		return strconv.FormatInt(n, 10)
	}
	sign, s := "", strconv.FormatUint(magnitude(n), 10)
	if n < 0 {
		sign = "-"
	}
	if short := digits + 1 - len(s); short > 0 {
		s = strings.Repeat("0", short) + s
	}
	return sign + s[:len(s)-digits] + "." + s[len(s)-digits:]
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// scaled returns n × num / den, rounded half away from zero; den is positive.
func scaled(n, num, den int64) int64 {
	whole, rest := n/den*num, n%den*num
	half := den / 2
	if rest < 0 {
		half = -half
	}
	return whole + (rest+half)/den
}

// hours formats milliseconds as hours with three decimals.
func hours(millis int64) int64 { return scaled(millis, 1, 3600) }

// percent returns part of whole in percent with one decimal; null if whole is 0.
func percent(part, whole int64) Value {
	if whole <= 0 {
		return None()
	}
	for whole > 1<<52 || part > 1<<52 {
		part, whole = part>>1, whole>>1
	}
	return Number(scaled(part, 1000, whole))
}
