package greylag

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages lists the documents of the root and of docs.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		list, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list...)
	}
	if len(all) < 20 {
		t.Fatalf("found only %v", all)
	}
	return all
}

// TestPagesNameFiles: links between pages, and the files that the contributors' pages, the
// decisions and the formats name, exist.
func TestPagesNameFiles(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#: ]+)(?:#[^)]*)?\)`)
	file := regexp.MustCompile("`((?:pkg|internal|api|cmd|docs|test|etc|packaging)/[A-Za-z0-9_./-]+)`")
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		missing := func(name string) {
			if found, _ := filepath.Glob(name + "*"); len(found) == 0 { // docs/adr/0014 names a file by its number
				t.Errorf("%s: there is no %s", page, name)
			}
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			missing(path.Join(path.Dir(filepath.ToSlash(page)), m[1]))
		}
		if dir := path.Dir(filepath.ToSlash(page)); dir == "docs/contributing" || dir == "docs/adr" || dir == "docs/format" {
			for _, m := range file.FindAllStringSubmatch(string(text), -1) {
				missing(m[1])
			}
		}
	}
}

// TestDecisions: every decision follows docs/adr/template.md and is listed in docs/adr/README.md.
func TestDecisions(t *testing.T) {
	index, err := os.ReadFile("docs/adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	shape := regexp.MustCompile(`(?s)^# (\d+)\. [^\n]+\n\n- Status: (accepted|superseded by \d+)\n- Date: 20\d\d-\d\d-\d\d\n\n## Context\n.+\n## Decision\n.+\n(## Alternatives\n.+\n)?## Consequences\n`)
	files, _ := filepath.Glob("docs/adr/0*.md")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := shape.FindSubmatch(text)
		switch number := strings.TrimLeft(filepath.Base(file)[:4], "0"); {
		case m == nil:
			t.Errorf("%s does not follow docs/adr/template.md", file)
		case string(m[1]) != number:
			t.Errorf("%s has the number %s", file, m[1])
		case !strings.Contains(string(index), "("+filepath.Base(file)+")"):
			t.Errorf("docs/adr/README.md does not list %s", file)
		}
	}
}
