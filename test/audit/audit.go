package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
	clusters "github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/cluster"
)

// Audit compares what clients were promised with the cluster.
type Audit struct {
	Cluster *cluster.Cluster
	Answers *Answers // nil: nothing was promised
	Runs    *Runs    // nil: no job recorded that it ran
}

// Check returns all violations. Every job that was to run must have ended by then.
func (a Audit) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var jobs []*greylagv1.Job
	err := cluster.Until(ctx, "list all jobs", func() (ok bool, err error) {
		jobs, err = a.allJobs(ctx)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	answers := map[string]uint64{}
	if a.Answers != nil {
		answers, _ = a.Answers.Jobs()
	}
	checks := []error{
		named("acknowledged submissions", promises(answers, jobs)),
		named("states", states(jobs)),
		named("GPUs", gpus(jobs)),
		named("replicas", a.Digests(ctx)),
	}
	if a.Runs != nil {
		checks = append(checks, named("runs", a.Runs.check()), named("records", a.ran(jobs)))
	}
	return errors.Join(checks...)
}

func named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("audit of %s: %w", what, err)
}

// allJobs lists every job that the leader knows, including finished ones.
func (a Audit) allJobs(ctx context.Context) ([]*greylagv1.Job, error) {
	leader, err := a.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := a.Cluster.Controller(leader).Jobs().StreamJobs(ctx, &greylagv1.ListJobsRequest{
		Filter: &greylagv1.Filter{AllStates: true}, PageSize: 5000,
	})
	if err != nil {
		return nil, err
	}
	var jobs []*greylagv1.Job
	for stream.Receive() {
		jobs = append(jobs, stream.Msg().Jobs...)
	}
	return jobs, errors.Join(stream.Err(), stream.Close())
}

// promises checks that every acknowledged submission exists once, under its ID, and that nothing
// was submitted twice.
func promises(answers map[string]uint64, jobs []*greylagv1.Job) error {
	names, ids := map[string]int{}, map[uint64]string{}
	var found []string
	for _, job := range jobs {
		names[job.Name]++
		if was, ok := ids[job.Id]; ok {
			found = append(found, fmt.Sprintf("id %d is listed twice: %s and %s", job.Id, was, job.Name))
		}
		ids[job.Id] = job.Name
	}
	for name, id := range answers {
		if ids[id] != name {
			found = append(found, fmt.Sprintf("%s was acknowledged as job %d, which is %q", name, id, ids[id]))
		}
		if names[name] > 1 {
			found = append(found, fmt.Sprintf("%s was submitted once and is there %d times", name, names[name]))
		}
	}
	return first(found)
}

// states checks that every job has a valid state and matching times.
func states(jobs []*greylagv1.Job) error {
	var found []string
	for _, job := range jobs {
		state, err := clusters.ParseJobState(wire.Word(job.State))
		switch {
		case err != nil:
			found = append(found, fmt.Sprintf("job %s: %v", job.Ref, err))
		case state.Final() && job.Ended == nil:
			found = append(found, fmt.Sprintf("job %s is %s but has no end", job.Ref, wire.Word(job.State)))
		case !state.Final() && job.Ended != nil && state != clusters.Completing && state != clusters.Pending:
			found = append(found, fmt.Sprintf("job %s is %s but has an end", job.Ref, wire.Word(job.State)))
		case state == clusters.Completed && (job.ExitCode != 0 || job.ExitSignal != 0):
			found = append(found, fmt.Sprintf("job %s is COMPLETED with exit %d:%d", job.Ref, job.ExitCode, job.ExitSignal))
		}
	}
	return first(found)
}

// interval is a job's use of one GPU, from its record.
type interval struct {
	begin, end time.Time
	ref        string
	sharers    string // the jobs that may have the GPU at the same time name the same ones; "" for none
	most       int    // that may have it at a time
}

// sharersOf returns with which jobs a job may share its GPU, and how many may have it at a time.
func sharersOf(job *greylagv1.Job) (sharers string, most int) {
	q := job.GetRequest()
	if q.GetGpuShare() == 0 {
		return "", 1
	}
	return fmt.Sprintf("%s/%s/%d/%t", job.User, job.Account, q.GpuShare, q.Mps), int(q.GpuShare)
}

// gpus checks that no GPU was in two jobs at one time, by the jobs' records, except in those that may share it.
func gpus(jobs []*greylagv1.Job) error {
	use := map[string][]interval{}
	for _, job := range jobs {
		if job.Started == nil {
			continue
		}
		end := time.Unix(1<<40, 0) // still running
		if job.Ended != nil {
			end = job.Ended.AsTime()
		}
		for rank, node := range job.Nodes {
			begin := job.Started
			if members := job.GetMembers().GetList(); len(members) > 0 { // of an elastic job
				begin = members[rank].Joined
			}
			for _, gpu := range node.Gpus {
				key := fmt.Sprintf("%s/%d", node.Node, gpu)
				sharers, most := sharersOf(job)
				use[key] = append(use[key], interval{begin.AsTime(), end, job.Ref, sharers, most})
			}
		}
	}
	var found []string
	for gpu, list := range use {
		slices.SortFunc(list, func(a, b interval) int { return a.begin.Compare(b.begin) })
		var now []interval
		for _, x := range list {
			now = slices.DeleteFunc(now, func(o interval) bool { return !x.begin.Before(o.end) })
			for _, o := range now {
				if x.sharers == "" || x.sharers != o.sharers || len(now) >= x.most {
					found = append(found, fmt.Sprintf("GPU %s: jobs %s and %s at one time", gpu, o.ref, x.ref))
				}
			}
			now = append(now, x)
		}
	}
	return first(found)
}

// ran checks that every job that succeeded has recorded its run, in the attempt of its record.
func (a Audit) ran(jobs []*greylagv1.Job) error {
	begun, err := a.Runs.Begun()
	if err != nil {
		return err
	}
	var found []string
	for _, job := range jobs {
		if job.State == greylagv1.JobState_JOB_STATE_COMPLETED && begun[fmt.Sprintf("%d %d 0", job.Id, job.Attempt)] == 0 {
			found = append(found, fmt.Sprintf("job %s is COMPLETED in attempt %d but never ran in it", job.Ref, job.Attempt))
		}
	}
	return first(found)
}
