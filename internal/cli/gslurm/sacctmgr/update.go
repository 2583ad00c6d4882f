package sacctmgr

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
)

const jobUsage = "write sacctmgr update job where jobid=JOB set admincomment=TEXT"

// isJobUpdate reports whether words begin with "update job" or "modify job".
func isJobUpdate(words []string) bool {
	if len(words) < 2 || len(words[0]) < 2 {
		return false
	}
	verb, entity := strings.ToLower(words[0]), strings.ToLower(words[1])
	return (strings.HasPrefix("update", verb) || strings.HasPrefix("modify", verb)) && (entity == "job" || entity == "jobs")
}

// readJobUpdate reads "where jobid=12,13 set admincomment=TEXT", in any order.
func readJobUpdate(words []string) (jobs []string, comment string, err error) {
	sets, given := false, false
	for _, word := range words {
		name, value, assigned := strings.Cut(word, "=")
		switch name = strings.ToLower(name); {
		case !assigned && (name == "where" || name == "and"):
			sets = false
		case !assigned && name == "set":
			sets = true
		case assigned && sets && name == "admincomment":
			comment, given = value, true
		case assigned && !sets && (name == "jobid" || name == "jobs" || name == "job"):
			refs, err := ui.Refs([]string{value})
			if err != nil {
				return nil, "", err
			}
			jobs = append(jobs, refs...)
		case sets:
			return nil, "", &ui.UsageError{Problem: "cannot change " + word + " of a job: sacctmgr sets only AdminComment", Advice: "for active jobs use scontrol update JobId=JOB FIELD=VALUE"}
		default:
			return nil, "", &ui.UsageError{Problem: "Unknown condition: " + word, Advice: jobUsage}
		}
	}
	if len(jobs) == 0 || !given {
		return nil, "", &ui.UsageError{Problem: "a job and an admin comment are required", Advice: jobUsage}
	}
	return jobs, comment, nil
}

// updateJobs sets the admin comment of jobs, and prints which were changed.
func (c command) updateJobs(ctx context.Context, words []string) error {
	jobs, comment, err := readJobUpdate(words)
	if err != nil {
		return err
	}
	_, cl, err := c.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	for i := range jobs {
		if jobs[i], err = refOf(ctx, cl, jobs[i]); err != nil {
			return err
		}
	}
	answer, err := cl.Jobs().UpdateJobs(ctx, &greylagv1.UpdateJobsRequest{
		RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: jobs},
		Action: greylagv1.JobAction_JOB_ACTION_SET_ADMIN_COMMENT, AdminComment: comment,
	})
	if err != nil {
		return err
	}
	var changed []uint64
	for _, o := range answer.Outcomes {
		if o.Error == "" {
			changed = append(changed, o.Id)
			continue
		}
		fmt.Fprintf(c.Stderr, "sacctmgr: error: %s\n", ui.Printable(ui.OutcomeProblem(o)))
	}
	if len(changed) == 0 {
		fmt.Fprintln(c.Stdout, " Nothing modified")
	} else {
		fmt.Fprintln(c.Stdout, " Modified jobs...")
	}
	for _, id := range changed {
		fmt.Fprintf(c.Stdout, "  %d\n", id)
	}
	if len(changed) < len(answer.Outcomes) {
		return ui.Exit(ui.Failed)
	}
	return nil
}

// refOf resolves a bare job ID to the one job with that ID: as a reference it could mean the whole array.
func refOf(ctx context.Context, cl ui.Cluster, job string) (string, error) {
	id, err := strconv.ParseUint(job, 10, 64)
	if err != nil {
		return job, nil // already a reference, such as 12_3
	}
	stream, err := cl.History().StreamHistory(ctx, &greylagv1.StreamHistoryRequest{Filter: &greylagv1.Filter{Jobs: []string{job}}})
	if err != nil {
		return "", err
	}
	defer stream.Close()
	for stream.Receive() {
		for _, p := range stream.Msg().Jobs {
			if p.Job.GetId() == id {
				return p.Job.Ref, nil
			}
		}
	}
	return job, stream.Err()
}
