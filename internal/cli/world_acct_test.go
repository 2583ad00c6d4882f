package cli_test

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
)

// past answers calls about past jobs with the data of a page.
type past struct {
	greylagv1connect.UnimplementedHistoryServiceHandler
	w    *world
	jobs greylagv1.StreamHistoryResponse
}

// StreamHistory sends the named jobs, or all, one per message.
func (p *past) StreamHistory(_ context.Context, r *greylagv1.StreamHistoryRequest, s *connect.ServerStream[greylagv1.StreamHistoryResponse]) error {
	p.w.note(r)
	if err := s.Send(&greylagv1.StreamHistoryResponse{AsOf: p.jobs.AsOf, Finished: p.jobs.Finished}); err != nil {
		return err
	}
	for _, j := range p.jobs.Jobs {
		if names := r.Filter.GetNames(); !named(r.Filter.GetJobs(), j.Job) || len(names) > 0 && !slices.Contains(names, j.Job.Name) {
			continue
		}
		if err := s.Send(&greylagv1.StreamHistoryResponse{Jobs: []*greylagv1.PastJob{j}}); err != nil {
			return err
		}
	}
	return nil
}
