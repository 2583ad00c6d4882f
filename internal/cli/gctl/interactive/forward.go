package interactive

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/grun"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/step/launch"
)

// waitingProgram keeps the step running while connections are forwarded.
const waitingProgram = `while :; do sleep 3600; done`

// ForwardCommand is gctl forward.
func ForwardCommand(t *tool.Tool) *cobra.Command {
	node := ""
	c := &cobra.Command{
		Use: "forward JOB [LOCAL:]PORT", Short: "Forward a local port to a running job", GroupID: tool.GroupJobs,
		Long: "Listens on a port of 127.0.0.1 and forwards each connection to a port of the job, until\nCtrl-C. Without LOCAL both ports have the same number.",
		Args: cobra.ExactArgs(2), ValidArgsFunction: t.CompleteArgs(ui.JobNames),
		RunE: func(c *cobra.Command, args []string) error {
			local, port, err := parsePorts(args[1])
			if err != nil {
				return err
			}
			return forward(c.Context(), t.Process, args[0], node, local, port)
		},
	}
	c.Flags().StringVar(&node, "node", "", "`NODE` of the job [the first one]")
	return c
}

// parsePorts reads [LOCAL:]PORT.
func parsePorts(word string) (local, port uint16, err error) {
	near, far, both := strings.Cut(word, ":")
	if !both {
		far = near
	}
	a, err := strconv.ParseUint(near, 10, 16)
	b, err2 := strconv.ParseUint(far, 10, 16)
	if errors.Join(err, err2) != nil || b == 0 {
		return 0, 0, &ui.UsageError{Problem: fmt.Sprintf("%q is not [LOCAL:]PORT", word), Advice: "write for example 8888 or 9999:8888"}
	}
	return uint16(a), uint16(b), nil
}

func forward(ctx context.Context, p *ui.Process, ref, node string, local, port uint16) error {
	job, err := running(ctx, p, ref)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(local))))
	if err != nil {
		return &ui.UsageError{Problem: err.Error(), Advice: fmt.Sprintf("choose another local port; gctl forward %s 0:%d uses a free one", ref, port)}
	}
	defer listener.Close()
	forwards := make(chan launch.Forward)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			select {
			case forwards <- launch.Forward{Conn: conn, Port: port}:
			case <-ctx.Done():
				return
			}
		}
	}()
	p.Note("forwarding http://%s to port %d of job %s, until Ctrl-C", listener.Addr(), port, job.Ref)
	step := *p
	step.Stdin = strings.NewReader("")
	step.Args = append(shellOptions(step.Stdin), fmt.Sprintf("--jobid=%d", job.Id), "--job-name=forward", "--quit-on-interrupt", "--quiet", "--chdir=/")
	if node != "" {
		step.Args = append(step.Args, "--nodelist="+node)
	}
	step.Args = append(step.Args, "/bin/sh", "-c", waitingProgram)
	status, err := grun.Forward(ctx, &step, forwards)
	switch {
	case err != nil:
		return err
	case status == launch.StatusInterrupted:
		return nil
	}
	return fmt.Errorf("job %s or its step has ended", job.Ref)
}
