package server

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/server/call"
)

// Observer receives measurements of the calls that this controller answers, by the name of the
// procedure. A call that the leader answers is reported there. Its methods are called from several
// goroutines and must not block.
type Observer interface {
	// Begin reports a call that begins, and End every call that ends. code is "ok" or the code of
	// Connect; "" for a call that was forwarded.
	Begin(rpc procedure.Name)
	End(rpc procedure.Name, code string, took time.Duration)
	// Limited reports a call that exceeded a limit of its caller.
	Limited(rpc procedure.Name)
}

// unobserved is the Observer of a server without one.
type unobserved struct{}

func (unobserved) Begin(procedure.Name)                      {}
func (unobserved) End(procedure.Name, string, time.Duration) {}
func (unobserved) Limited(procedure.Name)                    {}

// unknownRPC is reported for calls of procedures that do not exist.
const unknownRPC procedure.Name = "unknown"

// observe reports a call; the function that it returns reports its end.
func (s *Server) observe(name string, out *answer) (end func()) {
	rpc := unknownRPC
	if p := procedure.Of(procedure.Name(name)); p.Known() {
		rpc = p.Name
	}
	began := time.Now()
	s.cfg.Observer.Begin(rpc)
	return func() {
		code, took := out.code(), time.Since(began)
		s.cfg.Observer.End(rpc, code, took)
		if s.log.Enabled(context.Background(), slog.LevelDebug) {
			s.log.Debug("call", append(logFields(rpc, out.caller), "code", cmp.Or(code, "forwarded"), "dur", took)...)
		}
	}
}

// logFields describes a call with the keys that all daemons use. c is nil before the caller is known.
func logFields(rpc procedure.Name, c *call.Caller) []any {
	fields := []any{"rpc", rpc}
	if c == nil {
		return fields
	}
	if c.User.User != "" {
		fields = append(fields, "user", c.User.User)
	} else if c.Machine.Name != "" {
		fields = append(fields, string(c.Machine.Role), c.Machine.Name)
	}
	if c.Attempt != nil {
		fields = append(fields, "job", c.Attempt.Job, "attempt", c.Attempt.Number)
	}
	if c.Request != "" {
		fields = append(fields, "request_id", c.Request)
	}
	return fields
}

// code returns the code of the answer; "" if the leader gave it.
func (a *answer) code() string {
	err := a.failed
	if err == nil && a.caller != nil {
		err = a.caller.Failed
	}
	switch {
	case err != nil:
		return connect.CodeOf(err).String()
	case a.forward:
		return ""
	case cmp.Or(a.status, http.StatusOK) >= http.StatusInternalServerError:
		return connect.CodeInternal.String()
	case a.status >= http.StatusBadRequest: // a message that cannot be read
		return connect.CodeInvalidArgument.String()
	}
	return "ok"
}
