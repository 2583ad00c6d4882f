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
		Use: "apply -f FILE", Short: "Replace the policy: partitions, priority classes, limits", GroupID: tool.GroupCluster, Args: cobra.NoArgs,
		Long: `Replaces the cluster's policy by that of a file, and prints what changes.
gctl show policy prints the policy in force in the same form, headed "# version N": a
file with that head is refused when another version is in force by now.`,
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
	c.Flags().BoolVar(&request.DryRun, "dry-run", false, "only say what would change")
	c.Flags().Uint64Var(&request.ExpectVersion, "expect", 0, "refuse if another version is in force by now")
	c.Flags().BoolVar(&force, "force", false, "whatever version the file's head names")
	c.MarkFlagsMutuallyExclusive("expect", "force")
	return c
}

// headVersion is the version that gctl show policy wrote at the head of a policy; 0 when
// there is no such head.
func headVersion(text string) uint64 {
	first, _, _ := strings.Cut(text, "\n")
	number, headed := strings.CutPrefix(strings.TrimSpace(first), "# version ")
	if !headed {
		return 0
	}
	version, err := strconv.ParseUint(number, 10, 64)
	if err != nil { // somebody's own words
		return 0
	}
	return version
}

// checkPolicy is gctl config check for a policy: the file by itself, and unless offline
// what is odd about it on the cluster, which is printed.
func (t commands) checkPolicy(ctx context.Context, path string, offline bool) error {
	text, err := t.ReadText(path)
	if err != nil {
		return err
	}
	if strings.TrimSpace(text) == "" { // as the cluster refuses it
		return &ui.UsageError{Problem: tool.FileLabel(path) + " is empty", Advice: "edit what gctl show policy prints"}
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
		return ui.Unanswered(err, "gctl config check --offline looks at the file alone")
	}
	for _, w := range answer.Warnings {
		t.Warn(w)
	}
	return nil
}
