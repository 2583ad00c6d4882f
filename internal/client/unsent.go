package client

import (
	"errors"
	"net"

	"github.com/greylag/greylag/internal/auth"
)

// unsent is the error of a call for which no connection to any controller was made.
type unsent struct{ error }

// Unwrap returns the error of the last attempt.
func (u unsent) Unwrap() error { return u.error }

// Is reports that the error is auth.ErrNotSent as well.
func (unsent) Is(target error) bool { return target == auth.ErrNotSent }

// NotSent reports whether a call failed before anything was sent to a controller.
func NotSent(err error) bool { return errors.Is(err, auth.ErrNotSent) }

// dialFailed reports whether an attempt ended before it had a connection.
func dialFailed(err error) bool {
	op, is := errors.AsType[*net.OpError](err)
	return is && op.Op == "dial"
}

// markUnsent returns the error of a call as unsent if no attempt was sent.
func markUnsent(err error, sent bool) error {
	if err == nil || sent {
		return err
	}
	return unsent{err}
}
