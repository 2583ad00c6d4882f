package server

import (
	"context"
	"errors"
	"net"
	"net/http"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/tunnel"
)

// isTunnel reports whether a call becomes a connection of a tunnel.
func isTunnel(name procedure.Name) bool {
	return name == tunnel.Listen || name == tunnel.Accept || name == tunnel.Connect
}

// serveTunnel turns the connection of a call into one end of a tunnel. Any user who knows the ID may
// connect: it is random, and the programs at both ends authenticate each other.
func (s *Server) serveTunnel(w http.ResponseWriter, r *http.Request, kind string) {
	id, err := tunnel.Requested(r)
	if err != nil {
		s.refuse(w, r, connect.NewError(connect.CodeInvalidArgument, err))
		return
	}
	user := call.From(r.Context()).User.User
	switch kind {
	case tunnel.Listen:
		listening, err := s.tunnels.Listen(id, user)
		if err != nil {
			s.refuseTunnel(w, r, err)
			return
		}
		defer listening.Drop()
		if conn, err := s.takeOver(w); err == nil {
			listening.Serve(s.closing, conn)
		}
	case tunnel.Accept:
		if err := s.tunnels.Waits(id, user); err != nil {
			s.refuseTunnel(w, r, err)
			return
		}
		if conn, err := s.takeOver(w); err == nil {
			s.tunnels.Accept(id, conn)
		}
	case tunnel.Connect:
		ctx, cancel := context.WithCancel(r.Context())
		defer context.AfterFunc(s.closing, cancel)()
		end, done, err := s.tunnels.Connect(ctx, id, user)
		if err != nil {
			s.refuseTunnel(w, r, err)
			return
		}
		defer done()
		conn, err := s.takeOver(w)
		if err != nil {
			end.Close()
			return
		}
		tunnel.Join(s.closing, end, conn)
	}
}

func (s *Server) refuseTunnel(w http.ResponseWriter, r *http.Request, err error) {
	code := connect.CodeNotFound
	if errors.Is(err, tunnel.ErrTooMany) {
		code = connect.CodeResourceExhausted
	}
	s.refuse(w, r, connect.NewError(code, err))
}

// takeOver takes over the connection of a call.
func (s *Server) takeOver(w http.ResponseWriter) (net.Conn, error) {
	if out, is := w.(*answer); is {
		out.begun, out.status = true, http.StatusSwitchingProtocols
	}
	return tunnel.Switch(w)
}
