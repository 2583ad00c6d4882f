package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/views"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// attemptPoll is the interval at which an open stream checks that the attempt that reads it
	// still runs.
	attemptPoll = time.Second
	// attemptGrace is the time after the end of an attempt was decided, plus kill_wait, in which
	// its node must report the end. A node that never reports it must not keep the identity.
	attemptGrace = time.Minute
)

// identifyAttempt makes the caller the owner of the job for whose commands a node forwards a call.
// The node's certificate is accepted only for attempts that are running on that node, and gives the
// role user at most: the node must not gain administrator rights from an administrator's job.
func (s *Server) identifyAttempt(r *http.Request, c *call.Caller, text string) error {
	if c.Machine.Role != pki.RoleNode {
		return fmt.Errorf("%w: the header %s requires the certificate of a node", auth.ErrDenied, auth.AttemptHeader)
	}
	if r.Header.Get("Authorization") != "" {
		return fmt.Errorf("%w: a call for an attempt must not carry a token", auth.ErrBadToken)
	}
	a, err := auth.ParseAttempt(text)
	if err != nil {
		return err
	}
	if c.User, err = s.attemptOwner(r.Context(), a, c.Machine.Name); err != nil {
		return err
	}
	c.Role, c.Attempt = command.RoleUser, &a
	c.Source = fmt.Sprintf("job %s on %s", a, c.Machine.Name)
	return nil
}

// attemptOwner checks that an attempt is running on a node. It needs a current state: a follower may
// lag, and so may a leader that has just been elected.
func (s *Server) attemptOwner(ctx context.Context, a auth.Attempt, node string) (auth.Identity, error) {
	if s.views.Leads() {
		if owner, err := s.ownerNow(a, node); err == nil {
			return owner, nil
		}
	}
	if err := s.views.CatchUp(ctx); err != nil {
		return auth.Identity{}, err
	}
	return s.ownerNow(a, node)
}

// ownerNow is attemptOwner on this controller's present state.
func (s *Server) ownerNow(a auth.Attempt, node string) (auth.Identity, error) {
	v := s.cfg.State.View()
	j, _ := v.Job(a.Job) // nil if unknown
	if j != nil && j.State == cluster.Completing && cluster.InstantOf(s.cfg.Clock()) > j.Ended.Add(v.Policy().KillWait+attemptGrace) {
		j = nil
	}
	return a.OwnerOf(j, node)
}

// endWithAttempt ends a stream once the attempt that reads it has ended.
func (s *Server) endWithAttempt(ctx context.Context, c *call.Caller, end context.CancelCauseFunc) {
	for views.Pause(ctx, attemptPoll) {
		if _, err := s.ownerNow(*c.Attempt, c.Machine.Name); err != nil {
			end(err)
			return
		}
	}
}
