package server_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestRepeatedUpdateOfManyJobs checks that a repetition changes no job again, although it finds other
// jobs than the first request, and that its ID is refused for another change.
func TestRepeatedUpdateOfManyJobs(t *testing.T) {
	w := newWorld(t, options{})
	spec := job("many")
	spec.Array, spec.TimeLimit = "0-4999", durationpb.New(time.Hour)
	_, err := w.as(ann).Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{RequestId: "s", Jobs: []*greylagv1.JobSpec{spec}})
	must(t, err)
	extend := func(by time.Duration) error {
		_, err := w.as(root).Jobs().UpdateJobs(t.Context(), &greylagv1.UpdateJobsRequest{RequestId: "once", Filter: &greylagv1.Filter{Users: []string{"ann"}}, Action: greylagv1.JobAction_JOB_ACTION_SET, TimeLimitBy: durationpb.New(by)})
		return err
	}
	must(t, extend(time.Hour))
	_, err = w.as(root).Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{RequestId: "c", Filter: &greylagv1.Filter{Jobs: []string{"1_0"}}})
	must(t, err)
	must(t, extend(time.Hour)) // the repetition
	g, err := w.as(ann).Jobs().GetJob(t.Context(), &greylagv1.GetJobRequest{Job: "1_4999"})
	must(t, err)
	if limit := g.Jobs[0].TimeLimit.AsDuration(); limit != 2*time.Hour {
		t.Errorf("the time limit is %s", limit)
	}
	if err := extend(5 * time.Hour); err == nil {
		t.Error("the same request ID with another payload was accepted")
	}
}

// TestRequestIDWithAndWithoutKey checks that a request ID protects a change of credits that also has
// a key when it is repeated.
func TestRequestIDWithAndWithoutKey(t *testing.T) {
	w := newCreditCluster(t, false)
	for _, key := range []string{"", "k"} {
		_, err := w.as(root).Credits().ChangeCredits(t.Context(), &greylagv1.ChangeCreditsRequest{RequestId: "same", Key: key, Change: grantRequest(&greylagv1.GrantCredits{Account: "maths", Amount: 5 * credit}).Change})
		must(t, err)
	}
	if has := balance(w, eve, "maths", ""); has.Available != 5*credit {
		t.Errorf("maths has %d", has.Available)
	}
}
