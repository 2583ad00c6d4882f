package server_test

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/pkg/cluster"
)

// queueOfTwo is a node with ann's job, and bob's pending job.
func queueOfTwo(w *world) (running, waiting string) {
	n := newNode(w, "n1")
	n.next()
	whole := job("work")
	whole.Request = &greylagv1.Request{GpusPerNode: 2, MemPerNode: 1 << 30}
	whole.TimeLimit = durationpb.New(30 * time.Minute) // within the horizon of promises
	a := w.submit(w.as(ann), whole)
	n.busy()
	b := w.submit(w.as(bob), whole)
	running, waiting = cluster.JobID(a).String(), cluster.JobID(b).String()
	w.until("the second job has a planned start", func() bool {
		answer, err := w.as(bob).Jobs().GetJob(w.t.Context(), &greylagv1.GetJobRequest{Job: waiting})
		must(w.t, err)
		return answer.GetJobs()[0].GetPlanned() != nil
	})
	return running, waiting
}

func TestWhyAndPlan(t *testing.T) {
	w := newWorld(t, options{})
	running, waiting := queueOfTwo(w)
	c := w.as(bob).Cluster()
	x, err := c.ExplainJob(t.Context(), &greylagv1.ExplainJobRequest{Job: waiting})
	must(t, err)
	if x.GetNodes() != 1 || x.GetSuitableNodes() != 1 || x.GetFreeNodes() != 0 || len(x.GetExclusions()) != 1 || x.GetExclusions()[0].GetCondition() != "fewer than 2 GPUs free" {
		t.Errorf("nodes: %v", x)
	}
	if h := x.GetHolders(); len(h) != 1 || h[0].GetJob() != running || h[0].GetUser() != "ann" || h[0].GetEnds() == nil {
		t.Errorf("holders: %v", h)
	}
	if x.GetExpected().AsTime().Sub(x.GetJob().GetPlanned().AsTime()).Abs() > time.Minute { // no run times are known of such jobs
		t.Errorf("planned at %v, expected at %v", x.GetJob().GetPlanned().AsTime(), x.GetExpected().AsTime())
	}
	if k := len(x.GetHistory()); k == 0 || x.GetHistory()[k-1].GetPlanned().AsTime() != x.GetJob().GetPlanned().AsTime() {
		t.Errorf("history: %v", x.GetHistory())
	}
	after := job("after")
	after.Depends = []*greylagv1.Dependency{{Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTEROK, Job: waiting}}
	x, err = c.ExplainJob(t.Context(), &greylagv1.ExplainJobRequest{Job: cluster.JobID(w.submit(w.as(bob), after)).String()})
	if u := x.GetUnmet(); err != nil || len(u) != 1 || u[0].GetJob() != waiting || u[0].GetUser() != "bob" || u[0].GetState() != greylagv1.JobState_JOB_STATE_PENDING || u[0].GetDependency() != "afterok:"+waiting {
		t.Errorf("a dependency: %v, %v", u, err)
	}
	x, err = c.ExplainJob(t.Context(), &greylagv1.ExplainJobRequest{Job: running})
	if must(t, err); x.GetRequest() != "" || x.GetJob().GetName() != "" {
		t.Errorf("of another's job that runs: %v", x)
	}
	plan, err := c.GetPlan(t.Context(), &greylagv1.GetPlanRequest{})
	must(t, err)
	if p := plan.GetJobs(); len(p) != 2 || p[0].GetJob() != running || p[0].GetGpus() != 2 || p[1].GetJob() != waiting || p[1].GetEnd() == nil {
		t.Errorf("plan: %v", p)
	}
	none, err := c.GetPlan(t.Context(), &greylagv1.GetPlanRequest{Partition: "absent"})
	if must(t, err); len(none.GetJobs()) != 0 {
		t.Errorf("plan of no partition: %v", none)
	}
	for job, code := range map[string]connect.Code{"999": connect.CodeNotFound, "x": connect.CodeInvalidArgument} {
		if _, err := c.ExplainJob(t.Context(), &greylagv1.ExplainJobRequest{Job: job}); connect.CodeOf(err) != code {
			t.Errorf("job %q: %v", job, err)
		}
	}
}

func TestWhyHidesWhatPolicyHides(t *testing.T) {
	w := newWorld(t, options{policy: func(p *cluster.Policy) { p.Private = true }})
	running, waiting := queueOfTwo(w)
	c := w.as(bob).Cluster()
	x, err := c.ExplainJob(t.Context(), &greylagv1.ExplainJobRequest{Job: waiting})
	if must(t, err); len(x.GetHolders()) != 0 || strings.Contains(x.String(), `"ann"`) {
		t.Errorf("another's job shows: %v", x)
	}
	if _, err := c.ExplainJob(t.Context(), &greylagv1.ExplainJobRequest{Job: running}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("another's job is explained: %v", err)
	}
	plan, err := c.GetPlan(t.Context(), &greylagv1.GetPlanRequest{})
	if must(t, err); len(plan.GetJobs()) != 1 || plan.GetJobs()[0].GetJob() != waiting {
		t.Errorf("plan: %v", plan)
	}
}

// TestAChangedPromise checks that a change of a job warns if it may cost its promise.
func TestAChangedPromise(t *testing.T) {
	w := newWorld(t, options{})
	_, waiting := queueOfTwo(w)
	c := w.as(bob)
	note := func(r *greylagv1.UpdateJobsRequest) string {
		t.Helper()
		r.RequestId, r.Filter = client.NewRequestID(), &greylagv1.Filter{Jobs: []string{waiting}}
		w.until("the start is promised", func() bool {
			answer, err := c.Jobs().GetJob(t.Context(), &greylagv1.GetJobRequest{Job: waiting})
			must(t, err)
			return answer.GetJobs()[0].GetPromised()
		})
		answer, err := c.Jobs().UpdateJobs(t.Context(), r)
		must(t, err)
		return answer.GetOutcomes()[0].GetNote()
	}
	if n := note(&greylagv1.UpdateJobsRequest{Action: greylagv1.JobAction_JOB_ACTION_SET, TimeLimit: durationpb.New(10 * time.Minute)}); n != "" {
		t.Errorf("of a shorter limit: %q", n)
	}
	if n := note(&greylagv1.UpdateJobsRequest{Action: greylagv1.JobAction_JOB_ACTION_SET, TimeLimit: durationpb.New(20 * time.Minute)}); !strings.Contains(n, "gctl why "+waiting) {
		t.Errorf("of a longer limit: %q", n)
	}
	if n := note(&greylagv1.UpdateJobsRequest{Action: greylagv1.JobAction_JOB_ACTION_HOLD}); !strings.Contains(n, "no longer") {
		t.Errorf("of a hold: %q", n)
	}
}
