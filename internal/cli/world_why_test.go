package cli_test

import (
	"context"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// Why answers what the page loaded, for the job it is about.
func (w *world) Why(_ context.Context, r *greylagv1.WhyRequest) (*greylagv1.WhyResponse, error) {
	for _, x := range w.reasons {
		if x.Job.Ref == r.Job {
			return x, nil
		}
	}
	return nil, refuse(connect.CodeNotFound, "gqueue --states=all lists yours", "no such job: %s", r.Job)
}

// Plan answers what the page loaded.
func (w *world) Plan(_ context.Context, r *greylagv1.PlanRequest) (*greylagv1.PlanResponse, error) {
	out := &greylagv1.PlanResponse{}
	for _, j := range w.planned.Jobs {
		if r.Partition == "" || r.Partition == j.Partition {
			out.Jobs = append(out.Jobs, j)
		}
	}
	return out, nil
}
