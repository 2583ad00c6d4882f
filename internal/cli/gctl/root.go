// Package gctl is gctl: everything about a cluster except submitting, listing or cancelling jobs.
//
// It decides, from the command line and the cluster's answers, which calls it makes, which files it
// writes on this host when the host joins a cluster, and what it prints. It never touches the
// replicated log: gctld does what must be done to it without a running controller.
package gctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/acct"
	"github.com/greylag/greylag/internal/cli/doctor"
	"github.com/greylag/greylag/internal/cli/gctl/accounts"
	"github.com/greylag/greylag/internal/cli/gctl/burst"
	"github.com/greylag/greylag/internal/cli/gctl/checkpoints"
	"github.com/greylag/greylag/internal/cli/gctl/credits"
	"github.com/greylag/greylag/internal/cli/gctl/cron"
	"github.com/greylag/greylag/internal/cli/gctl/interactive"
	"github.com/greylag/greylag/internal/cli/gctl/reports"
	"github.com/greylag/greylag/internal/cli/gctl/secret"
	"github.com/greylag/greylag/internal/cli/gctl/setup"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/gctl/top"
	"github.com/greylag/greylag/internal/cli/options"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/version"
)

// commands holds the commands of one run of gctl.
type commands struct{ *tool.Tool }

// Run is the program gctl.
func Run(ctx context.Context, p *ui.Process) int {
	t := commands{&tool.Tool{Process: p}}
	if err := p.CheckWords(); err != nil {
		return p.Finish(ctx, err)
	}
	root := t.root()
	root.SetArgs(p.Args)
	c, err := root.ExecuteContextC(ctx)
	return p.Finish(ctx, usage(c, err))
}

// usage distinguishes cobra's own errors, which are all about the command line, from those of
// commands.
func usage(c *cobra.Command, err error) error {
	var ours *ui.UsageError
	if err == nil || errors.As(err, &ours) {
		return err
	}
	help := "see " + c.CommandPath() + " --help"
	if problem := options.Reword(c, err.Error()); problem != "" {
		return &ui.UsageError{Problem: problem, Advice: help}
	}
	for _, begin := range []string{"unknown command", "required flag", "accepts ", "requires at least", "invalid argument", "if any flags in the group"} {
		if strings.HasPrefix(err.Error(), begin) {
			return &ui.UsageError{Problem: err.Error(), Advice: help}
		}
	}
	return err
}

func (t commands) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "gctl",
		Short:         "Inspect and manage a cluster",
		Long:          "Inspects and manages a cluster, its jobs and its nodes.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version.Version,
		Args:          tool.RequireSubcommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetOut(t.Stdout)
	root.SetErr(t.Stderr)
	root.SetIn(t.Stdin)
	root.SetVersionTemplate("gctl {{.Version}}\n")
	root.SetHelpTemplate(root.HelpTemplate() + ui.StatusHelp())
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &ui.UsageError{Problem: options.Problem(err), Advice: options.Advice(c, err)}
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().BoolVar(&t.JSON, "json", false, "print JSON")
	root.AddGroup(
		&cobra.Group{ID: tool.GroupInspect, Title: "Inspect:"}, &cobra.Group{ID: tool.GroupJobs, Title: "Jobs:"},
		&cobra.Group{ID: tool.GroupNodes, Title: "Nodes:"}, &cobra.Group{ID: tool.GroupAccounts, Title: "Accounts:"}, &cobra.Group{ID: tool.GroupCluster, Title: "Cluster:"},
		&cobra.Group{ID: tool.GroupHost, Title: "This host:"},
	)
	root.AddCommand(t.info(), t.show(), t.nodesCommand(), t.logs(), t.script(), t.why(), t.history(), t.plan(), top.Command(t.Tool))
	root.AddCommand(acct.Command(t.Tool), cron.Command(t.Tool), secret.Command(t.Tool), checkpoints.Command(t.Tool), burst.Command(t.Tool), t.hold(), t.release(), t.requeue(), t.update())
	root.AddCommand(interactive.AllocCommand(t.Tool), interactive.ShellCommand(t.Tool), interactive.AttachCommand(t.Tool), interactive.ForwardCommand(t.Tool), interactive.SSHCheckCommand(t.Tool))
	root.AddCommand(t.drain(), t.resume(), t.reboot(), t.node(), t.cert())
	root.AddCommand(t.clusterCommand(), t.apply(), t.topology(), t.importCommand())
	root.AddCommand(accounts.Command(t.Tool), accounts.SharesCommand(t.Tool), accounts.PriorityCommand(t.Tool), credits.Command(t.Tool), t.verify(), t.audit(), reports.Command(t.Tool))
	root.AddCommand(setup.InitCommand(t.Tool), setup.JoinCommand(t.Tool), t.config(), doctor.Command(t.Tool), t.completion(), t.versionCommand())
	return root
}

func (t commands) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs, GroupID: tool.GroupHost,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(t.Stdout, "gctl %s\n", version.Version)
			return err
		},
	}
}
