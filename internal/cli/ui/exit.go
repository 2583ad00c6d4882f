package ui

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// Status is a command's exit status.
type Status int

// The exit statuses, the same for all commands.
const (
	OK          Status = 0
	Failed      Status = 1 // refused, or failed for a reason without a status of its own
	Usage       Status = 2
	NotFound    Status = 3
	Denied      Status = 4
	Unavailable Status = 5
	Interrupted Status = 130
)

// statusTable is part of every help.
func statusTable() []struct {
	status  Status
	meaning string
} {
	return []struct {
		status  Status
		meaning string
	}{
		{OK, "done"},
		{Failed, "refused by the cluster, or failed"},
		{Usage, "invalid options, script or configuration"},
		{NotFound, "no such job or node"},
		{Denied, "not allowed, or unknown user"},
		{Unavailable, "no controller could answer in time"},
		{Interrupted, "interrupted"},
	}
}

// StatusHelp is the part of every help that lists the exit statuses.
func StatusHelp() string {
	var b strings.Builder
	b.WriteString("\nExit status:\n")
	for _, row := range statusTable() {
		fmt.Fprintf(&b, "  %-4d %s\n", row.status, row.meaning)
	}
	return b.String()
}

// UsageError is an invalid command line.
type UsageError struct{ Problem, Advice string }

// Error returns the problem.
func (e *UsageError) Error() string { return e.Problem }

// Hint returns the hint.
func (e *UsageError) Hint() string { return e.Advice }

// Unread describes in our words why a file on the command line could not be read; other errors are
// returned unchanged.
func Unread(err error) error {
	at, is := errors.AsType[*fs.PathError](err)
	switch {
	case !is:
		return err
	case at.Path == "":
		return &UsageError{"empty file name", "give its path"}
	case errors.Is(err, fs.ErrNotExist):
		return &UsageError{"no file " + at.Path, "give a file in this directory, or its full path"}
	case errors.Is(err, syscall.EISDIR):
		return &UsageError{at.Path + " is a directory", "give a file in it"}
	}
	return &UsageError{fmt.Sprintf("cannot read %s: %v", at.Path, at.Err), "check its permissions: ls -l " + at.Path}
}

// StatusOf returns the exit status for an error; OK for nil.
func StatusOf(err error) Status {
	var fault *jobscript.Fault
	var option *getopt.Error
	var usage *UsageError
	var exit *exitError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &exit):
		return exit.status
	case errors.As(err, &fault), errors.As(err, &option), errors.As(err, &usage), errors.Is(err, errConfig):
		return Usage
	case errors.Is(err, auth.ErrNoDaemon), errors.Is(err, auth.ErrUnknownUser), errors.Is(err, auth.ErrForeign):
		return Denied
	}
	return codeStatus(connect.CodeOf(err))
}

// NoAnswer reports whether a call failed because no controller could answer it in time.
func NoAnswer(err error) bool { return StatusOf(err) == Unavailable }

// codeStatus returns the exit status for an answer of the API.
func codeStatus(code connect.Code) Status {
	switch code {
	case connect.CodeNotFound:
		return NotFound
	case connect.CodePermissionDenied, connect.CodeUnauthenticated:
		return Denied
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded:
		return Unavailable
	case connect.CodeCanceled:
		return Interrupted
	}
	return Failed
}

// exitError ends a command with a status; its message was printed already.
type exitError struct{ status Status }

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// Exit returns an error that ends a command with status and without a message.
func Exit(status Status) error {
	if status == OK {
		return nil
	}
	return &exitError{status}
}

// IsInterrupted reports whether the user interrupted the command.
func IsInterrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// IsExit reports whether an error ends a command without a message.
func IsExit(err error) bool {
	var exit *exitError
	return errors.As(err, &exit)
}
