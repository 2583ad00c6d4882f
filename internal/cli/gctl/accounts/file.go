package accounts

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
)

func (t commands) accountDump() *cobra.Command {
	return &cobra.Command{
		Use: "dump", Short: "Print all accounts as a file for load", Args: cobra.NoArgs,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			answer, err := c.Accounts().ExportAccounts(ctx, &greylagv1.ExportAccountsRequest{})
			if err != nil {
				return err
			}
			if t.JSON {
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

func (t commands) accountLoad() *cobra.Command {
	var path string
	request := &greylagv1.ImportAccountsRequest{}
	c := &cobra.Command{
		Use: "load -f FILE", Short: "Replace the accounts from a file", Args: cobra.NoArgs,
		Long: "Replaces the accounts and their users from a file, and prints the changes. Accounts and\nusers that are not in the file are deleted, unless they have active jobs.\ngctl account dump prints the accounts in the same format.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			text, err := t.ReadText(path)
			if err != nil {
				return err
			}
			request.Toml, request.Name = text, tool.FileLabel(path)
			answer, err := c.Accounts().ImportAccounts(ctx, request)
			if err != nil {
				return err
			}
			return t.PrintChange(answer.Diff, answer.Version, request.DryRun, answer.Warnings...)
		}),
	}
	c.Flags().StringVarP(&path, "file", "f", "", "the accounts, in TOML; - is standard input")
	tool.Must(c.MarkFlagRequired("file"))
	c.Flags().BoolVar(&request.DryRun, "dry-run", false, "only print what would change")
	return c
}
