package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
)

const (
	// leaderTime is how long a call waits for a leader: longer than choosing one
	// takes, shorter than a client waits for an answer.
	leaderTime = 5 * time.Second
	// leaderPause is between two looks.
	leaderPause = 20 * time.Millisecond
)

// passedOn reports whether a call is the leader's to answer.
func (s *Server) passedOn(p *procedure.Procedure) bool {
	switch p.Route {
	case procedure.Leader:
		return true
	case procedure.CompleteHistory:
		return s.cfg.Complete != nil && !s.cfg.Complete() && !s.leads()
	}
	return false
}

// leads reports whether this controller leads as far as it knows.
func (s *Server) leads() bool {
	id, _ := s.cfg.Log.Leader()
	return id != "" && id == s.cfg.ID
}

// atLeader answers here when this controller leads, else passes the request on.
func (s *Server) atLeader(w http.ResponseWriter, r *http.Request, c *call.Caller) {
	if s.leads() {
		s.mux.ServeHTTP(w, r)
		return
	}
	if r.Header.Get(forwardedHeader) != "" { // passed on already: no rounds
		s.refuse(w, r, errNoLeader)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), leaderTime)
	defer cancel()
	for {
		r.Body = io.NopCloser(bytes.NewReader(body))
		_, addr := s.cfg.Log.Leader()
		switch {
		case s.leads():
			s.mux.ServeHTTP(w, r)
			return
		case addr != "":
			err := s.pass(w, r, c, addr, int64(len(body)))
			if err == nil {
				return
			}
			if !neverSent(err) {
				s.refuse(w, r, unknownOutcome(err))
				return
			}
		}
		if !pause(ctx, leaderPause) {
			s.refuse(w, r, errNoLeader)
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

// pass sends the request on to the controller at addr and the answer back. After
// an error nothing has been written.
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

// neverSent reports whether an error came before anything was sent.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// pause waits, and reports false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// fresh returns a view that is as fresh as the caller asks: linearizable unless
// stale is set.
func (s *Server) fresh(ctx context.Context, read *greylagv1.Read) (*state.View, *greylagv1.AsOf, error) {
	if least := read.GetMinIndex(); least > 0 {
		limited, cancel := context.WithTimeout(ctx, leaderTime)
		defer cancel()
		if err := s.cfg.Log.WaitApplied(limited, least); err != nil {
			return nil, nil, unlessGone(ctx, errNoLeader)
		}
	}
	if !read.GetStale() {
		if err := s.catchUp(ctx); err != nil {
			return nil, nil, err
		}
	}
	v := s.cfg.State.View()
	return v, &greylagv1.AsOf{
		Index: v.Index(), Time: wire.Timestamp(v.Now()), Controller: s.cfg.ID, Stale: read.GetStale(),
	}, nil
}

// catchUp returns when this controller's state holds everything that was agreed
// before the call. It waits for a leader as long as a change does.
func (s *Server) catchUp(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, leaderTime)
	defer cancel()
	for {
		err := s.confirm(limited)
		if err == nil {
			return nil
		}
		if !pause(limited, leaderPause) {
			return unlessGone(ctx, errNoLeader)
		}
	}
}

func (s *Server) confirm(ctx context.Context) error {
	if s.leads() {
		_, err := s.cfg.Log.ReadIndex(ctx)
		return err
	}
	_, addr := s.cfg.Log.Leader()
	if addr == "" {
		return errNoLeader
	}
	index, err := s.cfg.Peers.ReadIndex(ctx, addr)
	if err != nil {
		return err
	}
	return s.cfg.Log.WaitApplied(ctx, index)
}

// unlessGone is the caller's own end where that is the reason, else err.
func unlessGone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
