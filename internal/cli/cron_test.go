package cli_test

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// cronNext is the next time of every schedule.
var cronNext = timestamppb.New(time.Date(2026, 11, 22, 3, 30, 0, 0, time.UTC))

// SetCron implements JobServiceHandler.
func (m *memory) SetCron(_ context.Context, r *greylagv1.SetCronRequest) (*greylagv1.SetCronResponse, error) {
	m.note(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	known := slices.IndexFunc(m.cron, func(e *greylagv1.CronEntry) bool { return e.Name == r.Entry.Name })
	if known >= 0 && !r.Replace {
		return nil, refuse(connect.CodeFailedPrecondition, "replace it with --replace, or choose another name", "you have a recurring job %q already", r.Entry.Name)
	}
	e := proto.CloneOf(r.Entry)
	e.User, e.Next = caller, cronNext
	if known >= 0 {
		m.cron[known] = e
	} else {
		m.cron = append(m.cron, e)
	}
	return &greylagv1.SetCronResponse{Next: cronNext}, nil
}

// UpdateCron implements JobServiceHandler.
func (m *memory) UpdateCron(_ context.Context, r *greylagv1.UpdateCronRequest) (*greylagv1.UpdateCronResponse, error) {
	m.note(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range r.Names {
		i := slices.IndexFunc(m.cron, func(e *greylagv1.CronEntry) bool { return e.Name == name })
		switch {
		case i < 0:
			return nil, refuse(connect.CodeNotFound, "list them with gctl cron list", "%s has no recurring job %q", caller, name)
		case r.Action == greylagv1.CronAction_CRON_ACTION_REMOVE:
			m.cron = slices.Delete(m.cron, i, i+1)
		default:
			m.cron[i].Held = r.Action == greylagv1.CronAction_CRON_ACTION_HOLD
		}
	}
	return &greylagv1.UpdateCronResponse{}, nil
}

// ListCron implements JobServiceHandler.
func (m *memory) ListCron(_ context.Context, r *greylagv1.ListCronRequest) (*greylagv1.ListCronResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	answer := &greylagv1.ListCronResponse{}
	for _, e := range m.cron {
		if len(r.Names) > 0 && !slices.Contains(r.Names, e.Name) {
			continue
		}
		e = proto.CloneOf(e)
		if !r.Jobs {
			e.Job = nil
		}
		answer.Entries = append(answer.Entries, e)
	}
	return answer, nil
}

// RunCron implements JobServiceHandler.
func (m *memory) RunCron(ctx context.Context, r *greylagv1.RunCronRequest) (*greylagv1.RunCronResponse, error) {
	m.mu.Lock()
	i := slices.IndexFunc(m.cron, func(e *greylagv1.CronEntry) bool { return e.Name == r.Name })
	m.mu.Unlock()
	if i < 0 {
		return nil, refuse(connect.CodeNotFound, "list them with gctl cron list", "you have no recurring job %q", r.Name)
	}
	answer, err := m.SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{RequestId: r.RequestId, Jobs: []*greylagv1.JobSpec{m.cron[i].Job}})
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.cron[i]
	e.LastJob, e.LastState, e.LastTime = answer.Jobs[0].Id, greylagv1.JobState_JOB_STATE_PENDING, cronNext
	e.LastError = "skipped: job 1 has not ended"
	return &greylagv1.RunCronResponse{Job: answer.Jobs[0], Warnings: []string{"a warning"}}, nil
}
