package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/greylag/greylag/internal/hint"
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
	Credentials string `json:"-"`
	Group       Group  `json:"-"` // of the child; nil: that of this process
}

// Group limits what a child uses.
type Group interface {
	Add(pid int) error // before the child has read its order
	Remove() error     // after the child has ended
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
	order, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	// The user may not be able to reach the program by its path.
	file, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("verification of a checkpoint: %w", err)
	}
	defer file.Close()
	var answer bytes.Buffer
	cmd := exec.Command("/proc/self/fd/3", ChildCommand)
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stdout, cmd.Dir = &answer, "/"
	cmd.Env = append(slices.Clip(p.Env), "GOMAXPROCS="+strconv.Itoa(max(cores, 1)))
	if p.Credentials != "" {
		secret, err := os.Open(p.Credentials)
		if err != nil {
			return fmt.Errorf("credentials of a checkpoint: %w", err)
		}
		defer secret.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, secret)
		cmd.Env = append(cmd.Env, CredentialsVariable+"=/proc/self/fd/4")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
	ended, err := start(cmd, p.Group, order)
	if err != nil {
		return fmt.Errorf("verification of a checkpoint: %w", err)
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		return ctx.Err()
	}
	var o outcome
	switch {
	case err != nil:
		return fmt.Errorf("verification of a checkpoint: %w", err)
	case json.Unmarshal(answer.Bytes(), &o) != nil:
		return errors.New("verification of a checkpoint: no answer")
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

// start starts a child in a group and sends it its order. The child waits for the order, so that all that it uses counts
// for the group. How it ends is sent when nothing of the group is left.
func start(cmd *exec.Cmd, group Group, order []byte) (<-chan error, error) {
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// Its memory grows with the manifest, which a user wrote: it is killed before the daemons and the jobs.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("900"), 0) // it may have ended
	if group != nil {
		err = group.Add(cmd.Process.Pid)
	}
	if err == nil {
		_, _ = input.Write(order) // if it has ended, its exit says more
	}
	_ = input.Close()
	ended := make(chan error, 1)
	go func() {
		failed := cmd.Wait()
		if group != nil {
			_ = group.Remove() // the next start of the daemon removes it
		}
		ended <- cmp.Or(err, failed)
	}()
	return ended, nil
}

// userErrors are errors of creating a directory that are the user's: another host has them, too.
var userErrors = []error{syscall.EACCES, syscall.EPERM, syscall.ENOTDIR, syscall.ENAMETOOLONG, syscall.EDQUOT, syscall.ELOOP}

// ChildMain is the child of PrepareIn: it reads a Preparation and writes how it ended. It returns the exit
// status.
func ChildMain(ctx context.Context, in io.Reader, out io.Writer) int {
	var p Preparation
	if err := json.NewDecoder(in).Decode(&p); err != nil {
		return 2
	}
	var o outcome
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
	if json.NewEncoder(out).Encode(o) != nil {
		return 1
	}
	return 0
}
