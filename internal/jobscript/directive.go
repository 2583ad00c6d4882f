package jobscript

import (
	"bytes"
	"fmt"
	"iter"
	"strings"
)

// Directive is one #GSUB or #SBATCH line of a script.
type Directive struct {
	Line   int  // counted from 1
	Slurm  bool // a #SBATCH line
	Words  []string
	Broken string // why it cannot be split into words; "" when it can
}

// Directives finds the #GSUB and #SBATCH lines before the first line that is
// neither comment nor blank. A wrapped command has none. O(lines read).
func (s Script) Directives() []Directive {
	var found []Directive
	for n, line := range s.comments() {
		for _, mark := range []string{"#GSUB", "#SBATCH"} {
			tail, ok := cutMark(line, mark)
			if !ok {
				continue
			}
			d := Directive{Line: n, Slurm: mark == "#SBATCH"}
			words, err := split(string(tail))
			if err != nil {
				d.Broken = err.Error()
			}
			d.Words = words
			found = append(found, d)
		}
	}
	return found
}

// cutMark returns what follows the mark of a directive. A blank must separate them, except before an
// option after #SBATCH, which sbatch reads too.
func cutMark(line []byte, mark string) (tail []byte, ok bool) {
	tail, ok = bytes.CutPrefix(line, []byte(mark))
	apart := len(tail) == 0 || tail[0] == ' ' || tail[0] == '\t' || tail[0] == '-' && mark == "#SBATCH"
	return tail, ok && apart
}

// comments are the lines before the first that is neither comment nor blank, counted from 1.
func (s Script) comments() iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if s.Name == wrapped {
			return
		}
		rest := s.Text
		for n := 1; len(rest) > 0; n++ {
			var line []byte
			line, rest, _ = bytes.Cut(rest, []byte("\n"))
			text := bytes.TrimSpace(line)
			if len(text) > 0 && text[0] != '#' || !yield(n, line) {
				return
			}
		}
	}
}

// nearly warns of comments that look like #GSUB lines and are none: # GSUB --x, #gsub --x,
// #GSUB--x. It is no fault: so an option may be taken out for a while.
func (s Script) nearly() (warnings []string) {
	const mark = "GSUB"
	for n, line := range s.comments() {
		text := strings.TrimLeft(strings.TrimPrefix(strings.TrimSpace(string(line)), "#"), " \t")
		if len(text) <= len(mark) || !strings.EqualFold(text[:len(mark)], mark) {
			continue
		}
		after := text[len(mark):]
		options := strings.TrimLeft(after, " \t")
		apart := len(options) < len(after)
		if !strings.HasPrefix(options, "-") || apart && bytes.HasPrefix(line, []byte("#"+mark)) {
			continue
		}
		if !apart && len(options) > 2 && options[1] != '-' && options[2] != ' ' { // such as gsub-wrapper
			continue
		}
		warnings = append(warnings, fmt.Sprintf("%s:%d: ignored comment; did you mean %.80q?", printable(s.Name), n, "#"+mark+" "+options))
	}
	return warnings
}

// lateDirectives warns of #GSUB and #SBATCH lines with options after the first command, which set nothing.
// One warning names the first of them. O(lines).
func (s Script) lateDirectives() []string {
	if s.Name == wrapped {
		return nil
	}
	command, n := 0, 0
	for line := range bytes.Lines(s.Text) {
		n++
		text := bytes.TrimSpace(line)
		if command == 0 && len(text) > 0 && text[0] != '#' {
			command = n
		}
		if command > 0 && isDirective(line) {
			return []string{fmt.Sprintf("%s:%d: ignored: options must precede the first command (line %d); move this line up", printable(s.Name), n, command)}
		}
	}
	return nil
}

// isDirective reports whether a line would be a directive with options above the first command.
func isDirective(line []byte) bool {
	for _, mark := range []string{"#GSUB", "#SBATCH"} {
		if tail, found := cutMark(line, mark); found && bytes.HasPrefix(bytes.TrimSpace(tail), []byte("-")) {
			return true
		}
	}
	return false
}

// split cuts a line into words as a shell does, with quotes and backslashes but
// without expansion. A # that begins a word ends the line.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inside := false // a word has begun, if only with an empty quote
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == ' ' || c == '\t' || c == '\r':
			if inside {
				words = append(words, word.String())
			}
			word.Reset()
			inside = false
		case c == '#' && !inside:
			return words, nil
		case c == '\\':
			if i++; i < len(line) {
				word.WriteByte(line[i])
			}
			inside = true
		case c == '\'' || c == '"':
			n, err := quoted(line[i:], &word)
			if err != nil {
				return nil, fmt.Errorf("character %d: %w", i+1, err)
			}
			i += n
			inside = true
		default:
			word.WriteByte(c)
			inside = true
		}
	}
	if inside {
		words = append(words, word.String())
	}
	return words, nil
}

// quoted writes what stands in the quotes at the start of text, and returns the
// offset of the closing one. In double quotes a backslash keeps " and \ as they are.
func quoted(text string, word *strings.Builder) (int, error) {
	mark := text[0]
	for i := 1; i < len(text); i++ {
		c := text[i]
		switch {
		case c == mark:
			return i, nil
		case c == '\\' && mark == '"' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			word.WriteByte(text[i])
		default:
			word.WriteByte(c)
		}
	}
	return 0, fmt.Errorf("the quote %c is not closed", mark)
}
