package cli_test

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
)

// rowBook answers about periods with what a page has loaded: the same rows in every
// period.
type rowBook struct {
	greylagv1connect.UnimplementedReportServiceHandler
	w        *world
	usage    greylagv1.PeriodUsageResponse
	ended    greylagv1.PeriodEndedResponse
	credits  greylagv1.PeriodCreditsResponse
	standing greylagv1.StandingResponse
	capacity greylagv1.CapacityResponse
}

func (b *rowBook) Usage(_ context.Context, r *greylagv1.PeriodsRequest, s *connect.ServerStream[greylagv1.PeriodUsageResponse]) error {
	b.w.note(r)
	if b.usage.Head == nil {
		return connect.NewError(connect.CodeUnavailable, context.DeadlineExceeded)
	}
	return s.Send(&b.usage)
}

func (b *rowBook) Ended(_ context.Context, r *greylagv1.PeriodsRequest, s *connect.ServerStream[greylagv1.PeriodEndedResponse]) error {
	b.w.note(r)
	return s.Send(&b.ended)
}

func (b *rowBook) Credits(_ context.Context, r *greylagv1.PeriodsRequest, s *connect.ServerStream[greylagv1.PeriodCreditsResponse]) error {
	b.w.note(r)
	if b.credits.Head == nil {
		return connect.NewError(connect.CodeDataLoss, errors.New("entry 7 of the journal of credits cannot be read here"))
	}
	return s.Send(&b.credits)
}

func (b *rowBook) Capacity(_ context.Context, r *greylagv1.PeriodsRequest) (*greylagv1.CapacityResponse, error) {
	b.w.note(r)
	return &b.capacity, nil
}

func (b *rowBook) Standing(context.Context, *greylagv1.StandingRequest) (*greylagv1.StandingResponse, error) {
	return &b.standing, nil
}
