package sim

import (
	"fmt"

	"github.com/greylag/greylag/internal/sim/oracle"
	"github.com/greylag/greylag/internal/sim/trace"
	"github.com/greylag/greylag/pkg/cluster"
)

// ReplayPublished runs a log in the order of events of published schedules (package oracle), on a
// machine of interchangeable processors.
func ReplayPublished(log *trace.Trace, procs int32, a oracle.Algorithm) (*Outcome, error) {
	fleet := Flat(procs)
	jobs := make([]oracle.Job, len(log.Jobs))
	for i := range log.Jobs {
		j := &log.Jobs[i]
		if j.Procs == 0 {
			return nil, fmt.Errorf("%w: job %s asks for GPUs alone, and this order of events knows processors alone", ErrRefused, j.ID)
		}
		jobs[i] = oracle.Job{Submit: j.Submit, Run: j.Run, Estimate: j.Estimate, Procs: j.Procs}
	}
	starts, err := oracle.Run(jobs, procs, a)
	if err != nil {
		return nil, err
	}
	work := Workload(log, fleet, false)
	out := &Outcome{Machine: fleet, Results: make([]Result, len(work))}
	for i := range work {
		r := &out.Results[i]
		r.Job, r.ID = &work[i], cluster.JobID(i+1)
		r.Start = Epoch + cluster.Instant(starts[i].Start)
		r.End = r.Start.Add(work[i].Run)
		r.Nodes = []cluster.NodeAllocation{{Node: "flat", CPUs: jobs[i].Procs}}
		r.Reason = cluster.Completed.String()
		if starts[i].Promise < 0 {
			continue
		}
		r.Promise = Epoch + cluster.Instant(starts[i].Promise)
		r.Planned = r.Promise
		if r.Waited = r.Promise > work[i].Submit; r.Waited {
			r.LatestPromise = r.Promise
		}
		if r.Start > r.Promise {
			r.Broken = UnnamedCause
		}
	}
	return out, nil
}
