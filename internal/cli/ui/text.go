package ui

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/greylag/greylag/pkg/cluster"
)

// Printable returns text that is safe on a terminal: control characters, invalid bytes and
// characters that change the writing direction are escaped. Job names and comments are other users'
// text. O(length), no allocation for plain text.
func Printable(text string) string {
	if plain(text) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case !harmful(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Count formats a number with its noun: 1 node, 2 nodes, 2 entries.
func Count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, is := strings.CutSuffix(noun, "ry"); is {
		noun = stem + "rie"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c >= 0x7f {
			return utf8.ValidString(text) && !strings.ContainsFunc(text, harmful)
		}
	}
	return true
}

// harmful are control and format characters, and line ends: format characters reverse or hide text.
func harmful(r rune) bool { return cluster.UnsafeToDisplay(r) || unicode.Is(unicode.Cf, r) }

// Columns returns how many columns text takes on a terminal.
func Columns(text []byte) int {
	for _, c := range text {
		if c >= utf8.RuneSelf {
			return wideSpan(text)
		}
	}
	return len(text)
}

func wideSpan(text []byte) int {
	n := 0
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		n += runeSpan(r)
		text = text[size:]
	}
	return n
}

// runeSpan is 2 for the wide characters of East Asia and pictographs, 0 for combining marks.
// Source: Unicode Standard Annex #11.
func runeSpan(r rune) int {
	switch {
	case unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r):
		return 0
	case r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf && r != 0x303f || r >= 0xac00 && r <= 0xd7a3 ||
		r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 ||
		r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1f64f || r >= 0x1f900 && r <= 0x1f9ff || r >= 0x20000 && r <= 0x3fffd):
		return 2
	}
	return 1
}

// CutColumns truncates text to at most columns, never within a character.
func CutColumns(text []byte, columns int) []byte {
	if len(text) <= columns {
		return text
	}
	n := 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if n += runeSpan(r); n > columns {
			return text[:i]
		}
		i += size
	}
	return text
}

// AppendPrintable appends text as [Printable] returns it.
func AppendPrintable(dst []byte, text string) []byte { return append(dst, Printable(text)...) }
