// Package grun runs programs on the nodes of a job.
//
// It decides, from the options and the job's variables, which step to ask for and what its tasks
// run. Controllers decide where the tasks run, package launch when the step ends.
package grun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/alloc"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/launch"
	"github.com/greylag/greylag/internal/step/stream"
	"github.com/greylag/greylag/internal/tunnel"
	"github.com/greylag/greylag/internal/wire"
)

// command is one run of grun or srun.
type command struct {
	*ui.Process
	slurm bool // use the options and variables of srun
	// forwards yields connections to forward to ports of the step's first node; nil: none.
	forwards <-chan launch.Forward
	// allocation is the one that this command has requested for the step; nil: none.
	allocation *alloc.Allocation
	// interactive says that the step is the shell of the allocation.
	interactive bool
}

// Run runs grun and returns its exit status. ctx is not cancelled by signals: they are for the tasks.
func Run(ctx context.Context, p *ui.Process) int {
	status, err := command{Process: p}.run(ctx)
	if err != nil {
		return p.Finish(ctx, err)
	}
	return status
}

// Srun is Run with the options and variables of srun. An error is about this command, not about a task.
func Srun(ctx context.Context, p *ui.Process) (int, error) {
	return command{Process: p, slurm: true}.run(ctx)
}

// RunIn is Run of the shell of an allocation of the caller. If the user detaches the step, the allocation is kept for
// it, and the status is launch.StatusDetached.
func RunIn(ctx context.Context, p *ui.Process, a *alloc.Allocation) int {
	status, err := command{Process: p, allocation: a, interactive: true}.run(ctx)
	if err != nil {
		return p.Finish(ctx, err)
	}
	return status
}

// Forward is Run that also forwards connections to ports of the step's first node.
func Forward(ctx context.Context, p *ui.Process, forwards <-chan launch.Forward) (int, error) {
	return command{Process: p, forwards: forwards}.run(ctx)
}

// SrunOptions returns the options of srun.
func SrunOptions() []getopt.Option { return command{slurm: true}.options() }

// forwarded are the signals that go to the tasks, and SIGWINCH.
func forwarded() []os.Signal {
	return []os.Signal{
		syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGCONT, syscall.SIGWINCH,
	}
}

func (p command) run(ctx context.Context) (int, error) {
	if p.Completing() {
		return 0, p.Complete(ctx, ui.Completion{Table: p.options(), Order: getopt.First})
	}
	if err := p.CheckWords(); err != nil {
		return 0, err
	}
	found, words, err := getopt.Parse(p.options(), p.Args, getopt.First)
	if err != nil {
		return 0, err
	}
	r, done, err := p.request(found, words)
	if done || err != nil {
		return 0, err
	}
	switch {
	case r.hold:
		return alloc.Hold(ctx, p.Process)
	case r.job == 0 && p.inside():
		return 0, &ui.UsageError{Problem: "GREYLAG_JOB_ID is not set, although this is a job", Advice: "set it to the ID of the job"}
	case r.job == 0:
		return p.allocate(ctx, r, found, words)
	case r.testOnly:
		return 0, p.reportTest(r)
	}
	status, err := p.start(ctx, r)
	if status == launch.StatusDetached && p.allocation == nil {
		status = 0
	}
	return status, err
}

// inside reports whether this process runs inside a job.
func (p command) inside() bool { return p.Variable(config.SocketEnv) != "" }

// start creates the step and runs it.
func (p command) start(ctx context.Context, r *request) (int, error) {
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
	created, err := p.create(ctx, r, secret, signals)
	if err != nil {
		return 0, err
	}
	r.program.Keep, r.program.Limit = r.keep, r.limit
	c := &launch.Config{
		ID: step.FormatID(r.job, created.Step), Listener: listener, Secret: secret, Program: r.program, KeepOnHangup: r.keep,
		Stdin: p.Stdin, Label: r.label, KillOnBadExit: r.killOnBadExit, NoKill: r.noKill,
		QuitOnInterrupt: r.quit, Wait: r.wait, Limit: r.limit, Signals: signals, Forwards: p.forwards, Ended: p.endedStep(r.job, created.Step),
	}
	for _, n := range created.Nodes {
		c.Nodes = append(c.Nodes, step.Node{Name: n.Node, Tasks: int(n.Tasks)})
	}
	closeFiles, err := p.streams(r, c, created)
	if err != nil {
		return 0, err
	}
	if p.allocation != nil {
		c.Leave = func() error { return p.allocation.Keep(created.Step) }
		if r.keep || r.program.PTY { // the allocation ends with this step, even if another grun attaches to it
			if err := c.Leave(); err != nil && r.keep { // detaching tries again
				p.Complain(fmt.Sprintf("cannot keep the allocation for step %s: %v", c.ID, err), "")
			}
		}
	}
	restore := p.terminal(r, c)
	status := launch.Run(ctx, *c)
	restore()
	return status, closeFiles()
}

// endedStep returns a function that describes the end of a step, or returns "" while it has not ended.
func (p command) endedStep(job uint64, id uint32) func(context.Context) string {
	return func(ctx context.Context) string {
		_, cluster, err := p.Client()
		if err != nil {
			return "" // the nodes may still connect
		}
		defer cluster.Close()
		answer, err := cluster.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: fmt.Sprint(job)})
		if err != nil || len(answer.Jobs) != 1 {
			return ""
		}
		for _, s := range answer.Jobs[0].Steps {
			if s.Id == id && s.State != greylagv1.JobState_JOB_STATE_RUNNING {
				return fmt.Sprintf("step %s ended before all its nodes started it (%s)", step.FormatID(job, id), wire.Word(s.State))
			}
		}
		return ""
	}
}

// listen accepts connections from the nodes of the step: directly inside a job, through a controller
// elsewhere.
func (p command) listen(ctx context.Context, r *request) (net.Listener, error) {
	if !p.inside() {
		_, cluster, err := p.Client()
		if err != nil {
			return nil, err
		}
		listener, err := tunnel.NewListener(ctx, cluster.Tunnels())
		if err != nil {
			return nil, err
		}
		r.spec.Contact, r.program.Outside = []string{step.TunnelPrefix + listener.ID().String()}, true
		return listener, nil
	}
	r.program.Outside = r.other
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, err
	}
	if r.spec.Contact, err = launch.Addresses(listener); err != nil {
		listener.Close()
		return nil, err
	}
	if host, _, err := net.SplitHostPort(r.spec.Contact[0]); err == nil {
		r.program.LaunchAddress = host
	}
	return listener, nil
}

// create asks for the step until no other one has its GPUs.
func (p command) create(ctx context.Context, r *request, secret *stream.Secret, signals <-chan os.Signal) (*greylagv1.CreateStepResponse, error) {
	r.spec.Fingerprint, r.spec.Key, r.spec.Terminal = secret.Fingerprint, secret.Key, r.program.PTY
	r.spec.Interactive = p.interactive
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go stopOnSignal(ctx, signals, stop)
	_, cluster, err := p.Client()
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		answer, err := cluster.Jobs().CreateStep(ctx, &greylagv1.CreateStepRequest{RequestId: client.NewRequestID(), Job: r.job, Step: r.spec})
		switch {
		case context.Cause(ctx) != nil:
			return nil, stopped(context.Cause(ctx))
		case err != nil:
			return nil, err
		case answer.Busy == "":
			return answer, nil
		case r.immediate:
			return nil, errors.New(answer.Busy)
		}
		if wait == firstPause && !r.quiet {
			p.Note("waiting: %s", answer.Busy)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, stopped(context.Cause(ctx))
		}
	}
}

// The pauses between two requests for GPUs that are in use.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// stopOnSignal stops on a signal that would end grun: no task exists that could get it.
func stopOnSignal(ctx context.Context, signals <-chan os.Signal, stop context.CancelCauseFunc) {
	for {
		select {
		case sig := <-signals:
			switch sig {
			case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
				stop(&stoppedError{sig.(syscall.Signal)})
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// stoppedError is a signal that came before the step began.
type stoppedError struct{ signal syscall.Signal }

func (e *stoppedError) Error() string { return "stopped by a signal: " + e.signal.String() }

func stopped(cause error) error {
	if s, is := errors.AsType[*stoppedError](cause); is {
		return ui.Exit(ui.Status(128 + int(s.signal)))
	}
	return cause
}

// reportTest says where the step would run.
func (p command) reportTest(r *request) error {
	_, err := fmt.Fprintf(p.Stderr, "%s: a step of job %d would run in partition %s on nodes of %s\n",
		p.Program, r.job, p.inherited("JOB_PARTITION"), p.inherited("NODELIST"))
	return err
}

// inherited returns a variable of the job under Slurm's name, which a script may have changed, else
// under ours.
func (p command) inherited(name string) string {
	if value := p.Variable("SLURM_" + name); value != "" {
		return value
	}
	return p.Variable("GREYLAG_" + name)
}

// streams connects the standard streams of grun, or files that it opens itself.
func (p command) streams(r *request, c *launch.Config, created *greylagv1.CreateStepResponse) (closeAll func() error, err error) {
	tasks := step.CountTasks(c.Nodes)
	if r.multiProg != nil {
		if c.Program.Args, err = r.multiProg.programs(tasks); err != nil {
			return nil, err
		}
	}
	o := &opener{dir: r.program.Dir, letters: p.letters(r, created.Step), tasks: tasks, keep: r.program.Append}
	c.Program.Letters = o.letters
	c.Stdout, c.Stderr = p.Stdout, p.Stderr
	if r.errors == "" {
		r.errors = r.output
	}
	for _, s := range []struct {
		option, where string
		stream        *step.Stream
		to            *io.Writer
	}{{"--output", r.output, &c.Program.Stdout, &c.Stdout}, {"--error", r.errors, &c.Program.Stderr, &c.Stderr}} {
		if *s.stream, err = o.output(s.option, s.where, s.to); err != nil {
			return nil, err
		}
	}
	c.Program.Stdin, err = o.input(r.input, &c.Stdin)
	return o.close, err
}

// letters returns the values of letters in file names.
func (p command) letters(r *request, id uint32) map[byte]string {
	job, number := fmt.Sprint(r.job), fmt.Sprint(id)
	letters := map[byte]string{'j': job, 's': number, 'J': job + "." + number, 'A': job, 'x': r.program.JobName}
	for letter, name := range map[byte]string{'u': "JOB_USER", 'A': "ARRAY_JOB_ID", 'a': "ARRAY_TASK_ID", 'x': "JOB_NAME"} {
		if value := p.inherited(name); value != "" {
			letters[letter] = value
		}
	}
	return letters
}

// programName names a step after its program.
func programName(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return filepath.Base(words[0])
}

// exported returns the variables for the tasks, and whether they get only those.
func exported(list string, environ []string) (env []string, clean bool) {
	words := strings.Split(list, ",")
	all := list == "" || slices.Contains(words, "ALL")
	for _, entry := range environ {
		if all || strings.HasPrefix(entry, "SLURM_") || strings.HasPrefix(entry, "GREYLAG_") {
			env = append(env, entry)
		}
	}
	for _, word := range words {
		if strings.Contains(word, "=") {
			env = append(env, word)
			continue
		}
		for _, entry := range environ {
			if strings.HasPrefix(entry, word+"=") {
				env = append(env, entry)
			}
		}
	}
	return env, !all
}
