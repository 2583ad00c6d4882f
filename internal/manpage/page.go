// Package manpage makes manual pages in man(7) from the help texts of programs and from the pages of
// the configuration reference.
//
// It decides how a text is divided into sections and how it is escaped. It never runs a program and
// holds no description of an option or a key: those come from the texts.
package manpage

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Page is one manual page.
type Page struct {
	Name     string // without the section's number
	Section  int
	Summary  string // after the name, in one line
	sections map[string][]block
	titles   []string // of other sections, in order
}

// blockKind is the form of a block.
type blockKind uint8

const (
	paragraph blockKind = iota
	verbatim            // lines as they are, indented
	unfilled            // lines as they are
	item                // a tag and its description
	subheading
)

// block is a part of a section. tag and text are in roff already.
type block struct {
	kind blockKind
	tag  string
	text string
}

// The sections of every page, in order. Others come before exitStatus.
const (
	synopsis    = "SYNOPSIS"
	description = "DESCRIPTION"
	commands    = "COMMANDS"
	options     = "OPTIONS"
	exitStatus  = "EXIT STATUS"
	environment = "ENVIRONMENT"
	files       = "FILES"
	examples    = "EXAMPLES"
	seeAlso     = "SEE ALSO"
)

func (p *Page) add(section string, b block) {
	if p.sections == nil {
		p.sections = map[string][]block{}
	}
	known := []string{synopsis, description, commands, options, exitStatus, environment, files, examples, seeAlso}
	if _, begun := p.sections[section]; !begun && !slices.Contains(known, section) {
		p.titles = append(p.titles, section)
	}
	p.sections[section] = append(p.sections[section], b)
}

// Describe adds a paragraph to the description.
func (p *Page) Describe(text string) { p.add(description, block{text: escape(text)}) }

// AddFile adds a file that the program reads or writes.
func (p *Page) AddFile(path, text string) {
	p.add(files, block{kind: item, tag: italic(path), text: escape(text)})
}

// AddVariable adds a variable of the environment.
func (p *Page) AddVariable(name, text string) {
	p.add(environment, block{kind: item, tag: bold(name), text: escape(text)})
}

// SeeAlso refers to other pages, each written NAME(SECTION).
func (p *Page) SeeAlso(pages ...string) {
	var all []string
	for _, page := range pages {
		name, section, _ := strings.Cut(page, "(")
		all = append(all, bold(name)+"("+section)
	}
	p.add(seeAlso, block{text: strings.Join(all, ",\n")})
}

// FileName returns the name of the page's file, without a folder.
func (p *Page) FileName() string { return fmt.Sprintf("%s.%d", p.Name, p.Section) }

// Write returns the page in man(7). A zero date is left out. Equal pages give equal bytes.
func (p *Page) Write(date time.Time, version string) string {
	day := ""
	if !date.IsZero() {
		day = date.UTC().Format(time.DateOnly)
	}
	var out strings.Builder
	fmt.Fprintf(&out, ".TH %s %d %s %s \"Greylag Manual\"\n", quote(strings.ToUpper(p.Name)), p.Section, quote(day), quote("Greylag "+version))
	out.WriteString(".nh\n.ad l\n") // neither hyphens nor stretched blanks in commands
	fmt.Fprintf(&out, ".SH NAME\n%s \\- %s\n", escape(p.Name), escape(p.Summary))
	order := append([]string{synopsis, description, commands, options}, p.titles...)
	for _, title := range append(order, exitStatus, environment, files, examples, seeAlso) {
		blocks := p.sections[title]
		if len(blocks) == 0 {
			continue
		}
		fmt.Fprintf(&out, ".SH %s\n", quote(title))
		first := true
		for _, b := range blocks {
			b.write(&out, first)
			first = b.kind == subheading
		}
	}
	return out.String()
}

// write appends a block; the first of a section needs no distance to the heading.
func (b *block) write(out *strings.Builder, first bool) {
	switch b.kind {
	case subheading:
		fmt.Fprintf(out, ".SS %s\n", quote(b.text))
	case item:
		fmt.Fprintf(out, ".TP\n%s\n%s\n", guard(b.tag), guard(b.text))
	case verbatim:
		fmt.Fprintf(out, ".PP\n.RS 4\n.nf\n%s\n.fi\n.RE\n", guard(b.text))
	case unfilled:
		fmt.Fprintf(out, ".nf\n%s\n.fi\n", guard(b.text))
	default:
		if !first {
			out.WriteString(".PP\n")
		}
		out.WriteString(guard(b.text) + "\n")
	}
}
