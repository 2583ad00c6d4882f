package server

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"

	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/views"
)

// passedOn reports whether the leader must answer a call.
func (s *Server) passedOn(p *procedure.Procedure) bool {
	switch p.Route {
	case procedure.Leader:
		return true
	case procedure.CompleteHistory:
		return s.cfg.Complete != nil && !s.cfg.Complete() && !s.views.Leads()
	}
	return false
}

// atLeader answers here if this controller leads, else forwards the request.
func (s *Server) atLeader(w http.ResponseWriter, r *http.Request, c *call.Caller) {
	if s.views.Leads() {
		s.mux.ServeHTTP(w, r)
		return
	}
	if r.Header.Get(forwardedHeader) != "" { // forwarded already: not again
		s.refuse(w, r, views.ErrNoLeader)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), views.LeaderTime)
	defer cancel()
	for {
		r.Body = io.NopCloser(bytes.NewReader(body))
		_, addr := s.cfg.Log.Leader()
		switch {
		case s.views.Leads():
			s.mux.ServeHTTP(w, r)
			return
		case addr != "":
			err := s.pass(w, r, c, addr, int64(len(body)))
			if err == nil {
				if out, is := w.(*answer); is {
					out.forward = true
				}
				return
			}
			if !neverSent(err) {
				s.refuse(w, r, unknownOutcome(err))
				return
			}
		}
		if !views.Pause(ctx, views.LeaderPause) {
			s.refuse(w, r, views.ErrNoLeader)
			return
		}
	}
}

// unknownOutcome returns the answer to a call whose connection to the leader broke, in one line without
// the addresses of the connection.
func unknownOutcome(err error) error {
	var broken *net.OpError
	if errors.As(err, &broken) {
		err = broken.Err
	}
	return fmt.Errorf("%w: the connection to the leader broke: %w", raftlog.ErrOutcomeUnknown, err)
}

// pass forwards the request to the controller at addr and returns the answer. After an error
// nothing has been written.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, c *call.Caller, addr string, length int64) error {
	var failed error
	origin := "-"
	if (c.User.User == "" || c.Attempt != nil) && c.Machine.Role != "" {
		origin = string(c.Machine.Role) + "/" + c.Machine.Name
	}
	proxy := &httputil.ReverseProxy{
		Transport:     s.cfg.Peers.Transport(),
		FlushInterval: -1, // streams
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "https", addr, ""
			p.Out.ContentLength = length
			p.Out.Header.Set(forwardedHeader, origin)
			p.Out.Header.Set(sourceHeader, c.Source)
			setCertificate(p.Out.Header, c.Leaf)
		},
		ModifyResponse: func(response *http.Response) error {
			response.Header.Set(leaderHeader, addr)
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		ErrorLog:     s.http.ErrorLog,
	}
	proxy.ServeHTTP(w, r)
	return failed
}

// neverSent reports whether an error occurred before anything was sent.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// certificateHeader carries, between controllers, the certificate of the program whose call is
// forwarded.
const certificateHeader = "Greylag-Certificate"

func setCertificate(h http.Header, leaf *x509.Certificate) {
	h.Del(certificateHeader)
	if leaf != nil {
		h.Set(certificateHeader, base64.StdEncoding.EncodeToString(leaf.Raw))
	}
}

// passedCertificate reads the header that setCertificate wrote; nil for none.
func passedCertificate(h http.Header) (*x509.Certificate, error) {
	text := h.Get(certificateHeader)
	if text == "" {
		return nil, nil
	}
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pki.ErrUntrusted, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pki.ErrUntrusted, err)
	}
	return leaf, nil
}
