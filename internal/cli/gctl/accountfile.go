package gctl

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
)

func (t *tool) accountDump() *cobra.Command {
	return &cobra.Command{
		Use: "dump", Short: "Print all accounts as a file that load takes", Args: cobra.NoArgs,
		RunE: t.on(func(ctx context.Context, c ui.Cluster, _ []string) error {
			answer, err := c.Accounts().DumpAccounts(ctx, &greylagv1.DumpAccountsRequest{})
			if err != nil {
				return err
			}
			if t.json {
				return t.WriteJSON(struct {
					Version uint64 `json:"version"`
					TOML    string `json:"toml"`
				}{answer.Version, answer.Toml})
			}
			_, err = io.WriteString(t.Stdout, answer.Toml)
			return err
		}),
	}
}

func (t *tool) accountLoad() *cobra.Command {
	var path string
	request := &greylagv1.LoadAccountsRequest{}
	c := &cobra.Command{
		Use: "load -f FILE", Short: "Make the accounts those of a file", Args: cobra.NoArgs,
		Long: "Makes the accounts and their users those of a file, and prints what changes. What is\nnot in the file is deleted, unless it has jobs that have not ended.\ngctl account dump prints the accounts in the same form.",
		RunE: t.on(func(ctx context.Context, c ui.Cluster, _ []string) error {
			text, err := t.policyText(path)
			if err != nil {
				return err
			}
			request.Toml, request.Name = text, fileName(path)
			answer, err := c.Accounts().LoadAccounts(ctx, request)
			if err != nil {
				return err
			}
			return t.tellChange(answer.Diff, answer.Version, request.DryRun, answer.Warnings...)
		}),
	}
	c.Flags().StringVarP(&path, "file", "f", "", "the accounts, in TOML; - is standard input")
	must(c.MarkFlagRequired("file"))
	c.Flags().BoolVar(&request.DryRun, "dry-run", false, "only say what would change")
	return c
}

// tellChange prints what a file changed, or would change, and what is odd about it.
func (t *tool) tellChange(diff string, version uint64, dry bool, warnings ...string) error {
	if t.json {
		return t.WriteJSON(struct {
			Version  uint64   `json:"version"`
			Diff     string   `json:"diff"`
			DryRun   bool     `json:"dry_run"`
			Warnings []string `json:"warnings,omitempty"`
		}{version, diff, dry, warnings})
	}
	for _, w := range warnings {
		t.Warn(w)
	}
	if _, err := io.WriteString(t.Stdout, diff); err != nil {
		return err
	}
	switch {
	case diff == "":
		t.Note("nothing changes")
	case dry:
		t.Note("this is what would change; nothing was")
	default:
		t.Note("version %d is in force", version)
	}
	return nil
}
