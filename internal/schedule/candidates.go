package schedule

import (
	"time"

	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/internal/schedule/victims"
	"github.com/greylag/greylag/pkg/cluster"
)

// Candidate is a job that may be preempted for another one.
type Candidate struct {
	Job     cluster.JobID
	Attempt cluster.Attempt
	Tier    int32
	Cost    victims.Cost    // of its preemption: now, or from when on it may be preempted
	From    cluster.Instant // until then it is exempt
	Grace   time.Duration   // until it has left its nodes
}

// candidates returns the jobs that the QOS of a job may preempt and that run for longer than it takes to end them,
// exempt ones included.
func candidates(p *plan.Pass, job *cluster.Job) []Candidate {
	var list []Candidate
	now, policy := p.Snap.Now, p.Snap.Policy
	for _, v := range p.Check.Jobs.Active {
		if !policy.MayPreempt(job.Spec.QOS, v.Spec.QOS) || v.Alloc == nil || v.State == cluster.Completing || v.Preempting != nil {
			continue
		}
		from := policy.ExemptUntil(v)
		grace := p.Resources().Grace + policy.GraceOf(v)
		if p.Resources().End(now, v) <= max(from, now).Add(grace) || policy.Spared(v, now) {
			continue
		}
		list = append(list, Candidate{
			Job: v.ID, Attempt: v.Attempt, Tier: p.Resources().QOS[v.Spec.QOS].Tier, From: from, Cost: costOf(policy, v, max(from, now)), Grace: grace,
		})
	}
	return list
}

// firstExempt returns the first instant after now from which one of the candidates may be preempted; 0 for none.
func firstExempt(now cluster.Instant, list []Candidate) (first cluster.Instant) {
	for i := range list {
		if from := list[i].From; from > now && (first == 0 || from < first) {
			first = from
		}
	}
	return first
}

// restartTime is how long a requeued job is assumed to take until it works again.
const restartTime = 300 * time.Second

// costOf returns the cost of ending a job at an instant: its GPUs times the time of the work that it repeats, and
// half as much more for each preemption in the last 24 hours. Jobs without GPUs count by their CPUs.
func costOf(policy *cluster.Policy, j *cluster.Job, at cluster.Instant) victims.Cost {
	const second = int64(time.Second)
	gpus, cpus := int64(0), int64(0)
	for i := range j.Alloc.Nodes {
		gpus += int64(len(j.Alloc.Nodes[i].GPUs))
		cpus += int64(j.Alloc.Nodes[i].CPUs)
	}
	seconds := (int64(policy.Unsaved(j, at)) + int64(restartTime)) / second
	c := victims.Cost{Jobs: 1, Started: int64(j.Started) / second, IDs: int64(j.ID)}
	if c.Loss = gpus * seconds; gpus == 0 {
		c.CPULoss = cpus * seconds
	}
	for range j.Preemptions(at) {
		c.Loss, c.CPULoss = c.Loss+c.Loss/2, c.CPULoss+c.CPULoss/2
	}
	return c
}
