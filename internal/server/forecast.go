package server

import (
	"context"
	"slices"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/explain"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// ForecastJob says when and where a job would start, and submits nothing. It gets the refusals of a
// submission. Forecasts are made one at a time, as explanations are.
func (s *jobService) ForecastJob(ctx context.Context, p *greylagv1.ForecastJobRequest) (*greylagv1.ForecastJobResponse, error) {
	c := call.From(ctx)
	filtered, err := s.filter(ctx, c, []*greylagv1.JobSpec{p.GetJob()}, true)
	if err != nil {
		return nil, err
	}
	sub, err := readSubmission(filtered.jobs[0], c.User.Identity)
	if err != nil {
		return nil, err
	}
	v, asOf, err := s.views.Fresh(ctx, nil)
	if err != nil {
		return nil, err
	}
	inline, large := blobsOf([]wire.Submission{sub}, func([32]byte) bool { return false })
	cmd := &command.SubmitJobs{Actor: c.Actor(), Jobs: []command.Submission{sub.Submission}, Blobs: append(inline, large...)}
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t, refusal := v.DryRun(cmd)
	if refusal != nil {
		return nil, refusal
	}
	t.Snapshot.Now = max(t.Snapshot.Now, cluster.InstantOf(s.cfg.Clock()))
	f := explain.ForecastStart(t.Snapshot, t.Job)
	return &greylagv1.ForecastJobResponse{
		Start: wire.Timestamp(f.Start), Now: f.Now, Partition: f.Partition, Nodes: f.Nodes, Detail: f.Detail, Reason: wire.Enum[greylagv1.Reason](reasonWord(f.Reason)),
		Lien: int64(t.Answer.SetAside), Warnings: slices.Concat(filtered.notes, overBudget(t.Answer.Over), warnExcluded(v, []wire.Submission{sub}), warnBurst(v, []wire.Submission{sub})), AsOf: asOf,
	}, nil
}

func reasonWord(r cluster.Reason) string {
	if r == cluster.ReasonNone {
		return ""
	}
	return r.String()
}
