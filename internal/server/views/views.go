// Package views returns views of the replicated state that are as fresh as a caller asks.
package views

import (
	"context"
	"errors"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
)

// State is the replicated state of this controller: a controller.Replica.
type State interface {
	// View returns the present state. A view never changes.
	View() *state.View
}

// Log reports the progress of the log: a raftlog.Log.
type Log interface {
	// ReadIndex returns, on the leader, the index of the last entry that was agreed before the call.
	ReadIndex(ctx context.Context) (uint64, error)
	// WaitApplied returns when a view includes the log up to index.
	WaitApplied(ctx context.Context, index uint64) error
	// Leader returns the leading controller as far as this one knows, "" for none.
	Leader() (id, addr string)
}

// Subscription reports what changed since the last call of Take. A view that is taken after Take holds
// the changes that Take returned.
type Subscription interface {
	// C holds one value when there are changes.
	C() <-chan struct{}
	// Take returns the changes since the last call, each job once with its first
	// Old and its last New. resync means that there were too many to keep.
	Take() (changed []state.Change, resync bool)
	Close()
}

// Peers are the other controllers.
type Peers interface {
	ReadIndex(ctx context.Context, addr string) (uint64, error)
}

// Source returns views of one controller.
type Source struct {
	State State
	Log   Log
	Peers Peers
	ID    string // of this controller in the log
}

// ErrNoLeader is returned while the cluster has no leader that this controller knows.
var ErrNoLeader = errors.New("no leader: no quorum, or an election is in progress")

const (
	// LeaderTime bounds the wait for a leader: longer than an election, shorter than the timeout of a
	// client.
	LeaderTime = 5 * time.Second
	// LeaderPause is the time between two checks for a leader.
	LeaderPause = 20 * time.Millisecond
)

// Pause waits for d and reports false if ctx ended.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// View returns the present state of this controller.
func (s *Source) View() *state.View { return s.State.View() }

// Leads reports whether this controller leads as far as it knows.
func (s *Source) Leads() bool {
	id, _ := s.Log.Leader()
	return id != "" && id == s.ID
}

// Fresh returns a view that is as fresh as the caller asks: linearizable unless stale is set.
func (s *Source) Fresh(ctx context.Context, read *greylagv1.Read) (*state.View, *greylagv1.AsOf, error) {
	if least := read.GetMinIndex(); least > 0 {
		limited, cancel := context.WithTimeout(ctx, LeaderTime)
		defer cancel()
		if err := s.Log.WaitApplied(limited, least); err != nil {
			return nil, nil, unlessEnded(ctx, ErrNoLeader)
		}
	}
	if !read.GetStale() {
		if err := s.CatchUp(ctx); err != nil {
			return nil, nil, err
		}
	}
	v := s.View()
	return v, &greylagv1.AsOf{
		Index: v.Index(), Time: wire.Timestamp(v.Now()), Controller: s.ID, Stale: read.GetStale(),
	}, nil
}

// CatchUp returns when this controller's state holds everything that was agreed before the call. It
// waits for a leader as long as a change does.
func (s *Source) CatchUp(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, LeaderTime)
	defer cancel()
	for {
		err := s.Confirm(limited)
		if err == nil {
			return nil
		}
		if !Pause(limited, LeaderPause) {
			return unlessEnded(ctx, ErrNoLeader)
		}
	}
}

// Confirm is CatchUp in one try.
func (s *Source) Confirm(ctx context.Context) error {
	if s.Leads() {
		_, err := s.Log.ReadIndex(ctx)
		return err
	}
	_, addr := s.Log.Leader()
	if addr == "" {
		return ErrNoLeader
	}
	index, err := s.Peers.ReadIndex(ctx, addr)
	if err != nil {
		return err
	}
	return s.Log.WaitApplied(ctx, index)
}

// unlessEnded returns the error of ctx if it has ended, else err.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
