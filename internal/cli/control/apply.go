package control

import (
	"context"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli"
	"github.com/greylag/greylag/internal/client"
)

// maxPolicy bounds a policy's text.
const maxPolicy = 4 << 20

func (t *tool) apply() *cobra.Command {
	var path string
	request := &greylagv1.ApplyRequest{}
	c := &cobra.Command{
		Use: "apply -f FILE", Short: "Replace the policy: partitions, priority classes, limits", GroupID: whole, Args: cobra.NoArgs,
		Long: "Replaces the cluster's policy by that of a file, and prints what changes.\ngctl show policy prints the policy in force in the same form.",
		RunE: t.on(func(ctx context.Context, c cli.Cluster, _ []string) error {
			text, err := t.policyText(path)
			if err != nil {
				return err
			}
			request.Toml, request.RequestId = text, client.NewRequestID()
			return t.sendPolicy(ctx, c, request)
		}),
	}
	c.Flags().StringVarP(&path, "file", "f", "", "the policy, in TOML; - is standard input")
	must(c.MarkFlagRequired("file"))
	c.Flags().BoolVar(&request.DryRun, "dry-run", false, "only say what would change")
	c.Flags().Uint64Var(&request.ExpectVersion, "expect", 0, "refuse if another version is in force by now")
	return c
}

func (t *tool) policyText(path string) (string, error) {
	in := t.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxPolicy+1))
	if err != nil {
		return "", fmt.Errorf("read policy: %w", err)
	}
	if len(text) > maxPolicy {
		return "", &cli.UsageError{Problem: fmt.Sprintf("%s is longer than %d MiB", path, maxPolicy>>20), Advice: "is it the right file?"}
	}
	if !utf8.Valid(text) {
		return "", &cli.UsageError{Problem: path + " is not UTF-8", Advice: "convert it: iconv -f LATIN1 -t UTF-8 " + path}
	}
	return string(text), nil
}

func (t *tool) sendPolicy(ctx context.Context, c cli.Cluster, request *greylagv1.ApplyRequest) error {
	answer, err := c.Cluster().Apply(ctx, request)
	if err != nil {
		return err
	}
	return t.tellChange(answer.Diff, answer.Version, request.DryRun)
}
