package gctl

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/clusterdoc"
)

func (t commands) apply() *cobra.Command {
	var path string
	var force bool
	request := &greylagv1.SetPolicyRequest{}
	c := &cobra.Command{
		Use: "apply -f FILE", Short: "Replace the policy: partitions, QOS, limits", GroupID: tool.GroupCluster, Args: cobra.NoArgs,
		Long: `Replaces the cluster's policy with the one in a file, and prints the diff.
gctl show policy prints the current policy in the same format, beginning with
"# version N": a file with that line is refused if the current version
differs.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			text, err := t.ReadText(path)
			if err != nil {
				return err
			}
			if request.ExpectVersion == 0 && !force {
				request.ExpectVersion = headVersion(text)
			}
			request.Toml, request.Name, request.RequestId = text, tool.FileLabel(path), client.NewRequestID()
			answer, err := c.Cluster().SetPolicy(ctx, request)
			if err != nil {
				return err
			}
			return t.PrintChange(answer.Diff, answer.Version, request.DryRun, answer.Warnings...)
		}),
	}
	c.Flags().StringVarP(&path, "file", "f", "", "the policy, in TOML; - is standard input")
	tool.Must(c.MarkFlagRequired("file"))
	c.Flags().BoolVar(&request.DryRun, "dry-run", false, "only print what would change")
	c.Flags().Uint64Var(&request.ExpectVersion, "expect", 0, "refuse if the current version differs")
	c.Flags().BoolVar(&force, "force", false, "ignore the version in the file's first line")
	c.MarkFlagsMutuallyExclusive("expect", "force")
	return c
}

// headVersion returns the version that gctl show policy wrote at the top of a policy; 0 if it is
// missing.
func headVersion(text string) uint64 {
	first, _, _ := strings.Cut(text, "\n")
	number, headed := strings.CutPrefix(strings.TrimSpace(first), "# version ")
	if !headed {
		return 0
	}
	version, err := strconv.ParseUint(number, 10, 64)
	if err != nil { // another comment
		return 0
	}
	return version
}

// checkPolicy is gctl config check for a policy: the file itself, and unless offline the cluster's
// warnings about it, which are printed.
func (t commands) checkPolicy(ctx context.Context, path string, offline bool) error {
	text, err := t.ReadText(path)
	if err != nil {
		return err
	}
	if strings.TrimSpace(text) == "" { // as the cluster refuses it
		return &ui.UsageError{Problem: tool.FileLabel(path) + " is empty", Advice: "start from the output of gctl show policy"}
	}
	if _, err := clusterdoc.ReadPolicy(tool.FileLabel(path), []byte(text)); err != nil || offline {
		return err
	}
	_, c, err := t.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	answer, err := c.Cluster().SetPolicy(ctx, &greylagv1.SetPolicyRequest{Toml: text, Name: tool.FileLabel(path), DryRun: true})
	if err != nil {
		return ui.Unanswered(err, "gctl config check --offline checks only the file")
	}
	for _, w := range answer.Warnings {
		t.Warn(w)
	}
	return nil
}
