// Package tool is the shared code of all commands of gctl: the options of every command, the call of the
// cluster, and how changes, tables and times are printed.
package tool

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// Tool is one run of gctl, with the options that every command has.
type Tool struct {
	*ui.Process
	JSON       bool
	stale      bool   // accept the answer of a controller that is not the leader
	Controller string // the only controller to ask, HOST or HOST:PORT; "" is any
}

// RequireSubcommand refuses an argument of a command that only has subcommands, and suggests one.
func RequireSubcommand(c *cobra.Command, args []string) error {
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

// meant returns the command that a word most likely stands for: a subcommand of c, one of its
// subcommands, or another program; "" when none is similar.
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

// The groups of commands in the help.
const (
	GroupInspect  = "look"
	GroupJobs     = "jobs"
	GroupNodes    = "nodes"
	GroupAccounts = "people"
	GroupCluster  = "cluster"
	GroupHost     = "host"
)

// action runs a command on the cluster.
type action func(ctx context.Context, c ui.Cluster, args []string) error

// On returns the cobra function of a command that needs the cluster.
func (t *Tool) On(do action) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		cfg, cluster, err := t.ClientOf(t.Controller)
		if err != nil {
			return err
		}
		defer cluster.Close()
		t.JSON = t.JSON || cfg.Output == "json"
		return do(command.Context(), cluster, args)
	}
}

// AddStaleFlag adds --stale to a command that reads and to its subcommands.
func (t *Tool) AddStaleFlag(c *cobra.Command) {
	c.PersistentFlags().BoolVar(&t.stale, "stale", false, "accept possibly stale data from any controller")
}

// Read returns how fresh the answer to a command that reads must be.
func (t *Tool) Read() *greylagv1.Read {
	if !t.stale {
		return nil
	}
	return &greylagv1.Read{Stale: true}
}

// CompleteArgs completes arguments with names that the cluster knows.
func (t *Tool) CompleteArgs(ask func(context.Context, ui.Cluster) []string) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return ui.Suggest(command.Context(), t.Process, ask), cobra.ShellCompDirectiveNoFileComp
	}
}

// slurmWords maps the commands of Slurm, and the words that scontrol accepts alone or after "show",
// to the command that does the same here.
var slurmWords = map[string]string{
	"suspend":     "jobs cannot be suspended: gctl requeue JOB ends a job and runs it again, gctl hold JOB holds a pending one",
	"requeuehold": "gctl requeue --hold JOB",
	"uhold":       "gctl hold JOB: its owner may release it",
	"ping":        "gctl cluster status", "reconfigure": "gctl apply -f FILE changes the policy at once; restart controllers and nodes for their own files",
	"takeover": "gctl cluster transfer", "shutdown": "systemctl stop gctld, on each controller",
	"create":   "partitions and reservations are in the policy: gctl show policy, then gctl apply -f FILE",
	"delete":   "partitions and reservations are in the policy: gctl show policy, then gctl apply -f FILE",
	"wait_job": "gsubmit --wait, or gctl logs -f JOB", "listpids": "gctl show job JOB", "write": "gctl script JOB prints a job's script",
	"sprio": "gctl priority", "sshare": "gctl shares", "sacct": "gctl acct", "sinfo": "gctl info", "sreport": "gctl report",
	"sbatch": "gsubmit", "squeue": "gqueue", "scancel": "gcancel", "sacctmgr": "gctl account",
	"scontrol":    "gctl show, gctl update, gctl drain, ...: see gctl --help",
	"show jobs":   "gqueue lists jobs; gctl show job JOB shows one",
	"show config": "gctl show policy",
	"show steps":  "jobs have no steps: gctl show job JOB", "show step": "jobs have no steps: gctl show job JOB",
	"show assoc_mgr": "gctl account list", "show topology": "gctl topology show", "show daemons": "gctl cluster status",
	"show hostnames": "gctl nodes NODES lists one node per line",
}

// slurmWord returns what replaces a word of scontrol after a command; "" when it is not one.
func slurmWord(path, word string) string {
	_, below, _ := strings.Cut(path, " ")
	return slurmWords[strings.ToLower(strings.TrimSpace(below+" "+word))]
}

// Must panics on an error of a call that fails only if the program is wrong.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// Printed prints one line if err is nil, and returns the first error.
func (t *Tool) Printed(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.Stdout, format+"\n", args...)
	return err
}

// AddControllerFlag adds --controller to a command. Without it gauthd chooses the controller.
func (t *Tool) AddControllerFlag(c *cobra.Command) {
	c.Flags().StringVar(&t.Controller, "controller", "", "ask only this controller, HOST or HOST:PORT")
}
