// Package gctl is gctl: everything about a cluster that is not submitting,
// listing or cancelling jobs.
//
// It decides, from the command line and the cluster's answers, what is asked of
// the cluster, what is written on this host when it becomes part of a cluster,
// and what is printed. It never touches the replicated log: what must be done to
// it without a running controller is gctld's.
package gctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/options"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/internal/version"
)

// tool is one run of gctl.
type tool struct {
	*ui.Process
	json       bool
	stale      bool   // what any controller knows will do
	controller string // HOST or HOST:PORT that alone is asked; "": any
}

// Run is gctl.
func Run(ctx context.Context, p *ui.Process) int {
	t := &tool{Process: p}
	if err := p.CheckWords(); err != nil {
		return p.Finish(ctx, err)
	}
	root := t.root()
	root.SetArgs(p.Args)
	c, err := root.ExecuteContextC(ctx)
	return p.Finish(ctx, usage(c, err))
}

// usage tells cobra's own errors, all of which are about the command line, from
// those of commands.
func usage(c *cobra.Command, err error) error {
	var ours *ui.UsageError
	if err == nil || errors.As(err, &ours) {
		return err
	}
	help := "see " + c.CommandPath() + " --help"
	if problem := options.Plainly(c, err.Error()); problem != "" {
		return &ui.UsageError{Problem: problem, Advice: help}
	}
	for _, begin := range []string{"unknown command", "required flag", "accepts ", "requires at least", "invalid argument", "if any flags in the group"} {
		if strings.HasPrefix(err.Error(), begin) {
			return &ui.UsageError{Problem: err.Error(), Advice: help}
		}
	}
	return err
}

// choose is for commands that only hold others: a word that is none of them is a
// mistake.
func choose(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	advice := "see " + c.CommandPath() + " --help"
	if near := meant(c, args[0]); near != "" {
		advice = "did you mean " + near + "?"
	}
	if instead := slurmWord(c.CommandPath(), args[0]); instead != "" {
		advice = instead
	}
	return &ui.UsageError{Problem: fmt.Sprintf("unknown command %q", c.CommandPath()+" "+args[0]), Advice: advice}
}

// meant is the command that a word is most likely for: one of c's, one further down,
// or another program; "" when none is near.
func meant(c *cobra.Command, word string) string {
	whole := make(map[string]string)
	var own, deep []string
	for _, sub := range c.Commands() {
		own = append(own, sub.Name())
		whole[sub.Name()] = sub.CommandPath()
		for _, below := range sub.Commands() {
			if _, taken := whole[below.Name()]; !taken {
				deep = append(deep, below.Name())
				whole[below.Name()] = below.CommandPath()
			}
		}
	}
	if near := getopt.Closest(word, own); near != "" {
		return whole[near]
	}
	switch { // what other programs do
	case c.HasParent():
	case word == "submit" || word == "cancel" || word == "queue":
		return "g" + word
	case word == "jobs" || word == "list" || word == "ls":
		return "gqueue"
	}
	return whole[getopt.Closest(word, deep)]
}

func (t *tool) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "gctl",
		Short:         "Looks at a cluster and changes it",
		Long:          "Looks at a cluster, its jobs and its nodes, and changes them.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version.Version,
		Args:          choose,
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
	root.PersistentFlags().BoolVar(&t.json, "json", false, "print JSON")
	root.AddGroup(
		&cobra.Group{ID: look, Title: "Looking:"}, &cobra.Group{ID: jobs, Title: "Jobs:"},
		&cobra.Group{ID: nodes, Title: "Nodes:"}, &cobra.Group{ID: people, Title: "Accounts:"}, &cobra.Group{ID: whole, Title: "The cluster:"},
		&cobra.Group{ID: host, Title: "This host:"},
	)
	root.AddCommand(t.info(), t.show(), t.nodesCommand(), t.logs(), t.script(), t.why(), t.plan())
	root.AddCommand(t.acct(), t.hold(), t.release(), t.requeue(), t.update())
	root.AddCommand(t.drain(), t.resume(), t.node(), t.cert())
	root.AddCommand(t.clusterCommand(), t.apply(), t.topology())
	root.AddCommand(t.account(), t.shares(), t.priority(), t.credit(), t.verify(), t.audit(), t.report())
	root.AddCommand(t.init(), t.join(), t.config(), t.doctor(), t.completion(), t.versionCommand())
	return root
}

// The groups of commands in the help.
const (
	look   = "look"
	jobs   = "jobs"
	nodes  = "nodes"
	people = "people"
	whole  = "cluster"
	host   = "host"
)

func (t *tool) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs, GroupID: host,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(t.Stdout, "gctl %s\n", version.Version)
			return err
		},
	}
}

// action is what a command does with the cluster.
type action func(ctx context.Context, c ui.Cluster, args []string) error

// on makes a cobra function of one that needs the cluster.
func (t *tool) on(do action) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		cfg, cluster, err := t.ClientOf(t.controller)
		if err != nil {
			return err
		}
		defer cluster.Close()
		t.json = t.json || cfg.Output == "json"
		return do(command.Context(), cluster, args)
	}
}

// addStaleFlag gives a command that looks, and those below it, the option to do without a leader.
func (t *tool) addStaleFlag(c *cobra.Command) {
	c.PersistentFlags().BoolVar(&t.stale, "stale", false, "take any controller's word, although none may lead")
}

// read is how fresh the answer to a command that looks must be.
func (t *tool) read() *greylagv1.Read {
	if !t.stale {
		return nil
	}
	return &greylagv1.Read{Stale: true}
}

// candidates makes a completion of what the cluster says.
func (t *tool) candidates(ask func(context.Context, ui.Cluster) []string) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return ui.Suggest(command.Context(), t.Process, ask), cobra.ShellCompDirectiveNoFileComp
	}
}

// errNothing is for a command whose words choose nothing.
var errNothing = errors.New("nothing is named")
