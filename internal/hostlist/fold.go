package hostlist

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Compress folds names into the short form that Expand parses: sorted, without duplicates, and with
// the last group of digits as ranges. Expand(Compress(x)) equals x as a set. Names that Expand
// cannot parse (with commas, brackets or spaces) are returned unchanged. O(n log n).
func Compress(names []string) string {
	parts := make([]folded, 0, len(names))
	for _, name := range names {
		parts = append(parts, take(name))
	}
	findWidths(parts)
	slices.SortFunc(parts, compare)
	parts = slices.CompactFunc(parts, func(a, b folded) bool { return a.name() == b.name() })
	var b strings.Builder
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && parts[n].prefix == parts[0].prefix && parts[n].suffix == parts[0].suffix && parts[n].digits != "" && parts[0].digits != "" {
			n++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		writeGroup(&b, parts[:n])
		parts = parts[n:]
	}
	return b.String()
}

// folded is a name split at its last group of digits.
type folded struct {
	prefix, digits, suffix string
	value                  uint64
	width                  int // number of digits after padding; 0: not padded
}

func (f folded) name() string { return f.prefix + f.digits + f.suffix }

func take(name string) folded {
	end := strings.LastIndexAny(name, "0123456789") + 1
	start := end
	for start > 0 && name[start-1] >= '0' && name[start-1] <= '9' {
		start--
	}
	if end == 0 || end-start > maxDigits {
		return folded{prefix: name}
	}
	value, err := strconv.ParseUint(name[start:end], 10, 64)
	if err != nil {
		return folded{prefix: name}
	}
	return folded{prefix: name[:start], digits: name[start:end], suffix: name[end:], value: value}
}

// compare orders names so that names that may fold together are adjacent.
func compare(a, b folded) int {
	return cmp.Or(
		strings.Compare(a.prefix, b.prefix),
		strings.Compare(a.suffix, b.suffix),
		cmp.Compare(a.width, b.width),
		cmp.Compare(a.value, b.value),
		cmp.Compare(len(a.digits), len(b.digits)),
	)
}

// findWidths sets the padded width of each name. Names such as 100 in 098, 099, 100 take the width
// of their group.
func findWidths(parts []folded) {
	type run struct {
		prefix, suffix string
		width          int
	}
	padded := make(map[run]bool)
	for _, f := range parts {
		if len(f.digits) > 1 && f.digits[0] == '0' {
			padded[run{f.prefix, f.suffix, len(f.digits)}] = true
		}
	}
	for i, f := range parts {
		if padded[run{f.prefix, f.suffix, len(f.digits)}] {
			parts[i].width = len(f.digits)
		}
	}
}

// writeGroup writes names that share a prefix and a suffix.
func writeGroup(b *strings.Builder, group []folded) {
	b.WriteString(group[0].prefix)
	if len(group) == 1 {
		b.WriteString(group[0].digits)
		b.WriteString(group[0].suffix)
		return
	}
	b.WriteByte('[')
	for i := 0; i < len(group); {
		last := i
		for last+1 < len(group) && group[last+1].digits == pad(group[last].value+1, len(group[i].digits)) {
			last++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(group[i].digits)
		if last > i {
			b.WriteByte('-')
			b.WriteString(group[last].digits)
		}
		i = last + 1
	}
	b.WriteByte(']')
	b.WriteString(group[0].suffix)
}
