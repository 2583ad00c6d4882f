package docs

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

const root = "../.."

// readPages returns the text of every document by its path in the repository.
func readPages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "bin" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		pages[name] = string(text)
		return err
	})
	if err != nil || len(pages) < 15 {
		t.Fatal(len(pages), "pages:", err)
	}
	return pages
}

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile("(?m)^#+ (.*)$")
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	notSlug = regexp.MustCompile(`[^\pL\pN_ -]`)
)

// anchors returns the fragments of a page's headings.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := link.ReplaceAllString(h[1], "]")
		all[strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(name), ""), " ", "-")] = true
	}
	return all
}

// TestLinks checks that files and headings that documents link to exist.
func TestLinks(t *testing.T) {
	pages := readPages(t)
	for name, text := range pages {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			file, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], ":") {
				continue // an address
			}
			at := name
			if file != "" {
				at = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(root, at)); err != nil {
				t.Errorf("%s links to %s: no such file", name, m[1])
			} else if fragment != "" && !anchors(pages[at])[fragment] {
				t.Errorf("%s links to %s: no such heading", name, m[1])
			}
		}
	}
}

var (
	citedTest = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)`")
	citedFile = regexp.MustCompile("`((?:api|cmd|contributing|docs|etc|internal|packaging|pkg|test|tools)/[\\w./-]+)`")
)

// TestCitedNames checks that tests and files that documents name exist.
func TestCitedNames(t *testing.T) {
	declared := map[string]bool{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		for _, m := range regexp.MustCompile(`(?m)^func (\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			declared[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range readPages(t) {
		for _, m := range citedTest.FindAllStringSubmatch(text, -1) {
			if !declared[m[1]] {
				t.Errorf("%s: no test has the name %s", name, m[1])
			}
		}
		for _, m := range citedFile.FindAllStringSubmatch(text, -1) {
			found, err := filepath.Glob(filepath.Join(root, m[1]) + "*") // docs/adr/0014 is short for one file
			if (err != nil || len(found) == 0) && !strings.Contains(m[1], "NNNN") && name != "CHANGELOG.md" {
				t.Errorf("%s: no file %s", name, m[1])
			}
		}
	}
}

var (
	indented = regexp.MustCompile(`^ {4,}((?:gsubmit|gqueue|gcancel|grun|gctl|gsim|gctld) .*)$`)
	inline   = regexp.MustCompile("`((?:gsubmit|gqueue|gcancel|grun|gctl|gsim|gctld) [^`]*)`")
	word     = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
)

// commandsOf returns the commands of a page that are not in console blocks, as words.
func commandsOf(text string) [][]string {
	var all [][]string
	add := func(command string) {
		command, _, _ = strings.Cut(command, " #")
		var words []string
		for _, w := range word.FindAllString(command, -1) {
			if strings.ContainsAny(w, ";|>") && w[0] != '\'' && w[0] != '"' || strings.Contains(w, "...") {
				break
			}
			words = append(words, strings.Trim(w, `'"`))
		}
		all = append(all, words)
	}
	text = fence.ReplaceAllString(text, "")
	for line := range strings.Lines(text) {
		if m := indented.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			add(m[1])
		}
	}
	for _, m := range inline.FindAllStringSubmatch(text, -1) {
		add(strings.Join(strings.Fields(m[1]), " "))
	}
	return all
}

// usage returns how many words the command of a help text has, and whether it has subcommands.
func usage(help string) (words int, group bool) {
	_, rest, _ := strings.Cut(help, "\nUsage:\n")
	line, _, _ := strings.Cut(rest, "\n")
	for _, w := range strings.Fields(line) {
		if strings.ToLower(w) != w || w[0] == '[' || w[0] == '-' {
			break
		}
		words++
	}
	return words, strings.Contains(help, "\nAvailable Commands:")
}

// TestCommands checks that the programs have the options and subcommands that documents name.
func TestCommands(t *testing.T) {
	dir := os.Getenv("GREYLAG_BIN")
	if dir == "" {
		dir = t.TempDir()
		if err := cluster.Build(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	pages, count := readPages(t), 0
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		if name == "CHANGELOG.md" {
			continue
		}
		for _, words := range commandsOf(pages[name]) {
			count++
			if err := checkCommand(t.Context(), dir, words); err != nil {
				t.Errorf("%s: %s: %v", name, strings.Join(words, " "), err)
			}
		}
	}
	if count < 100 {
		t.Errorf("only %d commands were found", count)
	}
}

// checkCommand runs a command with --help: the program then checks its options and prints the help.
func checkCommand(ctx context.Context, dir string, words []string) error {
	args := append([]string{"--help"}, words[1:]...) // of gsubmit, what follows a script is the script's
	switch {
	case words[0] == "gctl" && words[1] == "alloc": // what follows its command is the command's
		args = append([]string{"alloc", "--help"}, words[2:]...)
	case words[0] == "gctl" || words[0] == "gsim":
		end := slices.Index(words, "--")
		if end < 0 {
			end = len(words)
		}
		args = append(words[1:end:end], "--help")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, words[0]), args...)
	cmd.Env = append(os.Environ(), "GREYLAG_CONFIG=/nonexistent")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.New(string(out))
	}
	known, group := usage(string(out))
	if group && len(words) > known && words[known][0] != '-' {
		return errors.New("unknown command " + words[known])
	}
	return nil
}
