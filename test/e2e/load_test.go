package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

// site is a cluster with a client, and with its promises.
type site struct {
	*cluster.Cluster
	t       testing.TB
	client  *client.Client
	answers *audit.Answers
	runs    audit.Runs
}

func newSite(t testing.TB, options cluster.Options) *site {
	t.Helper()
	c := start(t, options)
	cl, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	runs, err := audit.NewRuns(c.Work)
	if err != nil {
		t.Fatal(err)
	}
	return &site{Cluster: c, t: t, client: cl, answers: audit.NewAnswers(), runs: runs}
}

// realQOS marks jobs that run, so that they are found among the many pending ones.
const realQOS = "batch"

// load submits from many clients, from its return at the latest until the returned function is
// called, which waits for the remaining answers.
func (s *site) load(clients int) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	load := audit.Load{
		Clients: clients, Submit: audit.Spread{Cluster: s.Cluster}, Answers: s.answers, Pause: 10 * time.Millisecond,
		Job: func(name string) *greylagv1.JobSpec { return s.job(name, "exit 0") },
	}
	if len(s.Nodes()) > 0 {
		load.Real = 50
	}
	before := s.answers.Count()
	go func() { ended <- load.Run(ctx) }()
	s.until("the load is under way", func() (bool, error) {
		return s.answers.Count() >= before+2*clients, fmt.Errorf("%d acknowledged", s.answers.Count())
	})
	return func() {
		s.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			s.t.Error("load:", err)
		}
		_, unknown := s.answers.Jobs()
		s.t.Logf("%d submissions acknowledged, %d unknown, longest gap %s", s.answers.Count(), unknown, s.answers.LongestGap().Round(time.Millisecond))
	}
}

// job returns a job that records its run.
func (s *site) job(name, body string) *greylagv1.JobSpec {
	return &greylagv1.JobSpec{
		Name: name, Script: s.runs.Script(body), WorkDir: s.Work, Output: "/dev/null", Qos: realQOS,
		Environment: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
		Request:     &greylagv1.Request{CpusPerTask: 1, MemPerNode: 16 << 20},
	}
}

// submit submits one job and returns its ID.
func (s *site) submit(ctx context.Context, job *greylagv1.JobSpec) uint64 {
	s.t.Helper()
	answer, err := s.client.Jobs().SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{job}})
	if err != nil {
		s.t.Fatalf("submit %s: %v", job.Name, err)
	}
	s.answers.Acknowledged(job.Name, answer.Jobs[0].Id)
	return answer.Jobs[0].Id
}

// get returns a job as it is now.
func (s *site) get(ctx context.Context, id uint64) (*greylagv1.Job, error) {
	answer, err := s.client.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: fmt.Sprint(id)})
	if err != nil {
		return nil, err
	}
	return answer.Jobs[0], nil
}

// await waits until a job is in one of the states, and fails the test when it
// ends in another.
func (s *site) await(ctx context.Context, id uint64, states ...string) *greylagv1.Job {
	s.t.Helper()
	job, err := s.awaitJob(ctx, id, states...)
	if err != nil {
		s.t.Fatal(err)
	}
	return job
}

func (s *site) awaitJob(ctx context.Context, id uint64, states ...string) (*greylagv1.Job, error) {
	var job *greylagv1.Job
	var wrong error
	err := cluster.Until(ctx, fmt.Sprintf("job %d becomes %v", id, states), func() (bool, error) {
		var err error
		if job, err = s.get(ctx, id); err != nil {
			return false, err
		}
		for _, state := range states {
			if wire.Word(job.State) == state {
				return true, nil
			}
		}
		wrong = fmt.Errorf("job %d is %s (%s %s), exit %d:%d, not %v; tasks %v", id, wire.Word(job.State), wire.Word(job.Reason), job.Detail, job.ExitCode, job.ExitSignal, states, job.Tasks)
		return job.Ended != nil && job.State != greylagv1.JobState_JOB_STATE_COMPLETING && job.State != greylagv1.JobState_JOB_STATE_PENDING, wrong
	})
	if err == nil && !contains(states, wire.Word(job.State)) {
		err = wrong
	}
	return job, err
}

func contains(list []string, word string) bool {
	for _, one := range list {
		if one == word {
			return true
		}
	}
	return false
}

// idle waits until no job runs or will run.
func (s *site) idle(ctx context.Context) {
	s.t.Helper()
	err := cluster.Until(ctx, "the last job ends", func() (bool, error) {
		answer, err := s.client.Jobs().ListJobs(ctx, &greylagv1.ListJobsRequest{Filter: &greylagv1.Filter{Qos: []string{realQOS}}, PageSize: 10})
		if err != nil || len(answer.Jobs) == 0 {
			return err == nil, err
		}
		return false, fmt.Errorf("job %s is %s (%s)", answer.Jobs[0].Ref, wire.Word(answer.Jobs[0].State), wire.Word(answer.Jobs[0].Reason))
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// audit fails the test for every violation.
func (s *site) audit(ctx context.Context) {
	s.t.Helper()
	if err := (audit.Audit{Cluster: s.Cluster, Answers: s.answers, Runs: &s.runs}).Check(ctx); err != nil {
		s.t.Error(err)
	}
}

// leader returns the current leader.
func (s *site) leader(ctx context.Context) *cluster.Controller {
	s.t.Helper()
	i, err := s.Leader(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.Controller(i)
}

// others returns the controllers except one.
func (s *site) others(not *cluster.Controller) []*cluster.Controller {
	var list []*cluster.Controller
	for _, ctl := range s.Controllers() {
		if ctl != not {
			list = append(list, ctl)
		}
	}
	return list
}

// probe requires a submission to be acknowledged, and returns the time it took.
func (s *site) probe(ctx context.Context) time.Duration {
	s.t.Helper()
	begun := time.Now()
	if err := audit.Probe(ctx, s.client.Jobs(), s.answers); err != nil {
		s.t.Fatal(err)
	}
	return time.Since(begun)
}

// must fails the test for an error.
func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// wait lets the fault last for a span.
func (s *site) wait(ctx context.Context, span time.Duration) {
	s.t.Helper()
	select {
	case <-ctx.Done():
		s.t.Fatal(ctx.Err())
	case <-time.After(span):
	}
}

// three is a cluster of three controllers and one node. The controllers have the longest timeouts:
// on a slow machine a leader may wait for a processor.
func three() cluster.Options {
	return cluster.Options{Controllers: 3, Nodes: 1, GPUs: 4, CPUs: 16, Memory: "4GiB", Tmpfs: true, Raft: `profile = "wan"`}
}

// ref returns a job's ID as commands write it.
func ref(id uint64) string { return fmt.Sprint(id) }

// cancel ends a job.
func (s *site) cancel(ctx context.Context, id uint64) {
	s.t.Helper()
	answer, err := s.client.Jobs().CancelJobs(ctx, &greylagv1.CancelJobsRequest{RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{ref(id)}}})
	if err != nil || len(answer.Outcomes) != 1 || answer.Outcomes[0].Error != "" {
		s.t.Fatalf("cancel job %d: %v, %v", id, answer, err)
	}
}

// stillRuns checks that a job runs in its first attempt.
func (s *site) stillRuns(ctx context.Context, id uint64) {
	s.t.Helper()
	job, err := s.get(ctx, id)
	if err != nil || job.State != greylagv1.JobState_JOB_STATE_RUNNING || job.Attempt != 1 {
		s.t.Errorf("job %d should run in its first attempt: %v %v", id, job, err)
	}
}
