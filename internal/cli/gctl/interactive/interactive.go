// Package interactive implements the commands of gctl for interactive work: alloc, shell, attach,
// forward and ssh-check.
//
// It decides which step a command starts or takes, and in which job. Package grun runs the step.
package interactive

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/alloc"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/grun"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/internal/step/launch"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// Named reports whether arguments of gctl name a command that forwards signals instead of ending on
// them.
func Named(args []string) bool {
	for _, word := range args {
		if !strings.HasPrefix(word, "-") {
			return slices.Contains([]string{"alloc", "shell", "attach", "forward", "ssh-check"}, word)
		}
	}
	return false
}

// userShell starts the user's shell with the job's environment, or sh if the image does not contain it.
// A login shell would set PATH again.
const userShell = `test -x "$SHELL" || SHELL=/bin/sh; exec "$SHELL"`

// shellOptions returns the options of a step with a shell. It overlaps with all other steps, and its
// environment is that of the job, not of this host.
func shellOptions(stdin io.Reader) []string {
	words := []string{"--ntasks=1", "--nodes=1", "--overlap", "--mpi=none", "--export=TERM,LANG,LC_ALL,COLORTERM"}
	if ui.TerminalWidth(stdin) > 0 {
		return append(words, "--pty")
	}
	return append(words, "--send-at-once")
}

// run runs grun and returns its exit status.
func run(ctx context.Context, p ui.Process, words ...string) error {
	p.Args = words
	if status := grun.Run(ctx, &p); status != 0 {
		return ui.Exit(ui.Status(status))
	}
	return nil
}

const allocUsage = `usage: gctl alloc [OPTIONS] [COMMAND [ARGUMENT...]]

Submits a job without a script, waits until it runs, and runs a command on this
host with the job's variables: grun then starts steps in the job. Without a
command it opens a shell on the first node of the job. The job ends with the
command. The options are those of gsubmit.
`

// AllocCommand is gctl alloc.
func AllocCommand(t *tool.Tool) *cobra.Command {
	return &cobra.Command{
		Use: "alloc [OPTIONS] [COMMAND...]", Short: "Allocate nodes for a command or an interactive shell", GroupID: tool.GroupJobs,
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			line, err := jobscript.CommandLine(args)
			if err != nil {
				return err
			}
			if line.Has("help") {
				_, err := io.WriteString(t.Stdout, allocUsage+getopt.Help(jobscript.Table()))
				return err
			}
			if line.Has("test-only") {
				return alloc.Forecast(c.Context(), t.Process, alloc.Request{Line: line, Environ: t.Environ, Name: "interactive"})
			}
			say := func(format string) func(uint64) {
				return func(job uint64) { t.Note(format, job) }
			}
			return Allocate(c.Context(), t.Process, alloc.Request{
				Line: line, Environ: t.Environ, Name: "interactive", Command: "gctl alloc " + strings.Join(args, " "),
				Pending: say("job %d is waiting for resources"), Granted: say("job %d is running; it ends with this command"),
			}, line.Operands)
		},
	}
}

// Allocate requests an allocation and runs a command in it. Without words it runs a shell on the first
// node.
func Allocate(ctx context.Context, p *ui.Process, r alloc.Request, words []string) error {
	a, running, err := alloc.New(ctx, p, r)
	if err != nil {
		return err
	}
	status := 0
	if len(words) > 0 {
		status = a.Run(running, words)
	} else {
		inside := *p
		inside.Environ = a.Over(p.Environ)
		inside.Args = append(shellOptions(p.Stdin), "--job-name=interactive", "/bin/sh", "-c", userShell)
		if status = grun.RunIn(ctx, &inside, a); status == launch.StatusDetached {
			a.Leave()
			return nil
		}
	}
	if running.Err() != nil {
		p.Complain(a.Why(ctx), "")
	}
	a.Release(status)
	if r.Released != nil {
		r.Released(a.Job)
	}
	if status != 0 {
		return ui.Exit(ui.Status(status))
	}
	return nil
}

// ShellCommand is gctl shell.
func ShellCommand(t *tool.Tool) *cobra.Command {
	keys, keep := "", false
	command := &cobra.Command{
		Use: "shell JOB [NODE] [-- COMMAND...]", Short: "Open a shell or run a command in a running job", GroupID: tool.GroupJobs,
		Long: "Opens a shell in a running job, with its GPUs, limits and image, on the first node of\nthe job or on NODE. With -- COMMAND it runs the command instead of a shell.",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: t.CompleteArgs(ui.JobNames),
		RunE: func(c *cobra.Command, args []string) error {
			var words []string
			if at := c.ArgsLenAtDash(); at >= 0 {
				args, words = args[:at], args[at:]
			}
			if len(args) < 1 || len(args) > 2 {
				return &ui.UsageError{Problem: "want a job and at most one node", Advice: "write gctl shell JOB [NODE] [-- COMMAND...]"}
			}
			node := ""
			if len(args) == 2 {
				node = args[1]
			}
			var options []string
			if keep {
				options = append(options, "--detach-on-hangup")
			}
			if keys != "" {
				options = append(options, "--detach-keys="+keys)
			}
			return shell(c.Context(), t.Process, args[0], node, words, options)
		},
	}
	addDetachFlags(command, &keys, &keep)
	return command
}

// shell runs a command in a job, or a shell without words.
func shell(ctx context.Context, p *ui.Process, ref, node string, words, options []string) error {
	job, err := running(ctx, p, ref)
	if err != nil {
		return err
	}
	options = append(append(options, shellOptions(p.Stdin)...), fmt.Sprintf("--jobid=%d", job.Id), "--chdir="+job.WorkDir)
	if node != "" {
		options = append(options, "--nodelist="+node)
	}
	if len(words) == 0 {
		words = []string{"/bin/sh", "-c", userShell}
		options = append(options, "--job-name=shell")
	}
	return run(ctx, *p, append(options, words...)...)
}

// running returns a job, or an error if it is not running.
func running(ctx context.Context, p *ui.Process, word string) (*greylagv1.Job, error) {
	refs, err := ui.Refs([]string{word})
	if err != nil {
		return nil, err
	}
	_, c, err := p.Client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	answer, err := c.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: refs[0]})
	if err != nil {
		return nil, err
	}
	if len(answer.Jobs) != 1 {
		return nil, &ui.UsageError{Problem: word + " is an array", Advice: "name one element, such as " + word + "_0"}
	}
	j := answer.Jobs[0]
	if state := wire.Word(j.State); state != cluster.Running.String() {
		return nil, fmt.Errorf("job %s is %s, not RUNNING", j.Ref, state)
	}
	return j, nil
}
