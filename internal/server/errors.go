package server

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/certs"
	"github.com/greylag/greylag/internal/server/encoding"
	"github.com/greylag/greylag/internal/server/limits"
	"github.com/greylag/greylag/internal/server/views"
)

// codeHeader refines an error's code where Connect has no code for it.
const (
	codeHeader   = client.CodeHeader
	codeMismatch = "mismatch"
	codeTooLarge = "too-large"
)

var (
	errInternal  = errors.New("internal error: the log of this controller has more")
	errUnfounded = errors.New("this controller has no cluster state yet")
	errStopping  = errors.New("this controller is stopping; ask another")
)

// hintUnknown is for people, who set no request ID, and for programs, which do.
const hintUnknown = "outcome unknown: check gqueue or gctl show before you retry; programs retry with the same request_id"

// codes is the one table of the codes that clients get for errors. The first match applies.
func codes(err error) connect.Code {
	for _, row := range [...]struct {
		is   error
		code connect.Code
	}{
		{raftlog.ErrNotLeader, connect.CodeUnavailable}, {raftlog.ErrOutcomeUnknown, connect.CodeUnavailable},
		{raftlog.ErrBusy, connect.CodeUnavailable}, {raftlog.ErrNoQuorum, connect.CodeUnavailable},
		{raftlog.ErrClosed, connect.CodeUnavailable}, {raftlog.ErrTooLarge, connect.CodeInvalidArgument},
		{raftlog.ErrNotCaughtUp, connect.CodeFailedPrecondition}, {raftlog.ErrNoMember, connect.CodeNotFound},
		{raftlog.ErrLastVoter, connect.CodeFailedPrecondition}, {raftlog.ErrOnlyVoter, connect.CodeFailedPrecondition}, {raftlog.ErrWrongMember, connect.CodeFailedPrecondition},
		{raftlog.ErrWrongCluster, connect.CodeFailedPrecondition}, {raftlog.ErrRetired, connect.CodeFailedPrecondition},
		{errNotMember, connect.CodeUnavailable}, {errPassedOn, connect.CodeUnavailable},
		{views.ErrNoLeader, connect.CodeUnavailable}, {errUnfounded, connect.CodeUnavailable}, {errStopping, connect.CodeUnavailable}, {limits.ErrTooOften, connect.CodeResourceExhausted},
		{limits.ErrFull, connect.CodeResourceExhausted}, {limits.ErrTooLarge, connect.CodeInvalidArgument},
		{auth.ErrDenied, connect.CodePermissionDenied}, {auth.ErrAttemptEnded, connect.CodePermissionDenied}, {auth.ErrNoCaller, connect.CodeUnauthenticated},
		{auth.ErrBadToken, connect.CodeUnauthenticated}, {auth.ErrExpired, connect.CodeUnauthenticated},
		{auth.ErrClock, connect.CodeUnauthenticated},
		{pki.ErrBadToken, connect.CodePermissionDenied}, {pki.ErrBadRequest, connect.CodeInvalidArgument},
		{pki.ErrNoKey, connect.CodeUnavailable}, {pki.ErrBadPeer, connect.CodeInvalidArgument}, {pki.ErrRevoked, connect.CodeUnauthenticated}, {pki.ErrUntrusted, connect.CodeUnauthenticated},
		{context.DeadlineExceeded, connect.CodeDeadlineExceeded}, {context.Canceled, connect.CodeCanceled},
	} {
		if errors.Is(err, row.is) {
			return row.code
		}
	}
	var faults strict.Faults
	if errors.As(err, &faults) {
		return connect.CodeInvalidArgument
	}
	return connect.CodeUnknown
}

// refusalCode returns the code of a refusal of the state.
func refusalCode(c command.Code) connect.Code {
	switch c {
	case command.InvalidArgument, command.Mismatch:
		return connect.CodeInvalidArgument
	case command.NotFound:
		return connect.CodeNotFound
	case command.Denied:
		return connect.CodePermissionDenied
	case command.Conflict:
		return connect.CodeFailedPrecondition
	case command.Exhausted:
		return connect.CodeResourceExhausted
	case command.Incomplete:
		return connect.CodeUnavailable
	}
	return connect.CodeInternal
}

// explain converts an error of a handler to the error that a client gets. An unexpected error is
// logged and described only in the log.
func (s *Server) explain(ctx context.Context, rpc string, err error) *connect.Error {
	var ready *connect.Error
	if errors.As(err, &ready) {
		return ready
	}
	if limits.RetryAfter(err) > 0 {
		s.cfg.Observer.Limited(procedure.OfPath(rpc).Name)
	}
	var refusal *command.Refusal
	if errors.As(err, &refusal) {
		answer := connect.NewError(refusalCode(refusal.Code), errors.New(refusal.Message))
		setHint(answer, refusal.Hint)
		if refusal.Code == command.Mismatch {
			answer.Meta().Set(codeHeader, codeMismatch)
		}
		return answer
	}
	code := codes(err)
	if code == connect.CodeUnknown {
		s.log.Error("a call failed", append(logFields(procedure.OfPath(rpc).Name, call.From(ctx)), "err", err)...)
		return connect.NewError(connect.CodeInternal, errInternal)
	}
	answer := connect.NewError(code, errors.New(plain(err)))
	setHint(answer, hintOf(err))
	if after := limits.RetryAfter(err); after > 0 {
		answer.Meta().Set("Retry-After", strconv.Itoa(int(math.Ceil(after.Seconds()))))
	}
	if errors.Is(err, limits.ErrTooLarge) {
		answer.Meta().Set(codeHeader, codeTooLarge)
	}
	if errors.Is(err, views.ErrNoLeader) {
		answer.Meta().Set(codeHeader, client.CodeNoLeader)
	}
	if code := certs.Code(err); code != "" {
		answer.Meta().Set(codeHeader, code)
	}
	if code == connect.CodeUnavailable {
		if id, addr := s.cfg.Log.Leader(); addr != "" && id != s.cfg.ID {
			answer.Meta().Set(leaderHeader, addr)
		}
	}
	return answer
}

// hintOf returns the advice for an error that is no refusal; "" without advice.
func hintOf(err error) string {
	if advice := hint.Of(err); advice != "" || !errors.Is(err, raftlog.ErrOutcomeUnknown) {
		return advice
	}
	return hintUnknown
}

// plain returns an error's text without the name of its package.
func plain(err error) string { return strings.ReplaceAll(err.Error(), "raftlog: ", "") }

// setHint adds advice; a header holds one line.
func setHint(err *connect.Error, hint string) {
	if hint != "" {
		err.Meta().Set(hintHeader, strings.Join(strings.Fields(hint), " "))
	}
}

// answers explains the errors of handlers, and bounds the time of streams that are not read.
type answers struct{ s *Server }

// WrapUnary explains.
func (a answers) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		err := encoding.CheckEnums(request.Any())
		var response connect.AnyResponse
		if err == nil {
			response, err = next(ctx, request)
		}
		if err != nil {
			return nil, a.fail(ctx, request.Spec().Procedure, err)
		}
		return response, nil
	}
}

// WrapStreamingClient is not used.
func (a answers) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// endsStream reports whether a cause is this controller's own reason to end a stream.
func endsStream(cause error) bool {
	return errors.Is(cause, errStopping) || errors.Is(cause, auth.ErrAttemptEnded) || errors.Is(cause, pki.ErrRevoked) || errors.Is(cause, pki.ErrUntrusted)
}

// WrapStreamingHandler explains, counts the caller's streams, and ends them when
// the server stops.
func (a answers) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		rpc := conn.Spec().Procedure
		leave, err := a.s.limits.Enter(call.From(ctx))
		if err != nil {
			return a.fail(ctx, rpc, err)
		}
		defer leave()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(a.s.closing, func() { cancel(errStopping) })()
		if c := call.From(ctx); c.Attempt != nil {
			go a.s.endWithAttempt(ctx, c, cancel)
		}
		defer a.s.certs.Enter(call.From(ctx), cancel)()
		err = next(ctx, checkedConn{conn})
		if cause := context.Cause(ctx); err != nil && endsStream(cause) {
			err = cause
		}
		if err != nil {
			return a.fail(ctx, rpc, err)
		}
		return nil
	}
}

// fail explains an error and records it as the answer.
func (a answers) fail(ctx context.Context, rpc string, err error) error {
	explained := a.s.explain(ctx, rpc, err)
	call.From(ctx).Failed = explained
	return explained
}

// checkedConn is a stream whose requests have only defined values of enums.
type checkedConn struct{ connect.StreamingHandlerConn }

// Receive reads and checks a request.
func (c checkedConn) Receive(request any) error {
	if err := c.StreamingHandlerConn.Receive(request); err != nil {
		return err
	}
	return encoding.CheckEnums(request)
}
