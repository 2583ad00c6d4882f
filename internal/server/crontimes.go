package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/state/crontab"
	"github.com/greylag/greylag/internal/submitfilter"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// cronTick is the interval at which the leader checks for recurring jobs that are due.
	cronTick = time.Second
	// cronTime bounds the submission of one of them.
	cronTime = 30 * time.Second
)

// cronTimes holds the next time of each recurring job, until the entry changes.
type cronTimes map[crontab.Key]cronNext

type cronNext struct {
	version uint64
	checked cluster.Instant
	due     time.Time // zero: none
}

// watchCron submits recurring jobs that are due, while this controller leads.
func (s *jobService) watchCron(ctx context.Context) {
	ticker := time.NewTicker(cronTick)
	defer ticker.Stop()
	times := cronTimes{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if term, leads := s.cfg.Leader.Leading(); leads {
			s.submitDue(term, times)
		}
	}
}

// submitDue submits the recurring jobs that are due. O(entries).
func (s *jobService) submitDue(ctx context.Context, times cronTimes) {
	v := s.cfg.State.View()
	for e := range v.Crontab().All() {
		if e.Held {
			continue
		}
		k := crontab.Key{User: e.Owner.User, Name: e.Name}
		next, known := times[k]
		if !known || next.version != e.Version || next.checked != e.Checked {
			next = cronNext{version: e.Version, checked: e.Checked}
			if after, err := cronSchedule(e.Schedule, e.Zone); err == nil {
				next.due = after(e.Checked.Time())
			}
			times[k] = next
		}
		if next.due.IsZero() || next.due.After(s.cfg.Clock()) {
			continue
		}
		if err := s.submitEntry(ctx, v, e, next.due); err != nil {
			s.log.Warn("submission of a recurring job failed; it will be retried", "user", e.Owner.User, "name", e.Name, "err", err)
		}
	}
	for k := range times {
		if _, known := v.Crontab().Get(k.User, k.Name); !known {
			delete(times, k)
		}
	}
}

// submitEntry submits a recurring job for a time of its schedule, and records the outcome. Several times
// that passed without a leader submit one job. After an error the next tick retries with the same
// request ID.
func (s *jobService) submitEntry(ctx context.Context, v *state.View, e *command.CronEntry, due time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, cronTime)
	defer cancel()
	record := &command.RecordCron{User: e.Owner.User, Name: e.Name, Version: e.Version, Checked: cluster.InstantOf(s.cfg.Clock())}
	running, waiting := lastCronJob(v, e.LastJob)
	if waiting || running && !e.Queue {
		record.Error = fmt.Sprintf("skipped: job %s has not ended", e.LastJob)
	} else {
		id, err := s.submitFor(ctx, v, e, due, running)
		if err != nil && transient(err) {
			return err
		}
		if record.Job = id; err != nil {
			record.Error = command.OneLine(err)
		}
	}
	_, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, record)
	return err
}

// transient reports whether an error is independent of the job, so that a retry may succeed.
func transient(err error) bool {
	var refusal *command.Refusal
	if errors.Is(err, submitfilter.ErrBusy) {
		return true
	}
	if errors.As(err, &refusal) {
		return refusal.Code == command.Incomplete
	}
	code := codes(err)
	return code == connect.CodeUnavailable || code == connect.CodeCanceled || code == connect.CodeDeadlineExceeded
}

// submitFor submits a recurring job as its owner would. If the last one is running, the new one waits
// for its end.
func (s *jobService) submitFor(ctx context.Context, v *state.View, e *command.CronEntry, due time.Time, running bool) (cluster.JobID, error) {
	job := &greylagv1.JobSpec{}
	if err := proto.Unmarshal(e.Job, job); err != nil {
		return 0, err
	}
	if running {
		job.Depends = append(job.Depends, &greylagv1.Dependency{Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTERANY, Job: e.LastJob.String()})
	}
	c := &call.Caller{
		Caller: auth.Caller{User: auth.Identity{Identity: e.Owner}, Role: auth.RoleOf(v.Policy(), e.Owner)},
		RPC:    procedure.Of("JobService/SubmitJobs"), Source: "cron " + e.Name, SameByID: true,
	}
	answer, err := s.SubmitJobs(call.With(ctx, c), &greylagv1.SubmitJobsRequest{
		RequestId: fmt.Sprintf("cron %d %s %d", e.Version, e.Name, due.Unix()), Jobs: []*greylagv1.JobSpec{job},
	})
	if err != nil {
		return 0, err
	}
	return cluster.JobID(answer.GetJobs()[0].GetId()), nil
}

// lastCronJob reports whether a job or an array is running, or has not started yet.
func lastCronJob(v *state.View, id cluster.JobID) (running, waiting bool) {
	if id == 0 {
		return false, false
	}
	active := 0
	for _, element := range v.Resolve(cluster.JobRef{ID: id, Index: cluster.NoIndex}) {
		j, known := v.Job(element)
		if known && j.State.Final() {
			running = true // in part, if others are active
		}
		if known && !j.State.Final() {
			active++
			running = running || j.State != cluster.Pending || j.Attempt > 0
		}
	}
	return active > 0 && running, active > 0 && !running
}
