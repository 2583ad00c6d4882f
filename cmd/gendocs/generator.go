package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/manpage"
)

// generator writes the pages and completions of one build.
type generator struct {
	bin, docs, out string
	date           time.Time
	version        string
}

func (g *generator) run() error {
	version, err := g.output("gctl", "version")
	if err != nil {
		return err
	}
	for _, folder := range []string{"man", "completions"} { // pages of commands that were removed
		if err := os.RemoveAll(filepath.Join(g.out, folder)); err != nil {
			return err
		}
	}
	g.version = strings.TrimPrefix(strings.TrimSpace(version), "gctl ")
	for _, source := range manpage.Sources() {
		if err := g.page(&source); err != nil {
			return fmt.Errorf("%s(%d): %w", source.Name, source.Section, err)
		}
	}
	return g.completions()
}

// page writes one page, and those of the program's subcommands.
func (g *generator) page(source *manpage.Source) error {
	p := source.Base()
	switch {
	case source.Reference != "":
		text, err := os.ReadFile(filepath.Join(g.docs, source.Reference+".md"))
		if err != nil {
			return err
		}
		if err := p.AddReference(string(text)); err != nil {
			return err
		}
	case source.Help:
		text, err := g.output(source.Name, "--help")
		if err != nil {
			return err
		}
		list := p.AddHelp(text)
		if source.Commands {
			if err := g.commands([]string{source.Name}, list); err != nil {
				return err
			}
		}
	}
	return g.write(p)
}

// maxDepth is the most words of a command with subcommands.
const maxDepth = 4

// commands writes the pages of the subcommands of a command, which path names.
func (g *generator) commands(path []string, list []manpage.Command) error {
	if len(path) > maxDepth {
		return fmt.Errorf("%s: the commands below it are not read correctly", strings.Join(path, " "))
	}
	for _, c := range list {
		words := append(path[:len(path):len(path)], c.Name)
		text, err := g.output(path[0], append([]string{"help"}, words[1:]...)...)
		if err != nil {
			return err
		}
		p := &manpage.Page{Name: strings.Join(words, "-"), Section: 1, Summary: manpage.Summary(c.Summary)}
		see := []string{strings.Join(path, "-") + "(1)"}
		below := p.AddHelp(text)
		for _, sub := range below {
			see = append(see, p.Name+"-"+sub.Name+"(1)")
		}
		p.SeeAlso(see...)
		if err := g.write(p); err != nil {
			return err
		}
		if err := g.commands(words, below); err != nil {
			return err
		}
	}
	return nil
}

func (g *generator) write(p *manpage.Page) error {
	return writeFile(p.Write(g.date, g.version), g.out, "man", "man"+strconv.Itoa(p.Section), p.FileName())
}

// completions writes the completions of each command, under the names by which shells find them.
func (g *generator) completions() error {
	for shell, name := range map[string]string{"bash": "%s", "zsh": "_%s", "fish": "%s.fish"} {
		for _, program := range []string{"gsubmit", "gqueue", "gcancel", "grun", "gctl", "gsim"} {
			text, err := g.output("gctl", "completion", shell, program)
			if err != nil {
				return err
			}
			if err := writeFile(text, g.out, "completions", shell, fmt.Sprintf(name, program)); err != nil {
				return err
			}
		}
	}
	return nil
}

// output runs a program without the host's configuration, and returns what it prints.
func (g *generator) output(program string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(g.bin, program), args...)
	cmd.Env = []string{"LC_ALL=C", "GREYLAG_CONFIG=/nonexistent"}
	var out bytes.Buffer // daemons print their help to standard error
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out.String())
	}
	return out.String(), nil
}

func writeFile(text string, path ...string) error {
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}
