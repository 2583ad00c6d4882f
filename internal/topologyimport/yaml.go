package topologyimport

import (
	"strings"
)

// yamlNode is one value: fields, a list, or else text.
type yamlNode struct {
	line   int
	text   string
	list   []*yamlNode
	fields []yamlField
}

type yamlField struct {
	key  string
	node *yamlNode
}

// field is the value of a key; nil when it is not there, or n is nil.
func (n *yamlNode) field(key string) *yamlNode {
	if n != nil {
		for _, f := range n.fields {
			if f.key == key {
				return f.node
			}
		}
	}
	return nil
}

// word is the text of a key's value; "" when there is none.
func (n *yamlNode) word(key string) string {
	if f := n.field(key); f != nil {
		return f.text
	}
	return ""
}

// yamlLine is a line that is not blank.
type yamlLine struct {
	number, indent int
	text           string
}

// yamlReader reads the part of YAML that Slurm's files are written in: block lists and
// block maps, plain and quoted words, lists in brackets, comments, one document. Anchors,
// tags, maps in braces and text over several lines are faults. A module for the whole of
// YAML would be this package's second outside technology.
type yamlReader struct {
	lines []yamlLine
	at    int
	fault func(line int, format string, args ...any)
	wrong bool
}

// deepest bounds how far values nest.
const deepest = 16

// readYAML reads one document; nil after a fault.
func readYAML(text string, fault func(int, string, ...any)) *yamlNode {
	r := &yamlReader{}
	r.fault = func(line int, format string, args ...any) {
		r.wrong = true
		fault(line, format, args...)
	}
	number := 0
	for raw := range strings.Lines(text) {
		number++
		line := strings.TrimRight(uncommented(raw), " \t\r\n")
		body := strings.TrimLeft(line, " ")
		switch {
		case body == "" || line == "---" && len(r.lines) == 0 || line == "...":
		case line == "---":
			r.fault(number, "a second document begins: want one")
			return nil
		case body[0] == '\t':
			r.fault(number, "the line is indented with a tab: YAML wants blanks")
			return nil
		default:
			r.lines = append(r.lines, yamlLine{number, len(line) - len(body), body})
		}
	}
	if len(r.lines) == 0 {
		fault(0, "the file is empty")
		return nil
	}
	doc := r.value(r.lines[0].indent, 0)
	if !r.wrong && r.at < len(r.lines) {
		r.fault(r.lines[r.at].number, "the line is indented less than the first one")
	}
	if r.wrong {
		return nil
	}
	return doc
}

// uncommented cuts a comment that is not inside quotes.
func uncommented(line string) string {
	quote := byte(0)
	for i := range len(line) {
		switch c := line[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t'):
			return line[:i]
		}
	}
	return line
}

// value reads what begins at the present line, indented so far.
func (r *yamlReader) value(indent, depth int) *yamlNode {
	first := r.lines[r.at]
	n := &yamlNode{line: first.number}
	if depth > deepest {
		r.fault(first.number, "values are nested too deeply")
		return n
	}
	for !r.wrong && r.at < len(r.lines) && r.lines[r.at].indent >= indent {
		line := &r.lines[r.at]
		if line.indent > indent {
			r.fault(line.number, "the line is indented more than the one before it")
			break
		}
		dash := line.text == "-" || strings.HasPrefix(line.text, "- ")
		switch {
		case dash && n.fields == nil:
			n.list = append(n.list, r.item(line, depth))
		case dash || n.list != nil:
			r.fault(line.number, "a list and keys are mixed")
		default:
			r.key(n, line, depth)
		}
	}
	return n
}

// item reads one element of a list.
func (r *yamlReader) item(line *yamlLine, depth int) *yamlNode {
	rest := strings.TrimLeft(strings.TrimPrefix(line.text, "-"), " ")
	if rest == "" {
		return r.below(line, depth)
	}
	if _, _, isKey := cutKey(rest); !isKey {
		r.at++
		return r.scalar(line.number, rest)
	}
	line.indent += len(line.text) - len(rest) // the keys stand below the first one
	line.text = rest
	return r.value(line.indent, depth+1)
}

// key reads one key with its value.
func (r *yamlReader) key(n *yamlNode, line *yamlLine, depth int) {
	key, rest, isKey := cutKey(line.text)
	switch {
	case !isKey:
		r.fault(line.number, "%q is not KEY: VALUE", line.text)
		return
	case n.field(key) != nil:
		r.fault(line.number, "key %q is given twice", key)
		return
	}
	var v *yamlNode
	if rest == "" {
		v = r.below(line, depth)
	} else {
		r.at++
		v = r.scalar(line.number, rest)
	}
	n.fields = append(n.fields, yamlField{key, v})
}

// below reads what is indented under a line; nothing there is an empty text. A list may
// stand as far left as its key.
func (r *yamlReader) below(line *yamlLine, depth int) *yamlNode {
	r.at++
	if r.at == len(r.lines) {
		return &yamlNode{line: line.number}
	}
	next := r.lines[r.at]
	if next.indent > line.indent || next.indent == line.indent && line.text != "-" && !strings.HasPrefix(line.text, "- ") && strings.HasPrefix(next.text, "- ") {
		return r.value(next.indent, depth+1)
	}
	return &yamlNode{line: line.number}
}

// cutKey splits KEY: VALUE.
func cutKey(text string) (key, rest string, ok bool) {
	key, rest, ok = strings.Cut(text, ":")
	if !ok || rest != "" && rest[0] != ' ' || strings.ContainsAny(key, " \"'[]{},") || key == "" {
		return "", "", false
	}
	return key, strings.TrimLeft(rest, " "), true
}

// scalar reads a word, plain or quoted, or a list in brackets.
func (r *yamlReader) scalar(line int, text string) *yamlNode {
	n := &yamlNode{line: line, text: text}
	last := text[len(text)-1]
	switch text[0] {
	case '"', '\'':
		if len(text) < 2 || last != text[0] || strings.IndexByte(text[1:], text[0]) != len(text)-2 || strings.Contains(text, "\\") {
			r.fault(line, "%s is not one quoted word", text)
			return n
		}
		n.text = text[1 : len(text)-1]
	case '[':
		if last != ']' {
			r.fault(line, "%q: a list in brackets must end on its line", text)
			return n
		}
		n.text, n.list = "", []*yamlNode{}
		if inside := strings.TrimSpace(text[1 : len(text)-1]); inside != "" {
			for _, word := range splitOutside(inside) {
				if word = strings.TrimSpace(word); word == "" || word[0] == '[' {
					r.fault(line, "%q: an element is empty, or a list again", text)
					return n
				}
				n.list = append(n.list, r.scalar(line, word))
			}
		}
	case '{', '&', '*', '!', '|', '>', '%', '@', '`':
		r.fault(line, "%q: this part of YAML is not read here", text)
	}
	return n
}

// splitOutside cuts at commas that are not in brackets, so that n[1,3] stays whole.
func splitOutside(text string) []string {
	var parts []string
	depth, start := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, text[start:i])
				start = i + 1
			}
		}
	}
	return append(parts, text[start:])
}
