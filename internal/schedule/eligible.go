package schedule

import (
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
)

// eligible is step 1: it sorts the pending jobs into those that may start, by
// class, and those that may not, whatever is free.
func (r *round) eligible() {
	places := r.arrayPlaces()
	var of *class // of the job before, whose specification all elements of an array share
	var spec *cluster.JobSpec
	for _, job := range r.jobs.pending {
		if job.Hold != cluster.NotHeld {
			continue // the state said why when it was held
		}
		if v, ok := r.bar(job); ok {
			r.wait(job, v, 0)
			continue
		}
		if job.Array != 0 && job.Spec.ArrayLimit > 0 {
			left, known := places[job.Array]
			if !known {
				left = job.Spec.ArrayLimit
			}
			if left <= 0 {
				r.wait(job, verdict{reason: cluster.ReasonArrayTaskLimit}, 0)
				continue
			}
			places[job.Array] = left - 1
		}
		if spec != job.Spec {
			of, spec = r.classOf(job), job.Spec
		}
		of.jobs = append(of.jobs, job)
	}
}

// arrayPlaces is how many more elements may run of each array that runs and has a limit.
func (r *round) arrayPlaces() map[cluster.JobID]int32 {
	places := map[cluster.JobID]int32{}
	for _, job := range r.jobs.active {
		if job.Array == 0 || job.Spec.ArrayLimit == 0 {
			continue
		}
		left, known := places[job.Array]
		if !known {
			left = job.Spec.ArrayLimit
		}
		places[job.Array] = left - 1
	}
	return places
}

// bar is what keeps a job from starting whatever is free, if anything does.
func (r *round) bar(job *cluster.Job) (verdict, bool) {
	if after := max(job.Eligible, job.Spec.Begin); after > r.snap.Now {
		r.decision.Wake = min(r.decision.Wake, after)
		return verdict{reason: cluster.ReasonBeginTime}, true
	}
	if d := job.Spec.Deadline; d > 0 && r.snap.Now > d.Add(-job.Spec.TimeLimit) {
		return verdict{cluster.ReasonDeadline, "it could not end before its deadline"}, true
	}
	if len(job.Spec.Depends) > 0 {
		if v, ok := r.unmet(job); ok {
			return v, true
		}
	}
	return r.barredByPartition(job)
}

func (r *round) barredByPartition(job *cluster.Job) (verdict, bool) {
	spec := job.Spec
	p, ok := r.ground.parts[spec.Partition]
	limit := spec.TimeLimit
	switch {
	case !ok:
		return verdict{cluster.ReasonPartitionDown, fmt.Sprintf("partition %q does not exist any more", spec.Partition)}, true
	case p.Down:
		return verdict{reason: cluster.ReasonPartitionDown}, true
	case p.MaxNodes > 0 && spec.Request.Nodes > p.MaxNodes:
		return verdict{cluster.ReasonPartitionNodeLimit,
			fmt.Sprintf("asks for %d nodes; partition %q allows %d", spec.Request.Nodes, p.Name, p.MaxNodes)}, true
	case p.MaxTime > 0 && (limit == 0 || limit > p.MaxTime):
		return verdict{cluster.ReasonPartitionTimeLimit,
			fmt.Sprintf("asks for %s; partition %q allows %s", cluster.FormatLimit(limit), p.Name, cluster.FormatLimit(p.MaxTime))}, true
	}
	return verdict{}, false
}
