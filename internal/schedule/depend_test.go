package schedule

import (
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestAnArrayThatWaitsForAnother checks that the state of an array is computed once in a pass,
// however many elements depend on it.
func TestAnArrayThatWaitsForAnother(t *testing.T) {
	const array, count = 1000, 100 // the last one still runs
	for _, d := range []cluster.Dependency{
		{Kind: cluster.AfterOK},
		{Kind: cluster.AfterAny},
		{Kind: cluster.After, Delay: 24 * time.Hour},
	} {
		snap := draw(t, `node n1 gpus=8`)
		d.Job = cluster.JobRef{ID: array, Index: cluster.NoIndex}
		snap.Elements = func(id cluster.JobID) (cluster.JobID, int32, bool) { return array, count, id == array }
		asked := 0
		snap.Ended = func(id cluster.JobID) *cluster.Job {
			asked++
			return &cluster.Job{ID: id, State: cluster.Completed, Started: snap.Now, Ended: snap.Now}
		}
		like := draw(t, `job 5 gpus=1`).Pending[0]
		runs := *like
		runs.ID, runs.Array, runs.Index, runs.State, runs.Attempt, runs.Started = array+count-1, array, count-1, cluster.Running, 1, snap.Now
		snap.Active = append(snap.Active, &runs)
		for i := range cluster.JobID(count) {
			waits, spec := *like, *like.Spec
			spec.Depends = []cluster.Dependency{d}
			waits.ID, waits.Spec = 2000+i, &spec
			snap.Pending = append(snap.Pending, &waits)
		}
		verdicts := Decide(snap).Plan.Verdicts
		if len(verdicts) != count || verdicts[0].Reason != cluster.ReasonDependency {
			t.Fatalf("%s: verdicts are %+v", d, verdicts)
		}
		if asked > 2*count {
			t.Errorf("%s: asks %d times the outcome of %d elements", d, asked, count)
		}
	}
}
