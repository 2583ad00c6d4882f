package server

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/schedule/explain"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// GetPlan lists running and planned jobs, as far as the caller may see them. O(jobs log jobs), and
// sometimes a pass if expected starts are requested.
func (s *clusterService) GetPlan(ctx context.Context, p *greylagv1.GetPlanRequest) (*greylagv1.GetPlanResponse, error) {
	v, asOf, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	var expected map[cluster.JobID]cluster.Instant
	if p.GetExpected() {
		if expected, err = s.expectations(ctx, v); err != nil {
			return nil, err
		}
	}
	visibility := joblist.NewVisibility(call.From(ctx), v)
	var jobs []*cluster.Job
	for j := range v.Jobs(0) {
		switch {
		case j.Alloc == nil && j.Planned == 0, p.GetPartition() != "" && p.GetPartition() != j.Spec.Partition, p.GetWaiting() && j.State != cluster.Pending:
			continue
		}
		if seen := visibility.See(j); seen != nil {
			jobs = append(jobs, seen)
		}
	}
	begins := func(j *cluster.Job) cluster.Instant {
		if j.Alloc != nil {
			return j.Started
		}
		return j.Planned
	}
	slices.SortFunc(jobs, func(a, b *cluster.Job) int {
		return cmp.Or(cmp.Compare(begins(a), begins(b)), cmp.Compare(a.ID, b.ID))
	})
	response, now := &greylagv1.GetPlanResponse{AsOf: asOf}, cluster.InstantOf(s.cfg.Clock())
	for _, j := range jobs {
		planned := wire.WritePlanned(j)
		planned.Expected = wire.Timestamp(explain.ExpectedAt(expected[j.ID], j, now))
		response.Jobs = append(response.Jobs, planned)
	}
	return response, nil
}

const (
	// mostExpected is the number of pending jobs, in order, whose expected start is computed: a
	// pass over them takes some tenths of a second.
	mostExpected = 5000
	// expectedFor is how long expected starts are reused before they are computed again, so that
	// the cost does not depend on the number of requests.
	expectedFor = 5 * time.Second
)

// expectedStarts holds the expected starts that were computed last.
type expectedStarts struct {
	mu     sync.Mutex
	at     time.Time
	starts map[cluster.JobID]cluster.Instant // never changed
}

// newer returns the guesses of a time or later; nil if there are none.
func (g *expectedStarts) newer(than time.Time) map[cluster.JobID]cluster.Instant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at.Before(than) {
		return nil
	}
	return g.starts
}

// expectations returns when each pending job is expected to start. Like explanations they are
// computed one at a time.
func (s *clusterService) expectations(ctx context.Context, v *state.View) (map[cluster.JobID]cluster.Instant, error) {
	if known := s.guesses.newer(s.cfg.Clock().Add(-expectedFor)); known != nil {
		return known, nil
	}
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := s.cfg.Clock()
	if known := s.guesses.newer(now.Add(-expectedFor)); known != nil { // another call has, meanwhile
		return known, nil
	}
	starts := explain.Expectations(v.Snapshot(), mostExpected, v.RunTimes())
	s.guesses.mu.Lock()
	defer s.guesses.mu.Unlock()
	s.guesses.at, s.guesses.starts = now, starts
	return starts, nil
}
