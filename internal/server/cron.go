package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for hosts without time zone data

	"github.com/robfig/cron/v3"
	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// cronParser parses five fields, or a descriptor such as @daily.
var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor) // never written

// minInterval is the shortest time between two jobs of an entry.
const minInterval = time.Minute

// cronSchedule parses a schedule in a time zone; "" is UTC. The error is for users.
func cronSchedule(schedule, zone string) (func(after time.Time) time.Time, error) {
	if strings.Contains(schedule, "TZ=") {
		return nil, errors.New("the schedule contains a time zone: use --tz ZONE")
	}
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, fmt.Errorf("unknown time zone %.64q: want for example Europe/Berlin", zone)
	}
	parsed, err := cronParser.Parse(schedule)
	if err != nil {
		return nil, fmt.Errorf("the schedule %.64q is not valid: %w", schedule, err)
	}
	return func(after time.Time) time.Time { return parsed.Next(after.In(location)) }, nil
}

// SetCron stores a recurring job of the caller, if it would be accepted now.
func (s *jobService) SetCron(ctx context.Context, p *greylagv1.SetCronRequest) (*greylagv1.SetCronResponse, error) {
	c, e := call.From(ctx), p.GetEntry()
	next, err := cronSchedule(e.GetSchedule(), e.GetTimeZone())
	if err != nil {
		return nil, call.Refuse(command.InvalidArgument, `write "MINUTE HOUR DAY MONTH WEEKDAY", such as "30 3 * * 1-5", or @daily; Sunday is 0`, "%v", err)
	}
	now := s.cfg.Clock()
	first := next(now)
	if second := next(first); first.IsZero() || second.Sub(first) < minInterval && !second.IsZero() {
		return nil, call.Refuse(command.InvalidArgument, "", "the schedule %q has no time in the next five years, or its times are less than %v apart", e.GetSchedule(), minInterval)
	}
	if err := s.checkCronJob(ctx, c, e); err != nil {
		return nil, err
	}
	id, err := c.Identify(p)
	if err != nil {
		return nil, err
	}
	job, err := proto.Marshal(e.GetJob())
	if err != nil {
		return nil, err
	}
	cmd := &command.SetCron{Request: id, Actor: c.Actor(), Replace: p.GetReplace(), Entry: command.CronEntry{
		Name: e.GetName(), Schedule: e.GetSchedule(), Zone: e.GetTimeZone(), Queue: e.GetOverlap() == greylagv1.CronOverlap_CRON_OVERLAP_QUEUE, Job: job,
	}}
	if _, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, cmd); err != nil {
		return nil, err
	}
	return &greylagv1.SetCronResponse{Next: wire.Timestamp(cluster.InstantOf(first))}, nil
}

// checkCronJob refuses a job that cannot be submitted. It ignores reached limits and missing credits:
// both may change before the job is due.
func (s *jobService) checkCronJob(ctx context.Context, c *call.Caller, e *greylagv1.CronEntry) error {
	job := e.GetJob()
	switch {
	case job.GetBegin() != nil || job.GetDeadline() != nil:
		return call.Refuse(command.InvalidArgument, "omit --begin and --deadline", "a recurring job cannot have a begin time or a deadline")
	case e.GetOverlap() == greylagv1.CronOverlap_CRON_OVERLAP_QUEUE && slices.ContainsFunc(job.GetDepends(), (*greylagv1.Dependency).GetAny):
		return call.Refuse(command.InvalidArgument, "join the dependencies by commas, or use --overlap=skip", "a queued recurring job cannot have alternative dependencies")
	}
	filtered, err := s.filter(ctx, c, []*greylagv1.JobSpec{job}, true)
	if err != nil {
		return err
	}
	sub, err := readSubmission(filtered.jobs[0], c.User.Identity)
	if err != nil {
		return err
	}
	quote, err := s.quoted(ctx, s.cfg.State.View(), c, []command.Submission{sub.Submission})
	if err == nil && quote.Refused != nil && quote.Refused.Code != command.Exhausted {
		err = quote.Refused
	}
	return err
}

// UpdateCron holds, releases or removes recurring jobs.
func (s *jobService) UpdateCron(ctx context.Context, p *greylagv1.UpdateCronRequest) (*greylagv1.UpdateCronResponse, error) {
	c := call.From(ctx)
	user, err := namedUser(c, p.GetUser(), false)
	if err != nil {
		return nil, err
	}
	id, err := c.Identify(p)
	if err != nil {
		return nil, err
	}
	if p.GetAction() == greylagv1.CronAction_CRON_ACTION_UNSPECIFIED {
		return nil, wire.Unset("action", p.GetAction())
	}
	cmd := &command.UpdateCron{Request: id, Actor: c.Actor(), User: user, Names: p.GetNames(), Action: command.CronAction(p.GetAction())}
	if _, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, cmd); err != nil {
		return nil, err
	}
	return &greylagv1.UpdateCronResponse{}, nil
}

// namedUser returns the user whose recurring jobs or secrets a call names; "" is all users. The table of
// procedures decides who may name other users.
func namedUser(c *call.Caller, user string, all bool) (string, error) {
	whose := auth.Own
	switch {
	case all:
		user, whose = "", auth.Others
	case user == "":
		user = c.User.User
	case user != c.User.User:
		whose = auth.Others
	}
	return user, auth.Allow(c.Caller, c.RPC, whose)
}

// ListCron lists recurring jobs.
func (s *jobService) ListCron(ctx context.Context, p *greylagv1.ListCronRequest) (*greylagv1.ListCronResponse, error) {
	c := call.From(ctx)
	user, err := namedUser(c, p.GetUser(), p.GetAllUsers())
	if err != nil {
		return nil, err
	}
	v, _, err := s.views.Fresh(ctx, nil)
	if err != nil {
		return nil, err
	}
	entries := v.Crontab().All()
	if user != "" {
		entries = v.Crontab().Of(user)
	}
	response := &greylagv1.ListCronResponse{}
	for e := range entries {
		named := len(p.GetNames()) == 0 || slices.Contains(p.GetNames(), e.Name)
		if !named || auth.OwnershipOf(c.Caller, e.Owner) != auth.Own && c.Role < command.RoleOperator {
			continue
		}
		out := cronEntry(v, e)
		if p.GetJobs() {
			out.Job = &greylagv1.JobSpec{}
			if err := proto.Unmarshal(e.Job, out.Job); err != nil {
				return nil, err
			}
		}
		response.Entries = append(response.Entries, out)
	}
	return response, nil
}

// cronEntry returns an entry as the API shows it, without its job.
func cronEntry(v *state.View, e *command.CronEntry) *greylagv1.CronEntry {
	out := &greylagv1.CronEntry{
		Name: e.Name, User: e.Owner.User, Schedule: e.Schedule, TimeZone: e.Zone, Overlap: greylagv1.CronOverlap_CRON_OVERLAP_SKIP, Held: e.Held,
		LastJob: uint64(e.LastJob), LastTime: wire.Timestamp(e.Last), LastError: e.Error,
	}
	if e.Queue {
		out.Overlap = greylagv1.CronOverlap_CRON_OVERLAP_QUEUE
	}
	if j, known := v.Job(e.LastJob); known {
		out.LastState = greylagv1.JobState(j.State)
	}
	if next, err := cronSchedule(e.Schedule, e.Zone); err == nil && !e.Held {
		if at := next(e.Checked.Time()); !at.IsZero() {
			out.Next = wire.Timestamp(cluster.InstantOf(at))
		}
	}
	return out
}

// RunCron submits a recurring job of the caller now, even if its last job has not ended.
func (s *jobService) RunCron(ctx context.Context, p *greylagv1.RunCronRequest) (*greylagv1.RunCronResponse, error) {
	c := call.From(ctx)
	e, known := s.cfg.State.View().Crontab().Get(c.User.User, p.GetName())
	if !known || auth.OwnershipOf(c.Caller, e.Owner) != auth.Own {
		return nil, call.Refuse(command.NotFound, "list them with gctl cron list", "you have no recurring job %.64q", p.GetName())
	}
	job := &greylagv1.JobSpec{}
	if err := proto.Unmarshal(e.Job, job); err != nil {
		return nil, err
	}
	answer, err := s.SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{RequestId: p.GetRequestId(), Jobs: []*greylagv1.JobSpec{job}})
	if err != nil {
		return nil, err
	}
	record := &command.RecordCron{User: e.Owner.User, Name: e.Name, Version: e.Version, Job: cluster.JobID(answer.GetJobs()[0].GetId())}
	if _, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, record); err != nil {
		return nil, err
	}
	return &greylagv1.RunCronResponse{Job: answer.GetJobs()[0], Warnings: answer.GetWarnings()}, nil
}
