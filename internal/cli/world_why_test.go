package cli_test

import (
	"context"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// ExplainJob returns the answer that the page loaded, for its job.
func (w *world) ExplainJob(_ context.Context, r *greylagv1.ExplainJobRequest) (*greylagv1.ExplainJobResponse, error) {
	for _, x := range w.reasons {
		if x.Job.Ref == r.Job {
			return x, nil
		}
	}
	return nil, refuse(connect.CodeNotFound, "gqueue --states=all lists yours", "no such job: %s", r.Job)
}

// GetPlan returns the answer that the page loaded.
func (w *world) GetPlan(_ context.Context, r *greylagv1.GetPlanRequest) (*greylagv1.GetPlanResponse, error) {
	out := &greylagv1.GetPlanResponse{}
	for _, j := range w.planned.Jobs {
		if r.Partition == "" || r.Partition == j.Partition {
			out.Jobs = append(out.Jobs, j)
		}
	}
	return out, nil
}
