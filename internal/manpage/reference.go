package manpage

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

var inlineMark = regexp.MustCompile("`([^`]+)`|\\*\\*([^*]+)\\*\\*|\\[([^\\]]+)\\]\\([^)]*\\)")

// AddReference adds a page of the configuration reference, in Markdown: the heading becomes the
// summary, each table a list whose first column is the tag. Text before the first heading or table
// becomes the description.
func (p *Page) AddReference(text string) error {
	section := description
	var header []string
	for chunk := range strings.SplitSeq(text, "\n\n") {
		chunk = strings.Trim(chunk, "\n")
		for chunk != "" {
			line, rest, _ := strings.Cut(chunk, "\n")
			switch {
			case strings.HasPrefix(line, "# "):
				title := strings.TrimPrefix(line, "# ")
				if _, after, named := strings.Cut(title, ": "); named {
					title = after
				}
				p.Summary = lowerFirst(title)
			case strings.HasPrefix(line, "## "):
				section = "KEYS"
				p.add(section, block{kind: subheading, text: strings.TrimPrefix(line, "## ")})
			case strings.HasPrefix(line, "|---"):
			case strings.HasPrefix(line, "| ") && strings.HasPrefix(rest, "|---"):
				section, header = "KEYS", cells(line)
			case strings.HasPrefix(line, "| "):
				row := cells(line)
				if len(row) != len(header) {
					return fmt.Errorf("%d cells, want %d: %s", len(row), len(header), line)
				}
				p.add(section, rowItem(header, row))
			default: // the rest is one paragraph
				p.add(section, block{text: inline(strings.ReplaceAll(chunk, "\n", " "))})
				rest = ""
			}
			chunk = rest
		}
	}
	if p.Summary == "" {
		return fmt.Errorf("no heading")
	}
	return nil
}

// cells returns the cells of a table's row.
func cells(line string) []string {
	all := strings.Split(strings.Trim(line, "|"), "|")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// rowItem returns a row as an item: the meaning first, then the other columns by their names.
func rowItem(header, row []string) block {
	b := block{kind: item, tag: inline(row[0])}
	var rest []string
	for i := 1; i < len(row); i++ {
		if header[i] == "meaning" {
			b.text = sentence(inline(row[i]))
			continue
		}
		rest = append(rest, escape(upperFirst(header[i])+": ")+sentenceEnd(inline(row[i])))
	}
	b.text = strings.Join(append([]string{b.text}, rest...), "\n")
	b.text = strings.TrimPrefix(b.text, "\n")
	return b
}

func sentence(text string) string { return upperFirst(sentenceEnd(text)) }

func sentenceEnd(text string) string { return strings.TrimSuffix(text, ".") + "." }

func upperFirst(text string) string {
	r, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(r)) + text[n:]
}

func lowerFirst(text string) string {
	r, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToLower(r)) + text[n:]
}

// inline converts marks within a paragraph: code and bold become bold, a link its text.
func inline(text string) string {
	var out strings.Builder
	for text != "" {
		at := inlineMark.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		out.WriteString(escape(text[:at[0]]))
		switch group := func(i int) string { return text[at[i]:at[i+1]] }; {
		case at[2] >= 0:
			out.WriteString(bold(group(2)))
		case at[4] >= 0:
			out.WriteString(bold(group(4)))
		default:
			out.WriteString(inline(group(6)))
		}
		text = text[at[1]:]
	}
	return out.String() + escape(text)
}
