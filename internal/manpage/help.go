package manpage

import (
	"regexp"
	"strings"
)

// Command is a subcommand in a help text.
type Command struct{ Name, Summary string }

var (
	headingLine = regexp.MustCompile(`^[A-Z].*:$`)
	statusLine  = regexp.MustCompile(`(?i)^exit status: *`)
	hintLine    = regexp.MustCompile(`(?m)^Use ".* \[command\] --help"`)
	gapInLine   = regexp.MustCompile(`\t|   *`)
)

// AddHelp adds what a program prints for --help, and returns its subcommands. It reads the forms of
// getopt.Help, cobra and the package flag: paragraphs, indented lines as they are, and groups of
// entries under headings.
func (p *Page) AddHelp(text string) []Command {
	hasCommands := hintLine.MatchString(text)
	var list []Command
	for _, chunk := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		lines := strings.Split(strings.Trim(chunk, "\n"), "\n")
		for i, line := range lines { // a status may follow a paragraph directly
			if i > 0 && statusLine.MatchString(line) {
				p.addChunk(lines[:i], hasCommands, &list)
				lines = lines[i:]
				break
			}
		}
		p.addChunk(lines, hasCommands, &list)
	}
	return list
}

// addChunk adds lines without an empty one between them.
func (p *Page) addChunk(lines []string, hasCommands bool, list *[]Command) {
	first := lines[0]
	switch {
	case strings.HasPrefix(strings.ToLower(first), "usage:"):
		p.addSynopsis(lines)
	case hintLine.MatchString(first):
	case statusLine.MatchString(first) && !headingLine.MatchString(first):
		p.add(exitStatus, block{text: escape(statusLine.ReplaceAllString(strings.Join(lines, " "), ""))})
	case headingLine.MatchString(first) && len(lines) > 1 && indent(lines[1]) > 0 && len(p.sections[synopsis]) > 0:
		p.addGroup(strings.TrimSuffix(first, ":"), lines[1:], hasCommands, list)
	default:
		p.addText(lines)
	}
}

// addText adds lines to the description. Indented lines are not filled.
func (p *Page) addText(lines []string) {
	for len(lines) > 0 {
		n, isIndented := 1, indent(lines[0]) > 0
		for n < len(lines) && indent(lines[n]) > 0 == isIndented {
			n++
		}
		if isIndented {
			p.addVerbatim(description, lines[:n])
		} else {
			p.add(description, block{text: escape(strings.Join(lines[:n], "\n"))})
		}
		lines = lines[n:]
	}
}

// addVerbatim adds lines as they are, without the blanks that all of them begin with.
func (p *Page) addVerbatim(section string, lines []string) {
	common := indent(lines[0])
	for _, line := range lines {
		common = min(common, indent(line))
	}
	all := make([]string, len(lines))
	for i, line := range lines {
		all[i] = escape(line[common:])
	}
	p.add(section, block{kind: verbatim, text: strings.Join(all, "\n")})
}

func (p *Page) addSynopsis(lines []string) {
	var all []string
	for _, line := range lines {
		if strings.HasPrefix(strings.ToLower(line), "usage:") {
			line = line[len("usage:"):]
		}
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		program, rest, _ := strings.Cut(line, " ")
		all = append(all, strings.TrimRight(bold(program)+" "+escape(rest), " "))
	}
	p.add(synopsis, block{kind: unfilled, text: strings.Join(all, "\n")})
}

// addGroup adds the entries under a heading: of options, commands, exit statuses, or other text.
func (p *Page) addGroup(title string, lines []string, hasCommands bool, list *[]Command) {
	entries := entriesOf(lines)
	section, heading := options, title
	isOption := strings.HasPrefix(entries[0].tag, "-")
	switch {
	case strings.EqualFold(title, exitStatus):
		section, heading = exitStatus, ""
	case strings.EqualFold(title, examples) || strings.EqualFold(title, "Example"):
		p.addVerbatim(examples, lines)
		return
	case title == "Aliases":
		p.Describe("Aliases: " + strings.TrimSpace(strings.Join(lines, " ")) + ".")
		return
	case isOption && strings.HasPrefix(title, "Flags"):
		heading = ""
	case !isOption && hasCommands:
		p.addCommands(title, lines, list)
		return
	case !isOption:
		p.add(options, block{kind: subheading, text: title})
		p.addVerbatim(options, lines)
		return
	}
	if heading != "" {
		p.add(section, block{kind: subheading, text: heading})
	}
	for _, e := range entries {
		if e.text == "" && !isOption {
			p.add(section, block{text: escape(e.tag)})
			continue
		}
		p.add(section, block{kind: item, tag: bold(e.tag), text: escape(e.text)})
	}
}

// addCommands adds subcommands: a name, and after blanks its summary.
func (p *Page) addCommands(title string, lines []string, list *[]Command) {
	for i, line := range lines {
		name, summary, _ := strings.Cut(strings.TrimSpace(line), " ")
		c := Command{name, strings.TrimSpace(summary)}
		if c.Name == "help" {
			continue
		}
		if i == 0 && title != "Available Commands" {
			p.add(commands, block{kind: subheading, text: title})
		}
		p.add(commands, block{kind: item, tag: bold(c.Name), text: escape(c.Summary)})
		*list = append(*list, c)
	}
}

// entry is a line of a group: an option, a command or a status, and its description.
type entry struct{ tag, text string }

// maxTagIndent is how far the first line of an entry may be indented; descriptions are further.
const maxTagIndent = 8

func entriesOf(lines []string) []entry {
	var all []entry
	for _, line := range lines {
		trimmed := strings.TrimSpace(line)
		if len(all) > 0 && (indent(line) > maxTagIndent || strings.HasPrefix(line, "    \t")) {
			last := &all[len(all)-1]
			last.text = strings.TrimSpace(last.text + " " + trimmed)
			continue
		}
		tag, text := trimmed, ""
		if at := gapInLine.FindStringIndex(trimmed); at != nil {
			tag, text = trimmed[:at[0]], trimmed[at[1]:]
		}
		all = append(all, entry{tag, text})
	}
	return all
}

// indent returns the number of blanks and tabs before a line's text.
func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

// Summary returns the description of a subcommand as the summary of its page.
func Summary(text string) string { return lowerFirst(text) }
