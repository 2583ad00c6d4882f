// Package gsim runs Greylag's scheduler in virtual time.
//
// It decides, from the command line, which workload or saved cluster runs on which machine under
// which policy, and how the result is printed. It never decides what starts when: the scheduler
// does, within the simulation.
package gsim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/options"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/trace"
	"github.com/greylag/greylag/internal/version"
)

// tool is one run of gsim.
type tool struct {
	*ui.Process
	json bool
}

const statusHelp = `
Exit status:
  0    done
  1    the simulation or a check of it failed, or the cluster refused the request
  2    wrong options, or an invalid file
  3    no such node
  4    not allowed, or the user is unknown
  5    no controller could answer in time
  130  interrupted
`

// Run runs gsim and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int {
	t := &tool{Process: p}
	root := t.root()
	root.SetArgs(p.Args)
	done := make(chan error, 1)
	go func() {
		c, err := root.ExecuteContextC(ctx)
		done <- usage(c, err)
	}()
	select {
	case err := <-done:
		return p.Finish(ctx, err)
	case <-ctx.Done(): // a simulation does not check its context; the process ends
		return p.Finish(ctx, ctx.Err())
	}
}

// usage returns errors of the command line and of files as usage errors.
func usage(c *cobra.Command, err error) error {
	var ours *ui.UsageError
	var faults strict.Faults
	switch {
	case err == nil || errors.As(err, &ours):
		return err
	case errors.As(err, &faults):
		return &ui.UsageError{Problem: err.Error()}
	case errors.Is(err, trace.ErrBad) && !errors.Is(err, trace.ErrLines):
		return &ui.UsageError{Problem: err.Error()}
	case errors.Is(err, trace.ErrBad):
		return &ui.UsageError{Problem: err.Error(), Advice: "leave such lines out with --bad skip; put them in order with --sort"}
	case errors.Is(err, sim.ErrRefused), errors.Is(err, trace.ErrWorkload):
		return &ui.UsageError{Problem: err.Error()}
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

func (t *tool) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "gsim",
		Short: "Run the scheduler in virtual time",
		Long: "Run Greylag's own state and scheduler in virtual time: on a log of a real workload\n" +
			"(replay), once per setting to compare settings (front), on a saved cluster (what-if), under\n" +
			"hardware failures (reliability), or to measure one pass (pass). generate writes a log to replay.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version.Version,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return &ui.UsageError{Problem: fmt.Sprintf("unknown command %q", "gsim "+args[0]), Advice: "see gsim --help"}
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetOut(t.Stdout)
	root.SetErr(t.Stderr)
	root.SetIn(t.Stdin)
	root.SetVersionTemplate("gsim {{.Version}}\n")
	root.SetHelpTemplate(root.HelpTemplate() + statusHelp)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &ui.UsageError{Problem: options.Problem(err), Advice: options.Advice(c, err)}
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().BoolVar(&t.json, "json", false, "print JSON")
	root.AddCommand(t.replay(), t.front(), t.generate(), t.pass(), t.snapshot(), t.whatIf(), t.reliability(), t.burst())
	return root
}

// terminal reports whether standard error is a terminal.
func (t *tool) terminal() bool {
	f, ok := t.Stderr.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
