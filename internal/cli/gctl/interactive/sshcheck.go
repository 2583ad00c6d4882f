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
	"syscall"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
)

// SSHCheckCommand is gctl ssh-check.
func SSHCheckCommand(t *tool.Tool) *cobra.Command {
	node := ""
	c := &cobra.Command{
		Use: "ssh-check [USER]", Short: "Restrict ssh on this node to users with running jobs", GroupID: tool.GroupHost,
		Long: `As ForceCommand of sshd: opens a shell in the user's newest running job on this
node, or runs the command of the ssh client in that job. Without a running job it
refuses the login.

As AuthorizedKeysCommand, with a user name: prints the user's authorized keys if the
user has a running job on this node, else nothing.`,
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
	c.Flags().StringVar(&node, "node", "", "`NODE` name of this host [its host name]")
	return c
}

// newest returns the newest running job of a user on a node, or nil if none exists. The name "" means the
// caller.
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

// enter opens a shell in the caller's newest job, or runs the ssh client's command there.
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
		return fmt.Errorf("access denied: you have no running job on %s", node)
	}
	var words []string
	if command := p.Variable("SSH_ORIGINAL_COMMAND"); command != "" {
		words = []string{"/bin/sh", "-c", command}
	}
	return shell(ctx, p, job.Ref, node, words, nil)
}

// authorizedKeys prints the authorized keys of a user who has a running job on the node.
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
	f, err := openKeys(filepath.Join(account.HomeDir, ".ssh", "authorized_keys"), account.Uid)
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

// openKeys opens a user's file as sshd does: only the user or root may be able to change it.
func openKeys(path, uid string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		owner := fmt.Sprint(info.Sys().(*syscall.Stat_t).Uid)
		if !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 || owner != uid && owner != "0" {
			err = fmt.Errorf("%s is not a file that only its user may change", path)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// maxKeys bounds the size of a user's file of keys, in bytes.
const maxKeys = 1 << 20
