// Package hostlist parses and formats sets of host names in Slurm's short form,
// gpu[001-128],login1.
//
// It expands and folds names from the text alone. It never looks up a name and never decides
// whether a host exists.
//
// Grammar: a list is terms separated by commas. A term is text with any number of bracket groups. A
// group is numbers and ranges separated by commas. The width of a range's first number is kept with
// its leading zeros: [08-11] is 08 09 10 11, [8-11] is 8 9 10 11. Several groups in a term
// multiply; the last one varies fastest.
package hostlist

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Most is the maximum number of names of one expression, far above any cluster. It bounds the
// memory that a short text can demand.
const Most = 100_000

// Limits of the text.
const (
	maxText   = 1 << 20
	maxName   = 256 // a host name has at most 253
	maxDigits = 18  // fits uint64 and leaves space for the next number
)

// ErrBadList means that a text is not a host list or has too many names.
var ErrBadList = errors.New("not a host list")

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadList, fmt.Sprintf(format, args...))
}

// Expand returns the names of an expression in the order written, with duplicates. The empty
// expression has none. Errors wrap ErrBadList. O(length of the result).
func Expand(expr string) ([]string, error) {
	if len(expr) > maxText {
		return nil, bad("%d characters are too many", len(expr))
	}
	if strings.TrimSpace(expr) == "" {
		return nil, nil
	}
	terms, err := split(expr)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, term := range terms {
		if names, err = expandTerm(names, strings.TrimSpace(term)); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// split splits the text at the commas outside brackets.
func split(expr string) ([]string, error) {
	var terms []string
	start, inside := 0, false
	for i := range len(expr) {
		switch c := expr[i]; {
		case c == '[' && inside:
			return nil, bad("a bracket inside brackets at character %d of %q", i+1, shorten(expr))
		case c == ']' && !inside:
			return nil, bad("a closing bracket without an opening one at character %d of %q", i+1, shorten(expr))
		case c == '[' || c == ']':
			inside = c == '['
		case c == ',' && !inside:
			terms = append(terms, expr[start:i])
			start = i + 1
		}
	}
	if inside {
		return nil, bad("a bracket is not closed in %q", shorten(expr))
	}
	return append(terms, expr[start:]), nil
}

// expandTerm appends the names of one term to names.
func expandTerm(names []string, term string) ([]string, error) {
	if term == "" {
		return nil, bad("an empty name: two commas in a row, or one at an end")
	}
	stems := []string{""}
	for rest := term; rest != ""; {
		open := strings.IndexByte(rest, '[')
		text := rest
		if open >= 0 {
			text = rest[:open]
		}
		if err := checkText(text); err != nil {
			return nil, err
		}
		parts := []string{text}
		rest = rest[len(text):]
		if open >= 0 {
			closed := strings.IndexByte(rest, ']') // split guarantees it
			numbers, err := expandGroup(rest[1:closed])
			if err != nil {
				return nil, fmt.Errorf("%w in %q", err, shorten(term))
			}
			for i, n := range numbers {
				numbers[i] = text + n
			}
			parts, rest = numbers, rest[closed+1:]
		}
		if len(names)+len(stems)*len(parts) > Most {
			return nil, bad("more than %d names in %q", Most, shorten(term))
		}
		stems = multiply(stems, parts)
		if len(stems[0]) > maxName {
			return nil, bad("a name of more than %d characters", maxName)
		}
	}
	return append(names, stems...), nil
}

func multiply(stems, parts []string) []string {
	if len(stems) == 1 && stems[0] == "" {
		return parts
	}
	all := make([]string, 0, len(stems)*len(parts))
	for _, s := range stems {
		for _, p := range parts {
			all = append(all, s+p)
		}
	}
	return all
}

// expandGroup returns the numbers of one bracket group as text.
func expandGroup(group string) ([]string, error) {
	var numbers []string
	for part := range strings.SplitSeq(group, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		from, err := number(lo)
		if err != nil {
			return nil, err
		}
		to, err := number(hi)
		if err != nil {
			return nil, err
		}
		padded := lo[0] == '0' && len(lo) > 1 || hi[0] == '0' && len(hi) > 1
		switch {
		case padded && len(lo) != len(hi):
			return nil, bad("%s: numbers with leading zeros need the same number of digits", part)
		case from > to:
			return nil, bad("%s: the range runs backwards", part)
		case to-from >= Most || len(numbers)+int(to-from) >= Most:
			return nil, bad("%s: more than %d names", part, Most)
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, pad(n, len(lo)))
		}
	}
	return numbers, nil
}

func number(digits string) (uint64, error) {
	if digits == "" || len(digits) > maxDigits {
		return 0, bad("%q is not a number or a range", shorten(digits))
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, bad("%q is not a number", shorten(digits))
		}
	}
	return strconv.ParseUint(digits, 10, 64)
}

// pad formats n with at least width digits.
func pad(n uint64, width int) string {
	s := strconv.FormatUint(n, 10)
	if len(s) < width {
		s = strings.Repeat("0", width-len(s)) + s
	}
	return s
}

// checkText refuses characters that host names cannot have: spaces, control characters and
// non-ASCII.
func checkText(text string) error {
	if len(text) > maxName {
		return bad("a name of more than %d characters", maxName)
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f {
			return bad("character %q is not allowed in a host name", text[i])
		}
	}
	return nil
}

// shorten limits the length of a text in a message.
func shorten(s string) string {
	if len(s) > 60 {
		return s[:57] + "..."
	}
	return s
}
