package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strings"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/views"
)

// Headers between controllers: the origin of a request that is forwarded to the leader. Only
// controllers may set them.
const (
	forwardedHeader = "Greylag-Forwarded" // ROLE/NAME of the program that called, or "-"
	sourceHeader    = "Greylag-Source"
)

// ServeHTTP handles every request: it identifies the caller, checks rights and limits, and answers
// here or forwards to the leader.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, isAPI := strings.CutPrefix(r.URL.Path, procedure.Prefix)
	if !isAPI {
		if s.cfg.Web == nil {
			http.NotFound(w, r)
			return
		}
		s.cfg.Web.ServeHTTP(w, r)
		return
	}
	out := &answer{ResponseWriter: w}
	defer s.observe(name, out)()
	defer s.recover(out, r)
	s.certs.CloseBeforeEnd(out, r)
	var c *call.Caller
	rpc := procedure.Of(procedure.Name(name))
	err := s.serves(rpc)
	if err == nil {
		c, err = s.identify(r, rpc)
	}
	if err == nil {
		err = auth.Allow(c.Caller, c.RPC, auth.Own) // the handler checks what belongs to other users
	}
	if err == nil {
		err = s.checkPeer(r.Context(), c)
	}
	if err == nil {
		err = s.limits.Admit(c, s.cfg.Clock())
	}
	if err == nil && compressed(r.Header) {
		err = errCompressed
	}
	if err != nil {
		s.refuse(out, r, err)
		return
	}
	out.caller = c
	r = r.WithContext(call.With(r.Context(), c))
	if isTunnel(rpc.Name) { // without a body, and it may last for days
		s.serveTunnel(out, r, string(rpc.Name))
		return
	}
	body, err := s.limits.AdmitBody(out, r, c, func(err error) error { return s.explain(r.Context(), r.URL.Path, err) })
	if err != nil {
		s.refuse(out, r, err)
		return
	}
	defer body.Release()
	r.Body = body
	if s.passedOn(c.RPC) {
		s.atLeader(out, r, c)
		return
	}
	s.mux.ServeHTTP(out, r)
}

// errCompressed refuses compressed requests, whose size is not known before they are read.
var errCompressed = connect.NewError(connect.CodeUnimplemented, errors.New("compressed requests are not supported: send them without compression"))

// compressed reports whether a request's body or messages are compressed.
func compressed(h http.Header) bool {
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		if word := h.Get(name); word != "" && word != "identity" {
			return true
		}
	}
	return false
}

// refuse answers without a handler.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, pki.ErrRevoked) || errors.Is(err, pki.ErrUntrusted) || errors.Is(err, errPassedOn) {
		w.Header().Set("Connection", "close") // the next one shows the certificate that the host has by then
	}
	explained := s.explain(r.Context(), r.URL.Path, err)
	if out, is := w.(*answer); is {
		out.failed = explained
	}
	_ = s.errors.Write(w, r, explained) // fails only if the caller has disconnected
}

// recover answers for a handler that panicked; the controller continues.
func (s *Server) recover(w *answer, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // this makes net/http close the connection
	}
	s.log.Error("a handler panicked", "rpc", procedure.OfPath(r.URL.Path).Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	s.refuse(w, r, connect.NewError(connect.CodeInternal, errInternal))
}

// identify returns the caller, from the connection and the token.
func (s *Server) identify(r *http.Request, rpc *procedure.Procedure) (*call.Caller, error) {
	c := &call.Caller{RPC: rpc, Source: hostOf(r.RemoteAddr)}
	if r.TLS != nil {
		if peer, ok := s.cfg.Trust.PeerOf(r.TLS); ok {
			c.Machine, c.Via, c.Leaf = peer, peer, r.TLS.PeerCertificates[0]
		}
	}
	err := s.certs.Expired(c)
	if err == nil {
		err = s.certs.Check(c)
	}
	switch {
	case err != nil && c.Via.Role == pki.RoleController && r.Header.Get(forwardedHeader) != "":
		return nil, errPassedOn
	case err == nil:
		err = s.originate(r, c)
	}
	if err != nil {
		return nil, err
	}
	if text := r.Header.Get(auth.AttemptHeader); text != "" {
		return c, s.identifyAttempt(r, c, text)
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		return c, nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, fmt.Errorf("%w: want the header Authorization: Bearer TOKEN", auth.ErrBadToken)
	}
	id, err := s.verifier.Verify(strings.TrimSpace(token), s.cfg.Clock())
	if err != nil {
		return nil, err
	}
	if err := s.waitBootstrapped(r.Context(), rpc); err != nil {
		return nil, err
	}
	c.User, c.Role = id, auth.RoleOf(s.cfg.State.View().Policy(), id.Identity)
	return c, s.certs.Check(c)
}

// originate sets the caller to the program whose call a controller forwards.
func (s *Server) originate(r *http.Request, c *call.Caller) error {
	origin := r.Header.Get(forwardedHeader)
	if origin == "" || c.Machine.Role != pki.RoleController {
		r.Header.Del(forwardedHeader)
		return nil
	}
	leaf, err := passedCertificate(r.Header)
	if err != nil {
		return err
	}
	c.Machine, c.Leaf = originOf(origin, c.Machine.ClusterID), leaf
	c.Source, c.Passed = r.Header.Get(sourceHeader), true
	if leaf == nil {
		return nil
	}
	peer, err := s.cfg.Trust.Verify(leaf, s.cfg.Clock())
	if err != nil {
		return err
	}
	if c.Machine.Role != "" && peer != c.Machine {
		return fmt.Errorf("%w: the forwarded certificate belongs to %s", pki.ErrUntrusted, peer)
	}
	c.Machine = peer
	return s.certs.Check(c)
}

// waitBootstrapped waits for a state, where a call is answered from this controller's state. The
// leader of a new cluster has no policy for a moment, nor has a controller that has just joined,
// and would deny administrators what they may do.
func (s *Server) waitBootstrapped(ctx context.Context, rpc *procedure.Procedure) error {
	if s.cfg.State.View().ClusterID() != "" || rpc.Anytime || s.passedOn(rpc) && !s.views.Leads() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, views.LeaderTime)
	defer cancel()
	for s.cfg.State.View().ClusterID() == "" {
		if !views.Pause(ctx, views.LeaderPause) {
			return errUnfounded
		}
	}
	return nil
}

// originOf returns the program whose call a controller forwards; zero for none.
func originOf(text, clusterID string) pki.Peer {
	role, name, _ := strings.Cut(text, "/")
	peer := pki.Peer{ClusterID: clusterID, Role: pki.Role(role), Name: name}
	if peer.Validate() != nil {
		return pki.Peer{}
	}
	return peer
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

// answer records whether an answer has begun. It sets the HTTP status for a request ID that was
// used for another request and for a body that is too large, which Connect cannot express.
type answer struct {
	http.ResponseWriter
	begun   bool
	status  int
	failed  error        // what refuse answered
	caller  *call.Caller // nil: not known yet
	forward bool         // the leader answered
}

// WriteHeader begins the answer.
func (a *answer) WriteHeader(status int) {
	switch code := a.Header().Get(codeHeader); {
	case status == http.StatusBadRequest && code == codeMismatch:
		status = http.StatusUnprocessableEntity
	case status == http.StatusBadRequest && code == codeTooLarge:
		status = http.StatusRequestEntityTooLarge
	}
	a.begun, a.status = true, status
	a.ResponseWriter.WriteHeader(status)
}

// Write begins the answer or continues it.
func (a *answer) Write(data []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(data)
}

// Flush sends what was written.
func (a *answer) Flush() {
	a.begun = true
	if f, ok := a.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
