package grun

import (
	"context"
	"os"
	"os/signal"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/launch"
	"github.com/greylag/greylag/internal/step/stream"
)

// Attachment is the input of Attach.
type Attachment struct {
	Job  uint64
	Step uint32
	// Keys detach this command; "": the default.
	Keys string
	// Keep detaches it also when the terminal closes.
	Keep bool
}

// Attach takes the terminal of a running step and returns the exit status of the step, or 0 if the user
// detaches.
func Attach(ctx context.Context, p *ui.Process, a Attachment) (int, error) {
	if ui.TerminalWidth(p.Stdin) == 0 {
		return 0, &ui.UsageError{Problem: "standard input is not a terminal", Advice: "gctl logs -f JOB follows the output of a job"}
	}
	c := command{Process: p}
	r, _, err := c.request(nil, []string{""})
	if err != nil {
		return 0, err
	}
	if a.Keys != "" {
		if err := setDetachKeys(r, a.Keys); err != nil {
			return 0, &ui.UsageError{Problem: "--detach-keys: " + err.Error(), Advice: "see --help"}
		}
	}
	r.job, r.keep = a.Job, r.keep || a.Keep
	return c.attach(ctx, r, a.Step)
}

func (p command) attach(ctx context.Context, r *request, id uint32) (int, error) {
	secret, err := stream.NewSecret()
	if err != nil {
		return 0, err
	}
	listener, err := p.listen(ctx, r)
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, forwarded()...)
	defer signal.Stop(signals)
	_, cluster, err := p.Client()
	if err != nil {
		return 0, err
	}
	defer cluster.Close()
	answer, err := cluster.Jobs().AttachStep(ctx, &greylagv1.AttachStepRequest{
		RequestId: client.NewRequestID(), Job: r.job, Step: id, Contact: r.spec.Contact, Fingerprint: secret.Fingerprint, Key: secret.Key,
	})
	if err != nil {
		return 0, err
	}
	p.Note("attached to step %s", step.FormatID(r.job, id))
	r.program.PTY, r.program.Keep = true, r.keep
	c := &launch.Config{
		ID: step.FormatID(r.job, id), Attach: true, Listener: listener, Secret: secret, Program: r.program, KeepOnHangup: r.keep,
		Nodes: []step.Node{{Name: answer.Node.GetNode(), Tasks: int(answer.Node.GetTasks())}},
		Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, Signals: signals, Ended: p.endedStep(r.job, id),
	}
	restore := p.terminal(r, c)
	defer restore()
	if status := launch.Run(ctx, *c); status != launch.StatusDetached {
		return status, nil
	}
	return 0, nil
}
