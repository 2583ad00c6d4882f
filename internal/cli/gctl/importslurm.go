package gctl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/clusterdoc"
	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/internal/slurmconf"
	"github.com/greylag/greylag/internal/slurmconf/mapping"
	"github.com/greylag/greylag/internal/topologyimport"
)

const importSlurmLong = `Converts a Slurm configuration: slurm.conf with its includes, gres.conf,
topology.conf or topology.yaml, the output of sacctmgr dump, and that of
sacctmgr --parsable2 show qos. Given a directory, it reads those that exist there.

It writes policy.toml, accounts.toml and topology.conf into the directory of -o,
and prints each setting that is not converted or behaves differently, with its
line. If a line is malformed, nothing is written. It contacts no
cluster and changes none: check the files, then load them with gctl apply,
gctl account load and gctl topology import.`

func (t commands) importCommand() *cobra.Command {
	all := &cobra.Command{
		Use: "import", Short: "Convert the configuration of another system", GroupID: tool.GroupCluster, Args: tool.RequireSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var dir string
	var force bool
	slurm := &cobra.Command{
		Use: "slurm DIRECTORY|FILE... -o DIRECTORY", Short: "Convert Slurm's configuration to files", Long: importSlurmLong, Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return t.importSlurm(args, dir, force) },
	}
	slurm.Flags().StringVarP(&dir, "output", "o", "", "directory to write to, created if missing")
	tool.Must(slurm.MarkFlagRequired("output"))
	slurm.Flags().BoolVar(&force, "force", false, "replace existing files")
	all.AddCommand(slurm)
	return all
}

// document is a file to be written, and what it holds.
type document struct {
	name, summary string
	text          []byte
}

func (t commands) importSlurm(paths []string, dir string, force bool) error {
	found, err := slurmconf.Find(paths)
	if err != nil {
		return &ui.UsageError{Problem: err.Error(), Advice: "name the directory of slurm.conf, or the files"}
	}
	in, err := readSlurm(found)
	var faults strict.Faults
	if errors.As(err, &faults) {
		for _, fault := range faults {
			t.Complain(fault.String(), "")
		}
		return ui.Exit(ui.Usage)
	}
	if err != nil {
		return err
	}
	if len(in.Main) == 0 && len(in.Dump) == 0 && found.Topology == "" {
		return &ui.UsageError{Problem: "no Slurm configuration in " + strings.Join(paths, " "), Advice: "name the directory of slurm.conf, or the files"}
	}
	out := mapping.Convert(in)
	documents, err := documentsOf(found, in, &out)
	if err != nil {
		return err
	}
	if err := writeDocuments(dir, documents, force); err != nil {
		return err
	}
	if t.JSON {
		return t.WriteJSON(importJSONOf(dir, documents, &out))
	}
	return printImport(t.Stdout, dir, documents, &out)
}

// readSlurm reads the files. Their faults are one strict.Faults.
func readSlurm(found slurmconf.Set) (mapping.Input, error) {
	in := mapping.Input{Others: found.Others}
	var all strict.Faults
	collect := func(err error) {
		var faults strict.Faults
		if errors.As(err, &faults) {
			all = append(all, faults...)
		}
	}
	read := func(path string, lines *[]slurmconf.Line, with func(string) ([]slurmconf.Line, error)) {
		if path != "" {
			var err error
			*lines, err = with(path)
			collect(err)
		}
	}
	read(found.Main, &in.Main, slurmconf.Read)
	read(found.GRES, &in.GRES, slurmconf.Read)
	read(found.QOSTable, &in.QOS, slurmconf.ReadTable)
	if found.Dump != "" {
		var err error
		in.Dump, err = slurmconf.ReadDump(found.Dump)
		collect(err)
	}
	if len(all) > 0 {
		return in, all
	}
	return in, nil
}

// maxPolicy is how much of a policy the controllers accept.
const maxPolicy = 256 << 10

// noteSize notes a document that is too large for the controllers.
func noteSize(out *mapping.Result, d document, most int) {
	if len(d.text) > most {
		out.Notes = append(out.Notes, mapping.Note{Kind: mapping.Check, File: d.name, Text: fmt.Sprintf("%d KiB: controllers accept %d KiB", len(d.text)>>10, most>>10)})
	}
}

// documentsOf returns the files to be written. Each is what the readers of gctl accept.
func documentsOf(found slurmconf.Set, in mapping.Input, out *mapping.Result) ([]document, error) {
	var all []document
	if len(in.Main) > 0 || len(in.Dump) > 0 {
		text, err := clusterdoc.WritePolicy(&out.Policy)
		if err == nil {
			_, err = clusterdoc.ReadPolicy("policy.toml", text)
		}
		if err != nil {
			return nil, fmt.Errorf("policy: %w", err)
		}
		all = append(all, document{"policy.toml", fmt.Sprintf("partitions: %d, QOS: %d", len(out.Policy.Partitions), len(out.Policy.QOS)), text})
		noteSize(out, all[len(all)-1], maxPolicy)
	}
	if len(in.Dump) > 0 {
		text, err := clusterdoc.WriteAccounts(out.Accounts, out.Users)
		if err == nil {
			_, _, err = clusterdoc.ReadAccounts("accounts.toml", text)
		}
		if err != nil {
			return nil, fmt.Errorf("accounts: %w", err)
		}
		all = append(all, document{"accounts.toml", fmt.Sprintf("accounts: %d, users: %d", len(out.Accounts), len(out.Users)), text})
		noteSize(out, all[len(all)-1], tool.MaxText)
	}
	if found.Topology != "" {
		text, err := topologyText(found.Topology)
		if err != nil {
			return nil, err
		}
		made, err := topologyimport.Read(found.Topology, text)
		var faults strict.Faults
		switch {
		case errors.As(err, &faults):
			for _, f := range faults {
				out.Notes = append(out.Notes, mapping.Note{Kind: mapping.NotConverted, File: f.File, Line: f.Line, Key: "topology", Text: f.Problem})
			}
		case err != nil:
			return nil, err
		default:
			for _, f := range made.Warnings {
				out.Notes = append(out.Notes, mapping.Note{Kind: mapping.Check, File: f.File, Line: f.Line, Key: "topology", Text: f.Problem})
			}
			all = append(all, document{"topology.conf", fmt.Sprintf("switches and blocks: %d", len(made.Switches)), []byte(topologyimport.Write(made.Switches))})
		}
	}
	return all, nil
}

// writeDocuments writes all files, or none of them if one exists.
func writeDocuments(dir string, documents []document, force bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range documents {
		path := filepath.Join(dir, d.name)
		old, err := os.ReadFile(path)
		if err == nil && !force && !bytes.Equal(old, d.text) {
			return &ui.UsageError{Problem: path + " exists", Advice: "write to an empty directory with -o, or add --force to replace it"}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, d := range documents {
		if err := os.WriteFile(filepath.Join(dir, d.name), d.text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// reportWidth is the width of the list of settings at the end of the report.
const reportWidth = 80

// noteTitles are the headings of the report, by the kind of the notes.
var noteTitles = [...]string{
	mapping.NotConverted: "Not converted:", mapping.Check: "Converted, but behaves differently:", mapping.Unknown: "Unknown settings:",
}

func printImport(w io.Writer, dir string, documents []document, out *mapping.Result) error {
	var b strings.Builder
	for _, d := range documents {
		fmt.Fprintf(&b, "%s: %s\n", filepath.Join(dir, d.name), d.summary)
	}
	for kind, title := range noteTitles {
		first := true
		for _, n := range out.Notes {
			if int(n.Kind) != kind {
				continue
			}
			if first {
				b.WriteString("\n" + title + "\n")
				first = false
			}
			fmt.Fprintf(&b, "  %s\n", ui.Printable(n.String()))
		}
	}
	if len(out.Ignored) > 0 {
		b.WriteString("\nIgnored (no counterpart is needed):\n")
		line := " "
		for _, key := range out.Ignored {
			if len(line)+1+len(key) > reportWidth {
				b.WriteString(line + "\n")
				line = " "
			}
			line += " " + ui.Printable(key)
		}
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// importJSON is the output of gctl import slurm --json.
type importJSON struct {
	Files   []importFileJSON `json:"files"`
	Notes   []importNoteJSON `json:"notes"`
	Ignored []string         `json:"ignored"`
}

type importFileJSON struct {
	Path    string `json:"path"`
	Summary string `json:"summary"`
}

type importNoteJSON struct {
	Kind string `json:"kind"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Key  string `json:"key,omitempty"`
	Text string `json:"text"`
}

func importJSONOf(dir string, documents []document, out *mapping.Result) importJSON {
	kinds := [...]string{mapping.NotConverted: "not_converted", mapping.Check: "check", mapping.Unknown: "unknown"}
	all := importJSON{Files: []importFileJSON{}, Notes: []importNoteJSON{}, Ignored: append([]string{}, out.Ignored...)}
	for _, d := range documents {
		all.Files = append(all.Files, importFileJSON{filepath.Join(dir, d.name), d.summary})
	}
	for _, n := range out.Notes {
		all.Notes = append(all.Notes, importNoteJSON{kinds[n.Kind], n.File, n.Line, n.Key, n.Text})
	}
	return all
}
