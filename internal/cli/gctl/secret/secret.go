// Package secret implements gctl secret: secrets of users.
//
// It decides where a value is read from. Controllers encrypt it; no command prints it.
package secret

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/pkg/cluster"
)

// commands holds the subcommands of one run of gctl.
type commands struct{ *tool.Tool }

const long = `Manages your secrets, such as access tokens. The cluster stores them encrypted.
The tasks of a job that names a secret with --secret find its value in the file
$GREYLAG_SECRETS_DIR/NAME while they run. No command prints a value.`

// Command returns gctl secret.
func Command(t *tool.Tool) *cobra.Command {
	x := commands{t}
	c := &cobra.Command{
		Use: "secret", Short: "Manage your secrets", Long: long, GroupID: tool.GroupJobs, Args: tool.RequireSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(x.set(), x.list(), x.remove())
	return c
}

const setLong = `Stores a secret, or replaces its value. The value is read from standard input, as
it is; at a terminal it is one line, which is not displayed. A replaced value
applies to attempts of jobs that start afterwards.

  gctl secret set hf-token
  gctl secret set key.pem < key.pem
  printf %s "$TOKEN" | gctl secret set hf-token`

func (t commands) set() *cobra.Command {
	return &cobra.Command{
		Use: "set NAME", Short: "Store a secret", Long: setLong, Args: cobra.ExactArgs(1),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			value, err := t.value(ctx, args[0])
			if err != nil {
				return err
			}
			if _, err := c.Jobs().SetSecret(ctx, &greylagv1.SetSecretRequest{RequestId: client.NewRequestID(), Name: args[0], Value: value}); err != nil {
				return err
			}
			t.Note("stored secret %s", args[0])
			return nil
		}),
	}
}

// value reads a value from standard input.
func (t commands) value(ctx context.Context, name string) ([]byte, error) {
	if in, ok := t.Stdin.(*os.File); ok {
		if before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS); err == nil {
			return t.hiddenLine(ctx, in, before, name)
		}
	}
	value, err := io.ReadAll(io.LimitReader(t.Stdin, cluster.MaxSecret+1)) // the cluster refuses larger ones
	if err != nil {
		return nil, ui.Unread(err)
	}
	return value, nil
}

// hiddenLine reads a line from a terminal with these settings, without displaying it.
func (t commands) hiddenLine(ctx context.Context, in *os.File, before *unix.Termios, name string) ([]byte, error) {
	hidden := *before
	hidden.Lflag &^= unix.ECHO
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETSF, &hidden); err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	defer func() {
		_ = unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, before) // fails only without the terminal
		fmt.Fprintln(t.Stderr)
	}()
	fmt.Fprintf(t.Stderr, "value of secret %s: ", ui.Printable(name))
	type result struct {
		line []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadBytes('\n')
		read <- result{bytes.TrimSuffix(line, []byte("\n")), err}
	}()
	select {
	case r := <-read:
		if r.err != nil && !errors.Is(r.err, io.EOF) {
			return nil, ui.Unread(r.err)
		}
		return r.line, nil
	case <-ctx.Done():
		return nil, ui.Exit(ui.Interrupted)
	}
}

// secretJSON is one secret in the output of --json.
type secretJSON struct {
	Name    string     `json:"name"`
	User    string     `json:"user"`
	Changed *time.Time `json:"changed"`
	Problem string     `json:"problem,omitempty"`
}

func (t commands) list() *cobra.Command {
	request := &greylagv1.ListSecretsRequest{}
	c := &cobra.Command{
		Use: "list", Short: "List secrets, without their values", Args: cobra.NoArgs,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			answer, err := c.Jobs().ListSecrets(ctx, request)
			if err != nil {
				return err
			}
			list := []secretJSON{}
			table := ui.Table{Head: []string{"NAME", "CHANGED", "PROBLEM"}, Right: "lll", Prose: true}
			if request.AllUsers {
				table.Head, table.Right = slices.Insert(table.Head, 0, "USER"), "l"+table.Right
			}
			for _, s := range answer.Secrets {
				list = append(list, secretJSON{s.Name, s.User, tool.Timestamp(s.Changed), s.Problem})
				row := []string{s.Name, t.FormatTime(s.Changed), s.Problem}
				if s.Problem == "" {
					row[2] = "-"
				}
				if request.AllUsers {
					row = slices.Insert(row, 0, s.User)
				}
				table.Rows = append(table.Rows, row)
			}
			switch {
			case t.JSON:
				return t.WriteJSON(struct {
					Secrets []secretJSON `json:"secrets"`
				}{list})
			case len(list) == 0:
				t.Note("no secrets; store one with gctl secret set NAME")
				return nil
			}
			return t.WriteTable(table)
		}),
	}
	c.Flags().StringVarP(&request.User, "user", "u", "", "secrets of another user; requires role admin")
	c.Flags().BoolVarP(&request.AllUsers, "all", "a", false, "secrets of all users; requires role admin")
	c.MarkFlagsMutuallyExclusive("user", "all")
	return c
}

func (t commands) remove() *cobra.Command {
	request := &greylagv1.DeleteSecretsRequest{}
	c := &cobra.Command{
		Use: "delete NAME...", Short: "Delete secrets; running tasks keep their files", Args: cobra.MinimumNArgs(1),
		Long: "Deletes secrets. Running tasks keep their files. Pending jobs that name a deleted secret fail when\nthey start.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			request.RequestId, request.Names = client.NewRequestID(), args
			if _, err := c.Jobs().DeleteSecrets(ctx, request); err != nil {
				return err
			}
			t.Note("deleted secrets: %s", strings.Join(args, ", "))
			return nil
		}),
	}
	c.Flags().StringVarP(&request.User, "user", "u", "", "secrets of another user; requires role admin")
	return c
}
