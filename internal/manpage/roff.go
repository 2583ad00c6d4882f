package manpage

import (
	"fmt"
	"regexp"
	"strings"
)

// special holds the characters that roff replaces by others, or reads as commands. A dash is always
// one that can be copied into a command.
var special = strings.NewReplacer(`\`, `\(rs`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// longWord matches a word that may not fit a line.
var longWord = regexp.MustCompile(`\S{40,}`)

// escape returns text as roff that prints it. Long words may be broken after commas.
func escape(text string) string {
	var out strings.Builder
	for _, r := range special.Replace(text) {
		if r < 0x80 {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, `\[u%04X]`, r)
		}
	}
	return longWord.ReplaceAllStringFunc(out.String(), func(word string) string { return strings.ReplaceAll(word, ",", `,\:`) })
}

// quote returns text as one argument of a macro.
func quote(text string) string { return `"` + strings.ReplaceAll(escape(text), `"`, `\(dq`) + `"` }

func bold(text string) string   { return `\fB` + escape(text) + `\fR` }
func italic(text string) string { return `\fI` + escape(text) + `\fR` }

// guard keeps roff from reading a line of text as a request.
func guard(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
