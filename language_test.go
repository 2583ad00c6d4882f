package greylag

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"
)

const (
	denyListFile  = "tools/language/denylist.txt"
	maxExemptions = 20
)

// denyList holds the words that names, comments, messages and documents do not use.
type denyList struct {
	phrases     []phrase
	any         *regexp.Regexp    // matches where one of the phrases does
	identifiers map[string]string // word -> suggestion
}

type phrase struct {
	pattern *regexp.Regexp
	instead string
}

// finding is one use of a denied word, or one doc comment without its name.
type finding struct {
	path string
	line int
	text string
}

// exemption matches the mark of a line that may use a denied word.
var exemption = regexp.MustCompile(`lang:ok\b *(.*)`)

func readDenyList() (*denyList, error) {
	text, err := os.ReadFile(denyListFile)
	if err != nil {
		return nil, err
	}
	list := &denyList{identifiers: map[string]string{}}
	section := ""
	var patterns []string
	for n, line := range strings.Split(string(text), "\n") {
		denied, instead, ok := strings.Cut(line, " = ")
		switch {
		case line == "" || line[0] == '#':
		case line == "[phrases]" || line == "[identifiers]":
			section = line
		case !ok:
			return nil, fmt.Errorf("%s:%d: want WORD = SUGGESTION", denyListFile, n+1)
		case section == "[phrases]":
			re, err := regexp.Compile(`(?i)\b(?:` + denied + `)\b`)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", denyListFile, n+1, err)
			}
			list.phrases = append(list.phrases, phrase{re, instead})
			patterns = append(patterns, denied)
		default:
			list.identifiers[denied] = instead
		}
	}
	list.any, err = regexp.Compile(`(?i)\b(?:` + strings.Join(patterns, "|") + `)\b`)
	return list, err
}

// deniedWord returns the first word of a name that is on the list.
func (l *denyList) deniedWord(name string) (word, instead string) {
	for _, w := range splitWords(name) {
		forms := []string{w, strings.TrimSuffix(w, "s"), strings.TrimSuffix(w, "es")}
		if stem, ok := strings.CutSuffix(w, "ies"); ok {
			forms = append(forms, stem+"y")
		}
		for _, form := range forms {
			if instead, ok := l.identifiers[form]; ok {
				return w, instead
			}
		}
	}
	return "", ""
}

// splitWords splits a name at capitals, digits and signs into words in lower case.
func splitWords(name string) []string {
	var words []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = nil
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			end()
			continue
		case unicode.IsUpper(r) && (i > 0 && unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]) && !pluralAt(runes, i+1)):
			end()
		}
		word = append(word, r)
	}
	end()
	return words
}

// pluralAt reports whether the letter at i is the s of a plural such as IDs.
func pluralAt(runes []rune, i int) bool {
	return runes[i] == 's' && (i+1 == len(runes) || !unicode.IsLower(runes[i+1]))
}

// passage is prose with the line that each of its parts came from.
type passage struct {
	text  strings.Builder
	lines []passageLine
}

type passageLine struct{ offset, line int }

func (p *passage) add(line int, text string) {
	p.lines = append(p.lines, passageLine{p.text.Len(), line})
	p.text.WriteString(strings.TrimSpace(text) + " ")
}

// check calls report for each denied phrase, and begins a new passage.
func (p *passage) check(l *denyList, report func(line int, text string)) {
	text := strings.TrimSpace(p.text.String())
	defer func() {
		p.text.Reset()
		p.lines = p.lines[:0]
	}()
	if !l.any.MatchString(text) {
		return
	}
	for _, ph := range l.phrases {
		for _, at := range ph.pattern.FindAllStringIndex(text, -1) {
			i, found := slices.BinarySearchFunc(p.lines, at[0], func(l passageLine, offset int) int { return l.offset - offset })
			if !found {
				i--
			}
			report(p.lines[i].line, fmt.Sprintf("write %q, not %q", ph.instead, text[at[0]:at[1]]))
		}
	}
}

// languageCheck collects the findings and exemptions of the whole tree.
type languageCheck struct {
	list     *denyList
	findings []finding
	exempt   []finding
}

// languageOf checks the tree once for all tests.
var languageOf = sync.OnceValues(func() (*languageCheck, error) {
	list, err := readDenyList()
	if err != nil {
		return nil, err
	}
	c := &languageCheck{list: list}
	all, err := parseSources()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if err := c.goFile(s); err != nil {
			return nil, err
		}
	}
	return c, c.textFiles()
})

// lineReporter returns a function that records findings of a file outside its exempt lines.
func (c *languageCheck) lineReporter(name string, lines []string) func(int, string) {
	for n, line := range lines {
		if m := exemption.FindStringSubmatch(line); m != nil && name != "language_test.go" {
			c.exempt = append(c.exempt, finding{name, n + 1, strings.TrimSuffix(strings.TrimSpace(m[1]), "-->")})
		}
	}
	seen := map[string]bool{}
	return func(line int, text string) {
		key := fmt.Sprint(line, text)
		if line >= 1 && line <= len(lines) && exemption.MatchString(lines[line-1]) || seen[key] {
			return
		}
		seen[key] = true
		c.findings = append(c.findings, finding{name, line, text})
	}
}

// goFile checks comments, string literals, declared names and doc comments.
func (c *languageCheck) goFile(s source) error {
	text, err := os.ReadFile(s.path)
	if err != nil {
		return err
	}
	report := c.lineReporter(s.path, strings.Split(string(text), "\n"))
	for _, group := range s.file.Comments {
		var p passage
		for _, comment := range group.List {
			line := s.fset.Position(comment.Pos()).Line
			for i, part := range strings.Split(comment.Text, "\n") {
				part = strings.TrimLeft(part, "/* \t")
				if part == "" {
					p.check(c.list, report)
				}
				p.add(line+i, part)
			}
		}
		p.check(c.list, report)
	}
	c.name(strings.TrimSuffix(path.Base(s.path), ".go"), 1, report)
	c.name(s.file.Name.Name, s.fset.Position(s.file.Name.Pos()).Line, report)
	c.goNodes(s, report)
	checkDocNames(s, report)
	return nil
}

func (c *languageCheck) name(name string, line int, report func(int, string)) {
	if word, instead := c.list.deniedWord(name); word != "" {
		report(line, fmt.Sprintf("name %q has the word %q: write %q", name, word, instead))
	}
}

// goNodes checks declared names and string literals.
func (c *languageCheck) goNodes(s source, report func(int, string)) {
	lineOf := func(pos token.Pos) int { return s.fset.Position(pos).Line }
	names := func(idents ...*ast.Ident) {
		for _, id := range idents {
			if id != nil {
				c.name(id.Name, lineOf(id.Pos()), report)
			}
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			names(n.Name)
			return false
		case *ast.FuncDecl:
			names(n.Name)
		case *ast.TypeSpec:
			names(n.Name)
		case *ast.ValueSpec:
			names(n.Names...)
		case *ast.LabeledStmt:
			names(n.Label)
		case *ast.Field:
			names(n.Names...)
			if n.Tag != nil {
				c.name(n.Tag.Value, lineOf(n.Tag.Pos()), report)
				n.Tag = nil
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				names(identsOf(n.Lhs)...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				names(identsOf([]ast.Expr{n.Key, n.Value})...)
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				c.literal(n, lineOf(n.Pos()), report)
			}
		}
		return true
	})
}

func identsOf(exprs []ast.Expr) []*ast.Ident {
	var ids []*ast.Ident
	for _, e := range exprs {
		if id, ok := e.(*ast.Ident); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func (c *languageCheck) literal(lit *ast.BasicLit, line int, report func(int, string)) {
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return
	}
	raw := lit.Value[0] == '`'
	var p passage
	for i, part := range strings.Split(text, "\n") {
		at := line
		if raw {
			at += i
		}
		if part == "" {
			p.check(c.list, report)
		}
		p.add(at, part)
	}
	p.check(c.list, report)
}

// checkDocNames requires that a doc comment begins with the name that it documents.
func checkDocNames(s source, report func(int, string)) {
	check := func(doc *ast.CommentGroup, names ...string) {
		if doc == nil || doc.Text() == "" {
			return
		}
		first, _, _ := strings.Cut(doc.Text(), "\n")
		for _, name := range names {
			if rest, ok := strings.CutPrefix(first, name); ok && (rest == "" || !isNameRune(rune(rest[0]))) {
				return
			}
		}
		report(s.fset.Position(doc.Pos()).Line, fmt.Sprintf("the doc comment does not begin with %q", names[0]))
	}
	if s.file.Name.Name == "main" {
		check(s.file.Doc, "Command "+path.Base(s.dir))
	} else {
		check(s.file.Doc, "Package "+s.file.Name.Name)
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			check(d.Doc, d.Name.Name)
		case *ast.GenDecl:
			if d.Tok != token.IMPORT {
				checkSpecDocs(d, check)
			}
		}
	}
}

// checkSpecDocs checks the doc comments of types, constants and variables. The doc
// comment of a declaration in parentheses describes the group, and has no name.
func checkSpecDocs(d *ast.GenDecl, check func(*ast.CommentGroup, ...string)) {
	for _, spec := range d.Specs {
		var names []string
		var doc *ast.CommentGroup
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			names, doc = []string{spec.Name.Name}, spec.Doc
		case *ast.ValueSpec:
			for _, id := range spec.Names {
				names = append(names, id.Name)
			}
			doc = spec.Doc
		}
		if !d.Lparen.IsValid() {
			doc = d.Doc
		}
		check(doc, names...)
	}
}

func isNameRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// textFiles checks what is not Go: documents whole, and the comments of other files.
func (c *languageCheck) textFiles() error {
	return filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(p)
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && p != "." && p != ".github" || name == "bin" || name == "api/gen" || name == "tools/language" {
				return filepath.SkipDir
			}
			return nil
		}
		comment := ""
		switch ext := path.Ext(name); {
		case ext == ".md":
		case ext == ".proto":
			comment = "//"
		case ext == ".toml" || ext == ".yaml" || ext == ".yml" || ext == ".sh" || ext == ".txt" || ext == ".txtar" ||
			ext == ".service" || ext == ".timer" || ext == "" && name != "LICENSE":
			comment = "#"
		default:
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		c.textFile(name, comment, string(text))
		return nil
	})
}

var codeSpan = regexp.MustCompile("`[^`]*`")

// textFile checks a file: its comment lines, or all of it outside code where comment is "".
func (c *languageCheck) textFile(name, comment, text string) {
	lines := strings.Split(text, "\n")
	report := c.lineReporter(name, lines)
	var p passage
	fenced := false
	for n, line := range lines {
		trimmed := strings.TrimSpace(line)
		if comment != "" {
			_, after, found := strings.Cut(trimmed, comment)
			if !found || comment == "#" && !strings.HasPrefix(trimmed, "#") {
				after = ""
			}
			trimmed = after
		} else if strings.HasPrefix(trimmed, "```") {
			fenced, trimmed = !fenced, ""
		} else if fenced {
			trimmed = ""
		}
		if strings.TrimSpace(trimmed) == "" || comment == "" && strings.IndexAny(trimmed, "#|-*") == 0 {
			p.check(c.list, report)
		}
		p.add(n+1, codeSpan.ReplaceAllStringFunc(trimmed, func(s string) string { return strings.Repeat("_", len(s)) }))
	}
	p.check(c.list, report)
}

func TestLanguage(t *testing.T) {
	c, err := languageOf()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.findings {
		t.Errorf("%s:%d: %s", f.path, f.line, f.text)
	}
}

func TestLanguageExemptions(t *testing.T) {
	c, err := languageOf()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range c.exempt {
		if e.text == "" {
			t.Errorf("%s:%d: lang:ok has no reason", e.path, e.line)
		}
	}
	if n := len(c.exempt); n > maxExemptions {
		t.Errorf("%d lines are exempt with lang:ok, at most %d", n, maxExemptions)
	}
}

func TestLanguageSplitsWords(t *testing.T) {
	for name, want := range map[string]string{
		"roomOf": "room of", "HTTPServer": "http server", "max_offers2": "max offers", "gpuIDs": "gpu ids", "nodeIDOf": "node id of", "": "",
	} {
		if got := strings.Join(splitWords(name), " "); got != want {
			t.Errorf("splitWords(%q) = %q, want %q", name, got, want)
		}
	}
}
