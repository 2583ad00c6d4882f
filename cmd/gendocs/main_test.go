package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// generated is the pages of the built programs in a folder, made once for all tests.
var generated = sync.OnceValues(func() (*generator, error) {
	bin := os.Getenv("GREYLAG_BIN")
	if bin == "" {
		bin = filepath.Join(workDir, "bin")
		if err := cluster.Build(context.Background(), bin); err != nil {
			return nil, err
		}
	}
	g := &generator{bin: bin, docs: "../../docs/config", out: filepath.Join(workDir, "out"), date: time.Unix(1_800_000_000, 0)}
	return g, g.run()
})

var workDir string

func TestMain(m *testing.M) {
	var err error
	if workDir, err = os.MkdirTemp("", "gendocs"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(workDir)
	os.Exit(code)
}

// generate returns a generator that has run.
func generate(t *testing.T) generator {
	t.Helper()
	g, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	return *g
}

// files returns the text of each file below a folder, by its path there.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPages: every program and file has a page, man has no warning about one, and the same input
// gives the same bytes.
func TestPages(t *testing.T) {
	g := generate(t)
	dir := g.out
	first := files(t, dir)
	for _, name := range []string{
		"man/man1/gsubmit.1", "man/man1/gqueue.1", "man/man1/gcancel.1", "man/man1/grun.1", "man/man1/gctl.1", "man/man1/gctl-cluster-token.1", "man/man1/gsim-what-if.1",
		"man/man8/gctld.8", "man/man8/gnoded.8", "man/man8/gauthd.8", "man/man8/gshim.8", "man/man5/gctld.toml.5", "man/man5/greylag-policy.toml.5",
		"completions/bash/gsim", "completions/zsh/_gsubmit", "completions/fish/gctl.fish",
	} {
		if first[name] == "" {
			t.Errorf("no %s", name)
		}
	}
	if len(first) < 100 {
		t.Errorf("only %d files", len(first))
	}
	for name, text := range first {
		for _, section := range []string{".SH NAME", ".SH \"DESCRIPTION\"", ".SH \"SEE ALSO\""} {
			if strings.HasPrefix(name, "man/") && !strings.Contains(text, section) {
				t.Errorf("%s has no %s", name, section)
			}
		}
	}
	g.out = t.TempDir()
	if err := g.run(); err != nil {
		t.Fatal(err)
	}
	again := files(t, g.out)
	for name, text := range first {
		if again[name] != text {
			t.Errorf("%s differs between two runs", name)
		}
	}
	checkReferences(t, first)
	t.Run("man", func(t *testing.T) { checkWarnings(t, dir) })
}

// checkReferences checks that pages which others refer to exist.
func checkReferences(t *testing.T, all map[string]string) {
	reference := regexp.MustCompile(`\\fB([a-z.\\-]+)\\fR\(([158])\)`)
	for name, text := range all {
		_, see, _ := strings.Cut(text, ".SH \"SEE ALSO\"")
		for _, m := range reference.FindAllStringSubmatch(see, -1) {
			page := "man/man" + m[2] + "/" + strings.ReplaceAll(m[1], `\-`, "-") + "." + m[2]
			if all[page] == "" {
				t.Errorf("%s refers to %s, which does not exist", name, page)
			}
		}
	}
}

func checkWarnings(t *testing.T, dir string) {
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("needs man")
	}
	pages, err := filepath.Glob(filepath.Join(dir, "man", "*", "*"))
	if err != nil || len(pages) == 0 {
		t.Fatal(len(pages), err)
	}
	var all strings.Builder // one run takes as long for one page as for a hundred
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	name := filepath.Join(t.TempDir(), "all.1")
	if err := os.WriteFile(name, []byte(all.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", name)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANROFFSEQ=", "MANWIDTH=80")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Run(); err != nil || complaints.Len() > 0 {
		t.Errorf("%v\n%s", err, complaints.String())
	}
	lines := strings.Split(all.String(), "\n")
	for _, m := range regexp.MustCompile(`:(\d+): `).FindAllStringSubmatch(complaints.String(), 10) {
		if n, _ := strconv.Atoi(m[1]); n >= 1 && n <= len(lines) {
			t.Log(lines[n-1])
		}
	}
}

// TestOptions: each option in the help of a program or subcommand is in its page, with its default.
func TestOptions(t *testing.T) {
	g := generate(t)
	option := regexp.MustCompile(`(?m)^ +(?:-[a-zA-Z], )?(--?[a-zA-Z][\w-]*)`)
	standard := regexp.MustCompile(`\(default [^)]*\)`)
	count := 0
	for name, page := range files(t, g.out) {
		command := commandOf(page)
		if strings.HasPrefix(name, "completions") || strings.HasSuffix(name, ".5") || slices.Contains([]string{"ginit", "gnvml", "gshim", "gshimd", "gstepd"}, command[0]) {
			continue
		}
		args := []string{"--help"}
		if len(command) > 1 {
			args = append([]string{"help"}, command[1:]...)
		}
		help, err := g.output(command[0], args...)
		if err != nil {
			t.Fatal(err)
		}
		page = strings.NewReplacer(`\:`, "", `\-`, "-", `\(aq`, "'", `\(ga`, "`", `\(rs`, `\`).Replace(page)
		for _, m := range option.FindAllStringSubmatch(help, -1) {
			count++
			if !strings.Contains(page, m[1]) {
				t.Errorf("%s has no option %s", name, m[1])
			}
		}
		for _, word := range standard.FindAllString(help, -1) {
			if !strings.Contains(page, word) {
				t.Errorf("%s has no %s", name, word)
			}
		}
	}
	if count < 500 {
		t.Errorf("only %d options", count)
	}
}

// commandOf returns the words of a command in the first line of its synopsis.
func commandOf(page string) (words []string) {
	_, rest, _ := strings.Cut(page, ".SH \"SYNOPSIS\"\n.nf\n")
	line, _, _ := strings.Cut(rest, "\n")
	for _, w := range strings.Fields(strings.NewReplacer(`\fB`, "", `\fR`, "", `\-`, "-").Replace(line)) {
		if !regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(w) {
			break
		}
		words = append(words, w)
	}
	return words
}
