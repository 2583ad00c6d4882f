package server

import (
	"context"
	"slices"
	"strconv"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// chunk is the maximum number of job references in one command.
	chunk = 4096
	// maxChanged is about the number of jobs that one command may change, including array elements:
	// no other command is applied meanwhile, and a leader that commits nothing for seconds stops.
	maxChanged = 1 << 17
)

// parts splits the jobs of a request into commands. Without jobs it returns one part. O(elements).
func parts(v *state.View, refs []cluster.JobRef) (all [][]cluster.JobRef) {
	var part []cluster.JobRef
	jobs := 0
	add := func(ref cluster.JobRef, n int) {
		if len(part) == chunk || len(part) > 0 && jobs+n > maxChanged {
			all, part, jobs = append(all, part), nil, 0
		}
		part, jobs = append(part, ref), jobs+n
	}
	for _, ref := range refs {
		var active []*cluster.Job
		ids := v.Resolve(ref)
		if len(ids) > maxChanged {
			active = activeOf(v, ids)
		}
		for _, j := range active {
			add(j.Ref(), 1)
		}
		if len(active) == 0 {
			add(ref, len(ids))
		}
	}
	return append(all, part)
}

// activeOf returns those of the jobs that have not ended.
func activeOf(v *state.View, ids []cluster.JobID) (active []*cluster.Job) {
	for _, id := range ids {
		if j, known := v.Job(id); known && !j.State.Final() {
			active = append(active, j)
		}
	}
	return active
}

// CancelJobs ends or signals jobs.
func (s *jobService) CancelJobs(ctx context.Context, p *greylagv1.CancelJobsRequest) (*greylagv1.CancelJobsResponse, error) {
	if p.GetSignal() < 0 || p.GetSignal() > cluster.MaxSignal {
		return nil, call.Refuse(command.InvalidArgument, "", "signal %d: want 0 to %d", p.GetSignal(), cluster.MaxSignal)
	}
	c := call.From(ctx)
	outcomes, index, err := s.change(ctx, p.GetFilter(), p, func(id command.RequestID, refs []cluster.JobRef) command.Command {
		return &command.CancelJobs{Request: id, Actor: c.Actor(), Jobs: refs, Signal: p.GetSignal(), BatchOnly: p.GetBatchOnly()}
	})
	if err != nil {
		return nil, err
	}
	return &greylagv1.CancelJobsResponse{Outcomes: outcomes, Index: index}, nil
}

// UpdateJobs changes, holds, releases or requeues jobs.
func (s *jobService) UpdateJobs(ctx context.Context, p *greylagv1.UpdateJobsRequest) (*greylagv1.UpdateJobsResponse, error) {
	c := call.From(ctx)
	change, err := wire.ReadUpdate(p)
	if err != nil {
		return nil, err
	}
	if p.GetNice() < 0 {
		if err := auth.Allow(c.Caller, procedure.RaisePriority, auth.Own); err != nil {
			return nil, err
		}
	}
	before := s.cfg.State.View()
	outcomes, index, err := s.change(ctx, p.GetFilter(), p, func(id command.RequestID, refs []cluster.JobRef) command.Command {
		one := *change
		one.Request, one.Actor, one.Jobs = id, c.Actor(), refs
		return &one
	})
	if err != nil {
		return nil, err
	}
	if change.Action == command.RequeueJobs || change.Action == command.RequeueHeldJobs {
		if err := s.resubmitEnded(ctx, p, outcomes, change.Action == command.RequeueHeldJobs); err != nil {
			return nil, err
		}
	}
	after := s.cfg.State.View()
	for _, o := range outcomes {
		if o.Error == "" && o.Note == "" {
			o.Note = promiseWarning(before, after, cluster.JobID(o.Id))
		}
	}
	return &greylagv1.UpdateJobsResponse{Outcomes: outcomes, Index: index}, nil
}

// promiseWarning returns a warning if a change may cost a job its promised start; "" if it is still
// pending and requests no more than before.
func promiseWarning(before, after *state.View, id cluster.JobID) string {
	old, was := before.Job(id)
	now, is := after.Job(id)
	if !was || !is || old.Promise == nil || now.State != cluster.Pending || now.Hold == old.Hold && !asksMore(old.Spec, now.Spec) {
		return ""
	}
	if now.Hold != cluster.NotHeld {
		return "its promised start is no longer kept"
	}
	return "it keeps its promised start if it still fits there and its tier is not lower; otherwise it is planned again: see gctl why " + now.Ref().String()
}

// asksMore reports whether a changed specification may not fit where the old one was promised a
// start: it runs longer, is larger, or goes elsewhere, or other limits apply.
func asksMore(old, now *cluster.JobSpec) bool {
	longer := old.TimeLimit > 0 && (now.TimeLimit == 0 || now.TimeLimit > old.TimeLimit)
	a, b := &old.Request, &now.Request
	larger := b.Nodes > a.Nodes || b.GPUsPerNode > a.GPUsPerNode || b.TotalGPUs() > a.TotalGPUs()
	moved := now.Partition != old.Partition || !slices.Equal(now.OtherPartitions, old.OtherPartitions) || now.QOS != old.QOS || now.Account != old.Account || now.Reservation != old.Reservation
	waits := now.Begin > old.Begin || !slices.Equal(now.Depends, old.Depends)
	return longer || larger || moved || waits
}

// change proposes commands for the jobs that a filter selects, some thousands at a time, and
// collects the outcome of each. A repeated request may select other jobs than the first one: it gets
// the stored answers first, and then proposes only the jobs without a stored answer.
func (s *jobService) change(ctx context.Context, filter *greylagv1.Filter, p call.Request, make func(command.RequestID, []cluster.JobRef) command.Command) ([]*greylagv1.Outcome, uint64, error) {
	c := call.From(ctx)
	refs, err := s.Chosen(ctx, c, filter)
	if err != nil {
		return nil, 0, err
	}
	payload, err := call.Payload(p)
	if err != nil {
		return nil, 0, err
	}
	var all []*greylagv1.Outcome
	var last uint64
	left := parts(s.cfg.State.View(), refs)
	for part := 0; len(left) > 0; part++ {
		id, err := c.RequestID(p.GetRequestId(), strconv.Itoa(part), payload)
		if err != nil {
			return nil, 0, err
		}
		answer, index, err := call.Propose[*command.Outcomes](ctx, s.cfg.Leader, make(id, left[0]))
		if err != nil {
			return nil, 0, err
		}
		last = max(last, answer.Index)
		all = append(all, s.outcomes(c, answer.Jobs)...)
		if answer.Index == index {
			left = left[1:]
		} else {
			left = unanswered(s.cfg.State.View(), left, answer.Jobs)
		}
	}
	return all, last, nil
}

// unanswered returns parts without the jobs that a stored answer covers. O(elements).
func unanswered(v *state.View, parts [][]cluster.JobRef, answer []command.Outcome) (left [][]cluster.JobRef) {
	jobs, refs := map[cluster.JobID]bool{}, map[cluster.JobRef]bool{}
	for _, o := range answer {
		jobs[o.Job], refs[o.Ref] = true, true
	}
	for _, part := range parts {
		part = slices.DeleteFunc(part, func(ref cluster.JobRef) bool {
			ids := v.Resolve(ref)
			known := slices.ContainsFunc(ids, func(id cluster.JobID) bool { return jobs[id] })
			return refs[ref] || known && !slices.ContainsFunc(activeOf(v, ids), func(j *cluster.Job) bool { return !jobs[j.ID] })
		})
		if len(part) > 0 {
			left = append(left, part)
		}
	}
	return left
}

// outcomes writes the outcome of each job. A job that the caller may not see is reported as
// unknown.
func (s *jobService) outcomes(c *call.Caller, list []command.Outcome) []*greylagv1.Outcome {
	v := s.cfg.State.View()
	all := make([]*greylagv1.Outcome, len(list))
	for i, o := range list {
		p := &greylagv1.Outcome{Id: uint64(o.Job), Ref: o.Ref.String()}
		all[i] = p
		if o.State != 0 {
			p.State = greylagv1.JobState(o.State)
		}
		if o.Refused == nil {
			continue
		}
		p.Error, p.Code = o.Refused.Message, greylagv1.ErrorCode(refusalCode(o.Refused.Code))
		if o.Refused.Code == command.Denied && hidden(v, c, o.Job) {
			p.Error, p.Code, p.State = joblist.NoSuchJob(o.Ref).Error(), greylagv1.ErrorCode_ERROR_CODE_NOT_FOUND, greylagv1.JobState_JOB_STATE_UNSPECIFIED
		}
	}
	return all
}

func hidden(v *state.View, c *call.Caller, id cluster.JobID) bool {
	j, ok := v.Job(id)
	return ok && auth.ViewOf(v.Policy(), c.Caller, j.Spec.Owner) == auth.Hidden
}
