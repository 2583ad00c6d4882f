package cli_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/cli/gslurm"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/test/scenario"
)

// fromSlurm is the document, and tablesBegin the line after which it is generated.
const (
	fromSlurm   = "../../docs/from-slurm.md"
	tablesBegin = "<!-- Generated from the programs' tables; go test ./internal/cli -run TestFromSlurm -rewrite -->\n"
)

// TestFromSlurmNamesEveryOption compares the document with the tables of the programs.
func TestFromSlurmNamesEveryOption(t *testing.T) {
	text, err := os.ReadFile(fromSlurm)
	if err != nil {
		t.Fatal(err)
	}
	written, tables, found := strings.Cut(string(text), tablesBegin)
	if !found {
		t.Fatalf("%s has no line %q", fromSlurm, tablesBegin)
	}
	var b strings.Builder
	for _, p := range gslurm.Programs() {
		writeProgram(&b, p)
	}
	want := strings.TrimRight(b.String(), "\n") + "\n"
	switch {
	case tables == want:
	case scenario.Rewrite():
		if err := os.WriteFile(fromSlurm, []byte(written+tablesBegin+want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s differs from the programs: run go test ./internal/cli -run TestFromSlurm -rewrite", fromSlurm)
	}
}

// writeProgram writes the section of one program.
func writeProgram(b *strings.Builder, p slurmcmd.Program) {
	fmt.Fprintf(b, "\n## %s\n%s\n", p.Name, sentence(p.Summary))
	if len(p.Notes) > 0 {
		b.WriteByte('\n')
		for _, note := range p.Notes {
			fmt.Fprintf(b, "- %s\n", note)
		}
	}
	if len(p.Commands) > 0 {
		b.WriteString("\n| command | here | note |\n|---|---|---|\n")
		for _, c := range p.Commands {
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", c.Words, c.Effect, cell(c.Note))
		}
	}
	if len(p.Options) == 0 {
		return
	}
	b.WriteString("\n| option | here | note |\n|---|---|---|\n")
	for _, o := range p.Options {
		name := "--" + o.Long
		if o.Short != 0 {
			name = "-" + string(o.Short) + ", " + name
		}
		switch {
		case o.Absent != "":
			name += "[=" + o.Value + "]"
		case o.Value != "":
			name += " " + o.Value
		}
		note := o.Note
		if note == "" {
			note = o.Help
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", strings.ReplaceAll(name, "|", `\|`), o.Effect, cell(note))
	}
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// sentence returns a text with a full stop.
func sentence(text string) string { return strings.TrimSuffix(text, ".") + "." }
