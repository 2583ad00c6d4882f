package explain

import (
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// Growth returns why a running elastic job gets no more nodes now; "" if the next pass gives it some. It costs a pass over
// all jobs.
func Growth(snap *cluster.Snapshot, job *cluster.Job) string {
	return plan.FromScratch(snap).ExplainGrowth(job)
}
