// Package hint attaches advice to errors: what a user can do, usually a command, which
// programs print after "hint:".
//
// It never decides what is wrong: that is the error itself.
package hint

import "errors"

// Error is an error with advice. Error types with a meaning of their own, such as a fault of
// the command line, implement Hint themselves.
type Error struct {
	Err    error
	Advice string // lower case, no full stop; may be empty
}

// New adds advice to an error.
func New(err error, advice string) error { return &Error{err, advice} }

// Error returns the message without the advice.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without the advice.
func (e *Error) Unwrap() error { return e.Err }

// Hint returns the advice.
func (e *Error) Hint() string { return e.Advice }

// Of returns the outermost advice of an error; "" without advice.
func Of(err error) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		return hinted.Hint()
	}
	return ""
}
