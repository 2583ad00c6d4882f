package server_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/pkg/cluster"
)

// array submits an array of held jobs and returns its ID.
func (w *world) array(user cluster.Identity, size int) string {
	w.t.Helper()
	spec := job("array")
	spec.Array, spec.Hold = fmt.Sprint("0-", size-1), true
	return fmt.Sprint(w.submit(w.as(user), spec))
}

// cancel cancels jobs and returns the number of outcomes without an error.
func (w *world) cancel(user cluster.Identity, jobs ...string) (done int) {
	w.t.Helper()
	answer, err := w.as(user).Jobs().CancelJobs(w.t.Context(), &greylagv1.CancelJobsRequest{RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: jobs}})
	must(w.t, err)
	for _, o := range answer.GetOutcomes() {
		if o.GetError() == "" {
			done++
		}
	}
	return done
}

// TestAnArrayThatIsNamedOftenIsReadOnce checks that a request that names an array thousands of
// times does not block a controller. A leader that commits nothing for five seconds stops, and the
// test with it.
func TestAnArrayThatIsNamedOftenIsReadOnce(t *testing.T) {
	w := newWorld(t, options{})
	id := w.array(bob, 100_000)
	often := slices.Repeat([]string{id}, 4096)
	if done := w.cancel(ann, often...); done != 0 {
		t.Errorf("%d jobs of another user are cancelled", done)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := w.as(ann).Jobs().ListJobs(ctx, &greylagv1.ListJobsRequest{Filter: &greylagv1.Filter{Jobs: often}, PageSize: 1})
	must(t, err)
	spec := job("waits")
	for range 1000 {
		spec.Depends = append(spec.Depends, &greylagv1.Dependency{Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTERANY, Job: id})
	}
	_, err = w.as(ann).Jobs().SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{spec}})
	must(t, err)
}

// TestManyJobsWaitForOneArray checks that the array is looked up once for all jobs that depend on
// it.
func TestManyJobsWaitForOneArray(t *testing.T) {
	w := newWorld(t, options{})
	id := w.array(ann, 100_000)
	specs := make([]*greylagv1.JobSpec, 2000)
	for i := range specs {
		specs[i] = job(fmt.Sprint("waits ", i))
		specs[i].Hold = true
	}
	answer, err := w.as(ann).Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: specs})
	must(t, err)
	var jobs []string
	for _, j := range answer.GetJobs() {
		jobs = append(jobs, fmt.Sprint(j.GetId()))
	}
	update := func(jobs []string, on ...string) []*greylagv1.Outcome {
		var all []*greylagv1.Dependency
		for _, id := range on {
			all = append(all, &greylagv1.Dependency{Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTERANY, Job: id})
		}
		answer, err := w.as(ann).Jobs().UpdateJobs(t.Context(), &greylagv1.UpdateJobsRequest{
			RequestId: client.NewRequestID(), Action: greylagv1.JobAction_JOB_ACTION_SET, Filter: &greylagv1.Filter{Jobs: jobs}, Depends: &greylagv1.Dependencies{All: all},
		})
		must(t, err)
		return answer.GetOutcomes()
	}
	for _, o := range update(jobs, id) {
		if o.GetError() != "" {
			t.Fatalf("job %s: %s", o.GetRef(), o.GetError())
		}
	}
	if outcomes := update([]string{id}, jobs[0]); len(outcomes) != 100_000 || outcomes[99_999].GetError() == "" {
		t.Errorf("%d elements would wait for a job that waits for them: %v", len(outcomes), outcomes[len(outcomes)-1])
	}
}

// TestLargeCancellationsAreSplit checks that no command changes so large a number of jobs that
// nothing else is committed for seconds.
func TestLargeCancellationsAreSplit(t *testing.T) {
	w := newWorld(t, options{policy: func(p *cluster.Policy) { p.MaxArray = 140_000 }})
	commands := func() (n int) {
		audit, err := w.as(root).Cluster().StreamAudit(t.Context(), &greylagv1.StreamAuditRequest{Kind: greylagv1.AuditKind_AUDIT_KIND_CANCEL})
		must(t, err)
		for audit.Receive() {
			n++
		}
		must(t, audit.Err())
		return n
	}
	w.cancel(ann, w.array(ann, 70_000), w.array(ann, 70_000))
	if n := commands(); n < 2 {
		t.Errorf("two arrays: %d commands", n)
	}
	large := w.array(ann, 135_000)
	w.interrupted(large, commands)
	large = w.array(ann, 135_000)
	before := commands()
	w.cancel(ann, large)
	if n := commands() - before; n < 33 {
		t.Errorf("an array of 135,000: %d commands", n)
	}
	if done := w.cancel(ann, large); done != 0 {
		t.Errorf("%d jobs are cancelled twice", done)
	}
	active, err := w.as(ann).Jobs().ListJobs(t.Context(), &greylagv1.ListJobsRequest{PageSize: 1})
	if must(t, err); len(active.GetJobs()) != 0 {
		t.Errorf("not cancelled: %v", active.GetJobs())
	}
}

// interrupted cancels an array, loses the call after some of its commands, and repeats it: the
// repetition finds other jobs, and must not get the answers of the first call for them.
func (w *world) interrupted(array string, commands func() int) {
	request := &greylagv1.CancelJobsRequest{RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{array}}}
	before := commands()
	ctx, cancel := context.WithCancel(w.t.Context())
	lost := make(chan error)
	go func() {
		_, err := w.as(ann).Jobs().CancelJobs(ctx, request)
		lost <- err
	}()
	w.until("the first commands", func() bool { return commands() > before+2 })
	cancel()
	<-lost
	_, err := w.as(ann).Jobs().CancelJobs(w.t.Context(), request)
	must(w.t, err)
	active, err := w.as(ann).Jobs().ListJobs(w.t.Context(), &greylagv1.ListJobsRequest{PageSize: 1})
	if must(w.t, err); len(active.GetJobs()) != 0 {
		w.t.Errorf("not cancelled: %v", active.GetJobs())
	}
}

// TestManyDelaysAfterOneArray checks that an array that has ended is looked up once for all
// dependencies on it.
func TestManyDelaysAfterOneArray(t *testing.T) {
	w := newWorld(t, options{})
	id := w.array(ann, 100_000)
	w.cancel(ann, id)
	spec := job("waits")
	spec.Hold = true
	for minutes := range 1000 {
		spec.Depends = append(spec.Depends, &greylagv1.Dependency{Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTER, Job: id, Minutes: int32(minutes + 1)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := w.as(ann).Jobs().SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{spec}})
	must(t, err)
}
