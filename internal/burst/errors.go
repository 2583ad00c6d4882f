package burst

import (
	"errors"
	"fmt"
)

// The two classes of errors.
var (
	// ErrRefused: the cloud did nothing, and a repeated call would not succeed now. For a launch: no instance of this
	// client token exists.
	ErrRefused = errors.New("refused")
	// ErrUnknownOutcome: the call may have had an effect. The same call is to be repeated, or the list to be read.
	ErrUnknownOutcome = errors.New("outcome unknown")
)

// The kinds of refusals: each wraps [ErrRefused].
var (
	ErrCapacity = errors.New("no capacity")
	ErrPrice    = errors.New("price above the maximum")
	ErrQuota    = errors.New("quota exceeded")
	ErrDenied   = errors.New("permission denied")
	ErrInvalid  = errors.New("invalid request")
	ErrNotFound = errors.New("not found")
	// ErrNotProved: the identity document does not prove that a host is the instance that it says it is.
	ErrNotProved = errors.New("the identity document does not prove that this host is the instance")
)

// The kinds of errors without a known outcome: each wraps [ErrUnknownOutcome].
var (
	ErrThrottled = errors.New("too many calls")
	ErrTryLater  = errors.New("try later")
	ErrMismatch  = errors.New("client token used with other arguments") // of an earlier launch, which may have instances
	ErrProgram   = errors.New("program failed")                         // it did not start, was killed, or had an unknown exit status
	ErrTimeout   = errors.New("no answer in time")                      // it was killed
	ErrAnswer    = errors.New("invalid answer")
	ErrForeign   = errors.New("instance of another launch or cluster in the answer")
	ErrCount     = errors.New("wrong number of instances")
)

var failureKinds = map[string]error{
	FailureCapacity: ErrCapacity, FailurePrice: ErrPrice, FailureQuota: ErrQuota, FailureDenied: ErrDenied,
	FailureInvalid: ErrInvalid, FailureNotFound: ErrNotFound, FailureNotProved: ErrNotProved,
	FailureThrottled: ErrThrottled, FailureTryLater: ErrTryLater, FailureMismatch: ErrMismatch,
}

var refusals = map[error]bool{ErrCapacity: true, ErrPrice: true, ErrQuota: true, ErrDenied: true, ErrInvalid: true, ErrNotFound: true, ErrNotProved: true}

// Error is why a call failed. It wraps its kind and its class.
type Error struct {
	Call    string
	Kind    error // one of the kinds above
	Message string

	unknown bool // the exit status says that a refusal may have had an effect
}

// Error is the kind and the message.
func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("%s: %v", e.Call, e.Kind)
	}
	return fmt.Sprintf("%s: %v: %s", e.Call, e.Kind, e.Message)
}

// Unwrap returns the kind and the class.
func (e *Error) Unwrap() []error {
	if refusals[e.Kind] && !e.unknown {
		return []error{e.Kind, ErrRefused}
	}
	return []error{e.Kind, ErrUnknownOutcome}
}

func fail(kind error, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}
