package interactive

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/grun"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/pkg/cluster"
)

// AttachCommand is gctl attach.
func AttachCommand(t *tool.Tool) *cobra.Command {
	var a grun.Attachment
	c := &cobra.Command{
		Use: "attach JOB[.STEP]", Short: "Attach to the terminal of a running step", GroupID: tool.GroupJobs,
		Long: "Attaches this terminal to a running step that grun --pty, gctl alloc or gctl shell\nstarted, and prints its latest output. A command that is attached is detached.\nWithout STEP the job must have exactly one such step.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: t.CompleteArgs(ui.JobNames),
		RunE: func(c *cobra.Command, args []string) error {
			status, err := Attach(c.Context(), t.Process, args[0], a)
			if err == nil && status != 0 {
				err = ui.Exit(ui.Status(status))
			}
			return err
		},
	}
	addDetachFlags(c, &a.Keys, &a.Keep)
	return c
}

// addDetachFlags adds the options of grun for detaching.
func addDetachFlags(c *cobra.Command, keys *string, keep *bool) {
	c.Flags().StringVar(keys, "detach-keys", "", "`KEYS` that detach from the step: ctrl-p,ctrl-q or none [ctrl-\\,d]")
	c.Flags().BoolVar(keep, "detach-on-hangup", false, "detach instead of ending the step if the terminal closes or this host fails")
}

// Attach takes the terminal of the step that a word names, JOB or JOB.STEP, and returns its exit status.
func Attach(ctx context.Context, p *ui.Process, word string, a grun.Attachment) (int, error) {
	ref, number, named := strings.Cut(word, ".")
	job, err := running(ctx, p, ref)
	if err != nil {
		return 0, err
	}
	a.Job = job.Id
	if !named {
		a.Step, err = onlyTerminal(job)
		if err != nil {
			return 0, err
		}
		return grun.Attach(ctx, p, a)
	}
	if a.Step, err = cluster.ParseStep(number); err != nil {
		return 0, &ui.UsageError{Problem: fmt.Sprintf("%q is not a step", word), Advice: "write JOB.STEP, such as 123.0"}
	}
	return grun.Attach(ctx, p, a)
}

// onlyTerminal returns the step of a job with a terminal.
func onlyTerminal(job *greylagv1.Job) (uint32, error) {
	var found []string
	id := uint32(0)
	for _, s := range job.Steps {
		if s.Terminal && s.Ended == nil {
			found, id = append(found, job.Ref+"."+cluster.FormatStep(s.Id)), s.Id
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("job %s has no running step with a terminal", job.Ref)
	case 1:
		return id, nil
	}
	return 0, &ui.UsageError{Problem: fmt.Sprintf("job %s has %d steps with a terminal", job.Ref, len(found)), Advice: "name one of " + strings.Join(found, ", ")}
}
