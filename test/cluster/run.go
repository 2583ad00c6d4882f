package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Result is how a command ended.
type Result struct {
	Stdout, Stderr string
	Exit           int // -1: killed
}

// Command prepares one of the programs as a user would run it: in Work, with
// GREYLAG_CONFIG set.
func (c *Cluster) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return c.command(ctx, nil, program, args...)
}

func (c *Cluster) command(ctx context.Context, enter []string, program string, args ...string) *exec.Cmd {
	argv := append(append([]string{}, enter...), c.program(program))
	argv = append(argv, args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = c.Work
	// A missing locale would be reported in the output of jobs' shells.
	cmd.Env = append(os.Environ(), "GREYLAG_CONFIG="+c.ConfigFile(), "LC_ALL=C")
	return cmd
}

// As makes a prepared command run as another user; needs root.
func As(cmd *exec.Cmd, uid, gid uint32) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	return cmd
}

// Finish runs a prepared command to its end. The error reports that it could not run; an exit
// status other than 0 is no error.
func Finish(cmd *exec.Cmd) (Result, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	result := Result{Stdout: stdout.String(), Stderr: stderr.String(), Exit: -1}
	if cmd.ProcessState != nil {
		result.Exit = cmd.ProcessState.ExitCode()
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = nil
	}
	return result, err
}

// Run runs one of the programs to its end.
func (c *Cluster) Run(ctx context.Context, program string, args ...string) (Result, error) {
	return Finish(c.Command(ctx, program, args...))
}

// run requires status 0 and returns stdout.
func (c *Cluster) run(ctx context.Context, enter []string, program string, args ...string) (string, error) {
	result, err := Finish(c.command(ctx, enter, program, args...))
	if err == nil && result.Exit != 0 {
		err = fmt.Errorf("exit status %d: %s", result.Exit, strings.TrimSpace(result.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return result.Stdout, nil
}
