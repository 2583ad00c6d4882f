package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/userchild"
)

// Preparation is what a node does with the checkpoints of a job before it starts a task of it.
type Preparation struct {
	Create string   `json:"create,omitempty"` // directory to create; "": none
	Verify string   `json:"verify,omitempty"` // checkpoint to verify; "": none
	Digest [32]byte `json:"digest"`           // of its manifest
	Index  int      `json:"index"`            // share of this host: see Share
	Of     int      `json:"of"`
	Env    []string `json:"-"` // of the child, as KEY=VALUE
	// Credentials is a file of the user with S3 credentials, whose path the user may not be able to follow; "": none.
	Credentials string          `json:"-"`
	Group       userchild.Group `json:"-"` // of the child; nil: that of this process
}

// outcome is the answer of a child.
type outcome struct {
	Damage      string `json:"damage,omitempty"`
	Credentials string `json:"credentials,omitempty"`
	Create      string `json:"create,omitempty"` // why the directory cannot be created
	Error       string `json:"error,omitempty"`
}

// ChildCommand is the first argument with which a program has to call ChildMain.
const ChildCommand = "prepare-checkpoint"

// ErrCreate means that a directory cannot be created with the permissions of the user.
var ErrCreate = errors.New("cannot create the checkpoint directory")

// PrepareIn makes a preparation in a child process: the program, which calls ChildMain, runs on that many cores as
// the user, or as this process if as is nil. A file server that does not answer holds only the child, which may
// outlive the call. The error is a *Damage, ErrCreate, the context's, or another one if the file system cannot be
// used here.
func PrepareIn(ctx context.Context, program string, as *syscall.Credential, cores int, p Preparation) error {
	c := userchild.Command{Program: program, Name: ChildCommand, As: as, Cores: cores, Env: p.Env, Group: p.Group}
	if p.Credentials != "" {
		secret, err := os.Open(p.Credentials)
		if err != nil {
			return fmt.Errorf("credentials of a checkpoint: %w", err)
		}
		defer secret.Close()
		c.Secret, c.SecretVariable = secret, CredentialsVariable
	}
	var o outcome
	err := userchild.Run(ctx, c, p, &o)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("verification of a checkpoint: %w", err)
	case o.Damage != "":
		return &Damage{o.Damage}
	case o.Create != "":
		return fmt.Errorf("%w: %s", ErrCreate, o.Create)
	case o.Credentials != "":
		return fmt.Errorf("%w: %s", ErrCredentials, strings.Replace(o.Credentials, ErrCredentials.Error()+": ", "", 1))
	case o.Error != "":
		return errors.New(o.Error)
	}
	return nil
}

// userErrors are errors of creating a directory that are the user's: another host has them, too.
var userErrors = []error{syscall.EACCES, syscall.EPERM, syscall.ENOTDIR, syscall.ENAMETOOLONG, syscall.EDQUOT, syscall.ELOOP}

// ChildMain is the child of PrepareIn: it reads a Preparation and writes how it ended. It returns the exit
// status.
func ChildMain(ctx context.Context, in io.Reader, out io.Writer) int {
	return userchild.Serve(in, out, func(p Preparation) outcome { return prepare(ctx, p) })
}

// prepare makes a preparation in this process.
func prepare(ctx context.Context, p Preparation) (o outcome) {
	if p.Create != "" {
		if err := os.MkdirAll(p.Create, 0o777); slices.ContainsFunc(userErrors, func(e error) bool { return errors.Is(err, e) }) {
			o.Create = err.Error()
		} else if err != nil {
			o.Error = err.Error()
		}
	}
	if p.Verify != "" {
		_, err := Verify(ctx, p.Verify, p.Digest, Share{p.Index, max(p.Of, 1)})
		if d := (*Damage)(nil); errors.As(err, &d) {
			o.Damage = d.Text
		} else if errors.Is(err, ErrCredentials) {
			o.Credentials = err.Error()
		} else if err != nil {
			o.Error = err.Error()
			if advice := hint.Of(err); advice != "" {
				o.Error += "; " + advice
			}
		}
	}
	return o
}
