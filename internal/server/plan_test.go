package server_test

import (
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestPlanOfWhatWaits checks that expected starts are listed with the planned ones on request, and
// that the next caller gets the same ones.
func TestPlanOfWhatWaits(t *testing.T) {
	w := newWorld(t, options{})
	_, waiting := queueOfTwo(w)
	c := w.as(bob).Cluster()
	for range 2 {
		plan, err := c.GetPlan(t.Context(), &greylagv1.GetPlanRequest{Waiting: true, Expected: true})
		must(t, err)
		if len(plan.GetJobs()) != 1 || plan.GetJobs()[0].GetJob() != waiting {
			t.Fatalf("plan: %v", plan)
		}
		j := plan.GetJobs()[0]
		if off := j.GetExpected().AsTime().Sub(j.GetStart().AsTime()).Abs(); j.GetExpected() == nil || off > time.Minute { // no run times are known of such jobs
			t.Errorf("planned at %v, expected at %v", j.GetStart().AsTime(), j.GetExpected())
		}
		if !j.GetPromised() || len(j.GetHosts()) != 1 || j.GetHosts()[0].GetNode() != "n1" {
			t.Errorf("promised on %v", j)
		}
	}
	plan, err := c.GetPlan(t.Context(), &greylagv1.GetPlanRequest{})
	must(t, err)
	for _, j := range plan.GetJobs() {
		if j.GetExpected() != nil {
			t.Errorf("not requested: %v", j)
		}
	}
}
