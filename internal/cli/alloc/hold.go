package alloc

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/step/stream"
	"github.com/greylag/greylag/internal/tunnel"
)

// Hold keeps the job of this process running until the command that submitted it releases it. It returns
// the exit status for the job: the command's, that of the step for which the command has kept the job, or
// an error if the connection to the command is lost. The first line of standard input names the tunnel
// to the command and the keys.
func Hold(ctx context.Context, p *ui.Process) (int, error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(p.Stdin, 1024)).ReadString('\n')
	if err != nil {
		return 0, errInternalOption
	}
	words := strings.Fields(line)
	if len(words) != 3 {
		return 0, errInternalOption
	}
	id, err := tunnel.ParseID(words[0])
	key, err2 := hex.DecodeString(words[2])
	if err != nil || err2 != nil {
		return 0, errInternalOption
	}
	conn, err := reach(ctx, tunnel.Node{Socket: p.Variable(config.SocketEnv)}, id, words[1])
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.Prove(key, 0); err != nil {
		return 0, err
	}
	if err := conn.SendValue(stream.Held, variables(p.Environ)); err != nil {
		return 0, err
	}
	for step, kept := uint32(0), false; ; {
		f, err := conn.Receive()
		switch {
		case ctx.Err() != nil:
			return statusTerminated, nil
		case err != nil && kept:
			return awaitStep(ctx, p, step), nil
		case err != nil:
			return 0, fmt.Errorf("lost the connection to the command that holds this allocation: %w", err)
		case f.Kind == stream.Keep:
			step, kept = f.Number, true
			_ = conn.Send(stream.Keep, step) // receiving fails too
		case f.Kind == stream.Release:
			return int(uint8(f.Number)), nil
		default:
			return 0, stream.ErrFrame
		}
	}
}

// statusTerminated is the exit status of a job that gets SIGTERM.
const statusTerminated = 128 + int(syscall.SIGTERM)

// awaitStep waits for the end of a step of this process's job and returns its exit status.
func awaitStep(ctx context.Context, p *ui.Process, id uint32) int {
	for {
		status, err := watchStep(ctx, p, id)
		if err == nil {
			return status
		}
		select { // no controller answers; the step may still run
		case <-time.After(reachTime):
		case <-ctx.Done():
			return statusTerminated
		}
	}
}

// watchStep is awaitStep until the connection to the controllers fails.
func watchStep(ctx context.Context, p *ui.Process, id uint32) (int, error) {
	_, c, err := p.Client()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	filter := &greylagv1.Filter{Jobs: []string{p.Variable("GREYLAG_JOB_ID")}}
	status, ended := 0, false
	err = c.Watch(ctx, &greylagv1.WatchJobsRequest{Filter: filter, UntilEnded: true}, func(m *greylagv1.WatchJobsResponse) error {
		for _, j := range m.Jobs {
			for _, s := range j.Steps {
				if s.Id == id && s.Ended != nil {
					status, ended = stepStatus(s), true
					return errEnded
				}
			}
		}
		return nil
	})
	if ended {
		return status, nil
	}
	return 0, errors.Join(err, errEnded)
}

// stepStatus returns the exit status of a step as a shell reports it.
func stepStatus(s *greylagv1.Step) int {
	if s.ExitSignal > 0 {
		return 128 + int(s.ExitSignal)
	}
	return int(s.ExitCode)
}

var errInternalOption = errors.New("--hold-allocation is only for gctl alloc and grun")

// reachTime bounds the attempts to connect to the command.
const reachTime = 30 * time.Second

// reach connects to the command, with retries.
func reach(ctx context.Context, controllers tunnel.Controllers, id tunnel.ID, fingerprint string) (*stream.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		raw, err := tunnel.Dial(ctx, controllers, id)
		if err == nil {
			return stream.Client(ctx, raw, fingerprint)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot connect to the command that requested this allocation: %w", err)
		case <-time.After(wait):
		}
	}
}

// taskVariables lists the variables that describe one task or node, not the job.
var taskVariables = []string{"PROCID", "LOCALID", "NODEID", "GTIDS", "NODENAME", "CPUS_ON_NODE", "GPUS_ON_NODE", "TASK_PID"}

// variables returns the variables of the job.
func variables(environ []string) stream.Variables {
	var all stream.Variables
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(name, "GREYLAG_")
		if !ours {
			rest, ours = strings.CutPrefix(name, "SLURM_")
		}
		if ours && name != config.SocketEnv && !slices.Contains(taskVariables, rest) && name != "SLURMD_NODENAME" {
			all = append(all, entry)
		}
	}
	return all
}

// Run runs a command on this host, with the variables of the allocation, and returns its exit status. It
// sends SIGHUP to the command when the job ends.
func (a *Allocation) Run(ctx context.Context, words []string) int {
	path, err := exec.LookPath(words[0])
	if err != nil {
		a.process.Complain(fmt.Sprintf("%s: %v", words[0], err), "")
		return exitNoCommand
	}
	process, err := os.StartProcess(path, words, &os.ProcAttr{Env: a.Over(a.process.Environ), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		a.process.Complain(fmt.Sprintf("%s: %v", words[0], err), "")
		return exitNoCommand - 1
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for over := ctx.Done(); ; {
			sig := os.Signal(syscall.SIGHUP) // as when the terminal closes
			select {
			case sig = <-signals:
			case <-over:
				over = nil
			case <-ended:
				return
			}
			if sig != syscall.SIGINT && sig != syscall.SIGQUIT { // the terminal sends these to the command
				_ = process.Signal(sig) // it may have ended
			}
		}
	}()
	state, err := process.Wait()
	if err != nil {
		return 1
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
