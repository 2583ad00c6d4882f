package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/hint"
)

const (
	// surveyAfter is how long a read-only call is tried before all controllers are asked whether
	// any of them leads: longer than an election.
	surveyAfter = 3 * time.Second
	// surveyTime is how long each of them may take to answer, for which it needs no other one.
	surveyTime = time.Second
)

// Refinements of codes.
const (
	// CodeHeader refines the code of an error.
	CodeHeader = "Greylag-Code"
	// CodeNoLeader is its value for a controller that knows no leader.
	CodeNoLeader = "no-leader"
	// CodeRemoved is its value for a controller that was removed from the cluster.
	CodeRemoved = "removed"
	// CodeRevoked is its value for a controller whose certificate was revoked by itself.
	CodeRevoked = "revoked"
	// CodeLeaseEnded is its value for a leased node that no longer belongs to the cluster.
	CodeLeaseEnded = "lease-ended"
)

// leaderless is the error of a call without any leader.
type leaderless struct {
	answer   bool     // some controller is reachable
	statuses []string // the status of each controller, in words
}

// Error lists the status of each controller.
func (l *leaderless) Error() string {
	what := "no controller responds"
	if l.answer {
		what = "there is no leader"
	}
	return what + ": " + strings.Join(l.statuses, "; ")
}

// advice names what still works without a leader.
func (l *leaderless) advice() string {
	if l.answer {
		return "a leader needs a majority of the controllers; show the last known state: gqueue --stale, and --stale of gctl info, nodes, show, why and plan"
	}
	return "is gctld running there? " + listedIn
}

// probeLeaders asks every named controller whether one leads. It returns nil when one does, or when
// their answers do not tell. It takes at most surveyTime.
func (f *failover) probeLeaders(ctx context.Context) error {
	if f.socket != "" { // the node has asked them
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.refused
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	controllers := f.controllers()
	said := make([]standing, len(controllers))
	var all sync.WaitGroup
	for i, target := range controllers {
		all.Go(func() { said[i] = f.ask(ctx, target) })
	}
	all.Wait()
	l := &leaderless{}
	for i, s := range said {
		if s.leads || s.odd {
			return nil
		}
		l.answer = l.answer || s.answers
		l.statuses = append(l.statuses, controllers[i]+" "+s.words)
	}
	return hint.New(l, l.advice())
}

// standing is the status of one controller.
type standing struct {
	leads   bool // it or another one that it knows
	answers bool
	odd     bool // its answer tells nothing
	words   string
}

func (f *failover) ask(ctx context.Context, target string) standing {
	calls := greylagv1connect.NewClusterServiceClient(straight{f, target}, "https://"+target)
	s, err := calls.GetStatus(ctx, &greylagv1.GetStatusRequest{})
	var lost *unreachable
	switch {
	case errors.As(err, &lost):
		return standing{words: lost.words()}
	case ctx.Err() != nil:
		return standing{words: "does not answer"}
	case err != nil:
		return standing{odd: true}
	case s.Leader != "":
		return standing{leads: true}
	case s.DiskLow:
		return standing{answers: true, words: fmt.Sprintf("(%s) responds but has no leader; its disk is almost full", s.Id)}
	}
	return standing{answers: true, words: fmt.Sprintf("(%s) responds but has no leader", s.Id)}
}

// words describes briefly why the controller was not reached.
func (u *unreachable) words() string {
	var late net.Error
	switch {
	case errors.Is(u.err, syscall.ECONNREFUSED):
		return "refuses connections"
	case errors.Is(u.err, context.DeadlineExceeded), errors.Is(u.err, os.ErrDeadlineExceeded), errors.As(u.err, &late) && late.Timeout():
		return "does not answer"
	}
	return "cannot be reached: " + u.err.Error()
}

// straight sends calls to one controller, once.
type straight struct {
	f      *failover
	target string
}

// Do sends a call.
func (s straight) Do(request *http.Request) (*http.Response, error) {
	direct, err := s.f.direct()
	if err != nil {
		return nil, err
	}
	if err := s.f.prove(request); err != nil {
		return nil, err
	}
	response, err := direct.RoundTrip(request)
	if err != nil && !permanent(err) {
		return nil, connect.NewError(connect.CodeUnavailable, notReached(s.target, err))
	}
	return response, err
}
