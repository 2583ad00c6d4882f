// Package alloc allocates nodes for a command: it submits a job without a user script, which ends with
// the command.
//
// The job's task runs [Hold]. It connects to the command through a controller. It ends the job when
// the command releases it or the connection is lost. The package decides when the allocation is ready
// and how it ends. Controllers decide where and when the job runs.
package alloc

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/jobspec"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/step/stream"
	"github.com/greylag/greylag/internal/tunnel"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// Request is the input of [New].
type Request struct {
	Line    jobscript.Line // the job's options
	Environ []string       // may set options, such as SBATCH_ACCOUNT
	Name    string         // of the job, unless an option names it
	Command string         // shown to users
	// Pending is called if the job waits longer than pendingAfter, Granted when it runs, and Released
	// after its command has ended. They may be nil.
	Pending, Granted, Released func(job uint64)
}

// Allocation is a running job.
type Allocation struct {
	Job uint64
	// Environ holds the variables GREYLAG_* and SLURM_* of the job's task on its first node.
	Environ []string

	process  *ui.Process
	cluster  ui.Cluster
	listener *tunnel.Listener
	hold     *stream.Conn
	kept     chan struct{} // has an element when the job has confirmed Keep
	released chan struct{}
	lost     context.CancelCauseFunc
}

// pendingAfter is how long a job may wait before New calls Pending.
const pendingAfter = time.Second

// New submits the job and waits until it runs. A signal to this process cancels the job; New then
// returns status Interrupted. The returned context ends with the job.
func New(ctx context.Context, p *ui.Process, r Request) (*Allocation, context.Context, error) {
	_, c, err := p.Client()
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	a := &Allocation{process: p, cluster: c, kept: make(chan struct{}, 1), released: make(chan struct{})}
	running, err := a.begin(ctx, r)
	if err != nil {
		a.close()
		if ctx.Err() != nil {
			err = ui.Exit(ui.Interrupted)
		}
		return nil, nil, err
	}
	return a, running, nil
}

func (a *Allocation) begin(ctx context.Context, r Request) (context.Context, error) {
	secret, err := stream.NewSecret()
	if err != nil {
		return nil, err
	}
	// Check the options before any connection is opened.
	spec, err := a.spec(r)
	if err != nil {
		return nil, err
	}
	if a.listener, err = tunnel.NewListener(ctx, a.cluster.Tunnels()); err != nil {
		return nil, err
	}
	spec.Script = []byte(script(a.listener.ID(), secret))
	request := &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{spec}}
	answer, err := a.cluster.Jobs().SubmitJobs(ctx, request)
	if err != nil {
		return nil, err
	}
	for _, w := range answer.Warnings {
		a.process.Warn(w)
	}
	a.Job = answer.Jobs[0].Id
	if err := a.wait(ctx, r, secret); err != nil {
		a.cancel(ctx)
		return nil, err
	}
	running, lost := context.WithCancelCause(context.WithoutCancel(ctx))
	a.lost = lost
	go a.watch()
	return running, nil
}

// script returns the batch script of the job. Only the job's user can read it.
func script(id tunnel.ID, secret *stream.Secret) string {
	return fmt.Sprintf("#!/bin/sh\nexec grun --hold-allocation <<'END'\n%s %s %s\nEND\n", id, hex.EncodeToString(secret.Fingerprint), hex.EncodeToString(secret.Key))
}

// spec returns the job without its script.
func (a *Allocation) spec(r Request) (*greylagv1.JobSpec, error) {
	text := jobscript.Script{Name: r.Name, Text: []byte("#!/bin/sh\n")}
	options, warnings, err := jobscript.Resolve(r.Line, r.Environ, text, a.process.Now())
	for _, w := range warnings {
		a.process.Warn(w)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"array", "wrap", "output", "error", "input", "every-node", "wait", "parsable", "json", "quote", "hold"} {
		if r.Line.Has(name) {
			return nil, &ui.UsageError{Problem: fmt.Sprintf("--%s: an allocation has no batch script", name), Advice: "omit it, or use gsubmit"}
		}
	}
	options.Output, options.Error, options.NoRequeue = os.DevNull, os.DevNull, true
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	host, _ := os.Hostname() // only shown to users; may be ""
	message, _, err := jobspec.Encode(options, text, nil, jobspec.Place{Dir: dir, Host: host, Environ: a.process.Environ})
	spec := &greylagv1.JobSpec{}
	if err := errors.Join(err, proto.Unmarshal(message, spec)); err != nil {
		return nil, err
	}
	spec.Command = jobspec.CommandLine(r.Command)
	return spec, nil
}

// wait waits until the job's task has connected, or the job has ended.
func (a *Allocation) wait(ctx context.Context, r Request, secret *stream.Secret) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { stop(a.ended(ctx)) }()
	if r.Pending != nil {
		defer time.AfterFunc(pendingAfter, func() { r.Pending(a.Job) }).Stop()
	}
	held := make(chan *stream.Conn)
	go func() {
		for {
			raw, err := a.listener.Accept()
			if err != nil {
				stop(err)
				return
			}
			conn, _, err := secret.Accept(ctx, raw)
			if err != nil {
				continue // not from the job
			}
			select {
			case held <- conn:
				return
			case <-ctx.Done():
				conn.Close()
				return
			}
		}
	}()
	select {
	case a.hold = <-held:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer context.AfterFunc(ctx, func() { a.hold.Close() })()
	f, err := a.hold.Receive()
	if err == nil && f.Kind != stream.Held {
		err = stream.ErrFrame
	}
	var variables stream.Variables
	if err == nil {
		err = f.Decode(&variables)
	}
	if err != nil {
		return fmt.Errorf("job %d: %w", a.Job, err)
	}
	a.Environ = variables
	if r.Granted != nil {
		r.Granted(a.Job)
	}
	return nil
}

// ended waits for the end of the job and returns an error that describes it.
func (a *Allocation) ended(ctx context.Context) error {
	ref := fmt.Sprint(a.Job)
	err := a.cluster.Watch(ctx, &greylagv1.WatchJobsRequest{Filter: &greylagv1.Filter{Jobs: []string{ref}}, UntilEnded: true}, func(m *greylagv1.WatchJobsResponse) error {
		for _, j := range m.Jobs {
			if state, err := cluster.ParseJobState(wire.Word(j.State)); err == nil && state.Final() {
				return endError(j)
			}
		}
		return nil
	})
	switch {
	case err == nil:
		return fmt.Errorf("job %d %w", a.Job, errEnded)
	case ctx.Err() != nil || errors.Is(err, errEnded):
		return err
	}
	select { // the stream may be refused for a time; the job still waits
	case <-time.After(pendingAfter):
		return a.ended(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errEnded is wrapped by the error of a job that has ended.
var errEnded = errors.New("has ended")

// endError describes a job that ended.
func endError(j *greylagv1.Job) error {
	text := wire.Word(j.State)
	if why := ui.ReasonText(j); why != "" && why != "None" {
		text += " (" + why + ")"
	}
	if j.Detail != "" {
		text += ": " + j.Detail
	}
	if j.ExitCode == exitNoCommand {
		text += ": grun is not installed on its first node"
	}
	return fmt.Errorf("job %s %w: %s", j.Ref, errEnded, text)
}

// exitNoCommand is the exit status of a shell that does not find a command.
const exitNoCommand = 127

// watch ends the running context with the connection to the job.
func (a *Allocation) watch() {
	f, err := a.hold.Receive()
	for err == nil && f.Kind == stream.Keep {
		select {
		case a.kept <- struct{}{}:
		default:
		}
		f, err = a.hold.Receive()
	}
	close(a.released)
	a.lost(fmt.Errorf("the allocation of job %d has ended: %w", a.Job, err))
}

// Why returns why the job ended, for a message. It waits at most releaseTime for the reason.
func (a *Allocation) Why(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	return a.ended(ctx).Error()
}

// releaseTime bounds the wait for the end of the job.
const releaseTime = 5 * time.Second

// Release ends the job with an exit status.
func (a *Allocation) Release(status int) {
	defer a.close()
	if a.hold.Send(stream.Release, uint32(status)) != nil {
		return // the job has ended
	}
	select {
	case <-a.released:
	case <-time.After(releaseTime):
	}
}

// Keep has the job end with one of its steps if this command leaves it or is lost.
func (a *Allocation) Keep(step uint32) error {
	if err := a.hold.Send(stream.Keep, step); err != nil {
		return err
	}
	select {
	case <-a.kept:
		return nil
	case <-a.released:
		return errEnded
	case <-time.After(releaseTime):
		return fmt.Errorf("no answer from job %d", a.Job)
	}
}

// Leave ends this command's part of an allocation that Keep has kept.
func (a *Allocation) Leave() { a.close() }

// cancel cancels a job that did not start.
func (a *Allocation) cancel(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*releaseTime)
	defer cancel()
	request := &greylagv1.CancelJobsRequest{RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{fmt.Sprint(a.Job)}}}
	if _, err := a.cluster.Jobs().CancelJobs(ctx, request); err != nil {
		a.process.Note("cannot cancel job %d: run gcancel %d", a.Job, a.Job)
	}
}

func (a *Allocation) close() {
	if a.hold != nil {
		a.hold.Close()
	}
	if a.listener != nil {
		a.listener.Close()
	}
	a.cluster.Close()
}

// Over returns environ with the job variables replaced by those of the allocation.
func (a *Allocation) Over(environ []string) []string {
	all := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return ofJob(entry) })
	return append(all, a.Environ...)
}

// ofJob reports whether a variable belongs to a job.
func ofJob(entry string) bool {
	return strings.HasPrefix(entry, "GREYLAG_") && !strings.HasPrefix(entry, config.ClientEnv+"=") || strings.HasPrefix(entry, "SLURM_")
}

// Forecast prints when and where the job would start, without submitting it.
func Forecast(ctx context.Context, p *ui.Process, r Request) error {
	_, c, err := p.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	spec, err := (&Allocation{process: p}).spec(r)
	if err != nil {
		return err
	}
	spec.Script = []byte("#!/bin/sh\n")
	answer, err := c.Jobs().ForecastJob(ctx, &greylagv1.ForecastJobRequest{Job: spec})
	if err != nil {
		return err
	}
	start := "unknown"
	switch {
	case answer.Now:
		start = "now"
	case answer.Start != nil:
		start = answer.Start.AsTime().Local().Format("2006-01-02T15:04:05")
	}
	_, err = fmt.Fprintf(p.Stderr, "%s: the job would start at %s on nodes %s in partition %s\n", p.Program, start,
		ui.Printable(hostlist.Compress(answer.Nodes)), ui.Printable(answer.Partition))
	return err
}

// variableOptions lists the options that srun and salloc read from variables, as suffixes of the
// variable names.
var variableOptions = []string{
	"ACCOUNT", "PARTITION", "QOS", "TIMELIMIT", "RESERVATION", "CONSTRAINT", "WCKEY", "EXCLUSIVE", "GPUS", "GPUS_PER_NODE", "GRES", "LICENSES",
	"CLUSTERS", "CONTAINER_IMAGE",
}

// SlurmVariables renames the input variables of a Slurm program, such as SALLOC_ACCOUNT, to those of
// sbatch, which package jobscript reads.
func SlurmVariables(prefix string, environ []string) (list []string) {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if rest, ok := strings.CutPrefix(name, prefix); ok && slices.Contains(variableOptions, rest) {
			list = append(list, "SBATCH_"+rest+"="+value)
		}
	}
	return list
}
