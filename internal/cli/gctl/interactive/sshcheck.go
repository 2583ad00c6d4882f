package interactive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
)

// SSHCheckCommand is gctl ssh-check.
func SSHCheckCommand(t *tool.Tool) *cobra.Command {
	node := ""
	c := &cobra.Command{
		Use: "ssh-check [USER]", Short: "Let users of ssh onto a node only into their job", GroupID: tool.GroupHost,
		Long: `As ForceCommand of sshd on a node: opens a shell in the user's newest running job on
this node, or runs the command that ssh was given there. Without a job it refuses.

As AuthorizedKeysCommand, with the name of a user: prints the user's authorized keys
if the user has a running job on this node, and nothing otherwise.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if node == "" {
				host, err := os.Hostname()
				if err != nil {
					return err
				}
				node, _, _ = strings.Cut(host, ".")
			}
			if len(args) == 1 {
				return authorizedKeys(c.Context(), t, args[0], node)
			}
			return enter(c.Context(), t.Process, node)
		},
	}
	c.Flags().StringVar(&node, "node", "", "`NODE` that this host is [its host name]")
	return c
}

// newest returns the newest running job of a user on a node; "" is the caller. nil: no such job exists.
func newest(ctx context.Context, c ui.Cluster, name, node string) (*greylagv1.Job, error) {
	f := &greylagv1.Filter{Nodes: []string{node}, States: []greylagv1.JobState{greylagv1.JobState_JOB_STATE_RUNNING}}
	if name == "" {
		f.Mine = true
	} else {
		f.Users = []string{name}
	}
	stream, err := c.Jobs().StreamJobs(ctx, &greylagv1.ListJobsRequest{Filter: f})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var last *greylagv1.Job
	for stream.Receive() {
		for _, j := range stream.Msg().Jobs {
			if last == nil || j.Id > last.Id {
				last = j
			}
		}
	}
	return last, stream.Err()
}

// enter opens a shell in the caller's job, or runs ssh's command.
func enter(ctx context.Context, p *ui.Process, node string) error {
	_, c, err := p.Client()
	if err != nil {
		return err
	}
	job, err := newest(ctx, c, "", node)
	c.Close()
	switch {
	case err != nil:
		return err
	case job == nil:
		return fmt.Errorf("you have no running job on %s: ssh leads only into a job", node)
	}
	var words []string
	if command := p.Variable("SSH_ORIGINAL_COMMAND"); command != "" {
		words = []string{"/bin/sh", "-c", command}
	}
	return shell(ctx, p, job.Ref, node, words)
}

// authorizedKeys prints the keys of a user who has a job here.
func authorizedKeys(ctx context.Context, t *tool.Tool, name, node string) error {
	_, c, err := t.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	job, err := newest(ctx, c, name, node)
	if err != nil || job == nil {
		return err
	}
	account, err := user.Lookup(name)
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(account.HomeDir, ".ssh", "authorized_keys"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	defer f.Close()
	_, err = io.Copy(t.Stdout, bufio.NewReader(io.LimitReader(f, maxKeys)))
	return err
}

// maxKeys bounds what is read of a user's file.
const maxKeys = 1 << 20
