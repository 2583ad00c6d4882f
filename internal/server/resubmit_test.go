package server_test

import (
	"fmt"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
)

// requeue requeues one job with a request ID.
func requeue(t *testing.T, c *client.Client, job uint64, id string) *greylagv1.Outcome {
	t.Helper()
	answer, err := c.Jobs().UpdateJobs(t.Context(), &greylagv1.UpdateJobsRequest{
		RequestId: id, Filter: &greylagv1.Filter{Jobs: []string{fmt.Sprint(job)}}, Action: greylagv1.JobAction_JOB_ACTION_REQUEUE,
	})
	must(t, err)
	return answer.GetOutcomes()[0]
}

// TestRequeueOfAnEndedJob submits it again, once for each request, and only for its owner.
func TestRequeueOfAnEndedJob(t *testing.T) {
	w := newWorld(t, options{})
	mine := w.as(ann)
	spec := job("again")
	spec.Script, spec.Environment = []byte("#!/bin/sh\necho 1\n"), []string{"A=b"}
	id := w.submit(mine, spec)
	_, err := mine.Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{
		RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{fmt.Sprint(id)}},
	})
	must(t, err)

	request := client.NewRequestID()
	first := requeue(t, mine, id, request)
	if first.GetError() != "" || first.GetState() != greylagv1.JobState_JOB_STATE_PENDING || first.GetId() == id {
		t.Fatalf("got %v", first)
	}
	if second := requeue(t, mine, id, request); second.GetId() != first.GetId() {
		t.Errorf("the repeated request submitted job %d, the first %d", second.GetId(), first.GetId())
	}
	script, err := mine.Jobs().GetScript(t.Context(), &greylagv1.GetScriptRequest{Job: fmt.Sprint(first.GetId())})
	must(t, err)
	if string(script.GetScript()) != "#!/bin/sh\necho 1\n" || len(script.GetEnvironment()) != 1 {
		t.Errorf("the new job has the script %q and the environment %q", script.GetScript(), script.GetEnvironment())
	}
	if o := requeue(t, w.as(olga), id, client.NewRequestID()); o.GetError() == "" {
		t.Errorf("an operator submitted another's job as job %d", o.GetId())
	}
}
