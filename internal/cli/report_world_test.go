package cli_test

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
)

// rowBook answers calls about periods with the data of a page: the same rows in every period.
type rowBook struct {
	greylagv1connect.UnimplementedReportServiceHandler
	w        *world
	usage    greylagv1.StreamUsageResponse
	ended    greylagv1.StreamEndedJobsResponse
	credits  greylagv1.StreamCreditsResponse
	leases   greylagv1.StreamEndedLeasesResponse
	standing greylagv1.GetStandingResponse
	capacity greylagv1.GetCapacityResponse
}

func (b *rowBook) StreamUsage(_ context.Context, r *greylagv1.StreamUsageRequest, s *connect.ServerStream[greylagv1.StreamUsageResponse]) error {
	b.w.note(r)
	if b.usage.Head == nil {
		return connect.NewError(connect.CodeUnavailable, context.DeadlineExceeded)
	}
	return s.Send(&b.usage)
}

func (b *rowBook) StreamEndedJobs(_ context.Context, r *greylagv1.StreamEndedJobsRequest, s *connect.ServerStream[greylagv1.StreamEndedJobsResponse]) error {
	b.w.note(r)
	return s.Send(&b.ended)
}

func (b *rowBook) StreamCredits(_ context.Context, r *greylagv1.StreamCreditsRequest, s *connect.ServerStream[greylagv1.StreamCreditsResponse]) error {
	b.w.note(r)
	if b.credits.Head == nil {
		return connect.NewError(connect.CodeDataLoss, errors.New("entry 7 of the credit journal cannot be read here"))
	}
	return s.Send(&b.credits)
}

func (b *rowBook) StreamEndedLeases(_ context.Context, r *greylagv1.StreamEndedLeasesRequest, s *connect.ServerStream[greylagv1.StreamEndedLeasesResponse]) error {
	b.w.note(r)
	if b.leases.Head == nil {
		return s.Send(&greylagv1.StreamEndedLeasesResponse{Head: b.usage.Head})
	}
	return s.Send(&b.leases)
}

func (b *rowBook) GetCapacity(_ context.Context, r *greylagv1.GetCapacityRequest) (*greylagv1.GetCapacityResponse, error) {
	b.w.note(r)
	return &b.capacity, nil
}

func (b *rowBook) GetStanding(context.Context, *greylagv1.GetStandingRequest) (*greylagv1.GetStandingResponse, error) {
	return &b.standing, nil
}
