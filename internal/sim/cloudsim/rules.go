package cloudsim

import (
	"cmp"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/burst"
	"github.com/greylag/greylag/pkg/cluster"
)

// Rule decides for which of the pending jobs nodes are leased next, instead of production's decision: it returns the index
// of one of waiting, or -1 for none. fits reports whether enough nodes may still be leased for a job.
type Rule func(now cluster.Instant, waiting []*cluster.Job, fits func(*cluster.Job) bool) int

// Never leases no nodes.
func Never(cluster.Instant, []*cluster.Job, func(*cluster.Job) bool) int { return -1 }

// Immediate leases nodes for each job that cannot start at once.
func Immediate(_ cluster.Instant, waiting []*cluster.Job, fits func(*cluster.Job) bool) int {
	return slices.IndexFunc(waiting, fits)
}

// QueueAbove leases nodes while more than n jobs wait for which none are leased.
func QueueAbove(n int) Rule {
	return func(_ cluster.Instant, waiting []*cluster.Job, fits func(*cluster.Job) bool) int {
		if len(waiting) <= n {
			return -1
		}
		return slices.IndexFunc(waiting, fits)
	}
}

// WaitAbove leases nodes for each job that is planned to start later than a time after its submission.
func WaitAbove(d time.Duration) Rule {
	return func(now cluster.Instant, waiting []*cluster.Job, fits func(*cluster.Job) bool) int {
		return slices.IndexFunc(waiting, func(j *cluster.Job) bool {
			return j.Planned > now && j.Planned.Sub(j.Submitted) > d && fits(j)
		})
	}
}

// retryAfter is after what time nodes are leased again for a job for which they could not be.
const retryAfter = time.Minute

// rule applies the rule of the options until it leases nothing more.
func (x *replay) rule() error {
	if x.Rule == nil {
		return nil
	}
	for range 1 << 16 {
		snap := x.State.Peek().Snapshot()
		waiting := x.waiting(snap)
		launches := map[cluster.JobID]*cluster.Launch{}
		i := x.Rule(x.Now, waiting, func(j *cluster.Job) bool {
			launches[j.ID] = launchFor(snap, j)
			return launches[j.ID] != nil
		})
		if i < 0 {
			return nil
		}
		launch := launches[waiting[i].ID]
		r, err := x.Apply(&command.CommitPlan{Plan: cluster.Plan{Index: x.Index, Launches: []cluster.Launch{*launch}}})
		if err != nil {
			return err
		}
		if done, ok := r.(*command.Committed); !ok || len(done.Stale) > 0 {
			again := x.Now.Add(retryAfter)
			x.pausing[launch.Job] = again
			x.Wake = min(x.Wake, again)
		}
		if err := x.lead(); err != nil {
			return err
		}
	}
	return nil
}

// waiting returns the pending jobs that may burst, in order of submission, without those for which nodes are leased.
func (x *replay) waiting(snap *cluster.Snapshot) []*cluster.Job {
	leased := map[cluster.JobID]bool{}
	if snap.Burst != nil {
		for _, l := range snap.Burst.Leases {
			leased[l.Job] = true
		}
	}
	var list []*cluster.Job
	for _, j := range snap.Pending {
		if until, pauses := x.pausing[j.ID]; pauses && until <= x.Now {
			delete(x.pausing, j.ID)
		} else if pauses {
			continue
		}
		if j.Spec.Burst.On() && j.Hold == cluster.NotHeld && !leased[j.ID] {
			list = append(list, j)
		}
	}
	slices.SortStableFunc(list, func(a, b *cluster.Job) int {
		return cmp.Or(cmp.Compare(a.Submitted, b.Submitted), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// launchFor returns the launch of the cheapest suitable offer for a job; nil without such an offer, or if no more nodes may be leased.
func launchFor(snap *cluster.Snapshot, j *cluster.Job) (best *cluster.Launch) {
	p := &snap.Policy.Burst
	lifetime := j.Spec.TimeLimit + snap.Policy.KillWait + cleanUp + p.BootTimeout
	if j.Spec.TimeLimit == 0 || snap.Burst == nil {
		return nil
	}
	for _, o := range snap.Burst.Offers {
		n := nodesOf(&j.Spec.Request, o)
		full := p.MaxNodes > 0 && len(snap.Burst.Leases)+int(n) > int(p.MaxNodes)
		paused := slices.ContainsFunc(snap.Burst.Pauses, func(x cluster.OfferPause) bool { return x.Offer == o.Key() && x.Until > snap.Now })
		if n == 0 || full || paused {
			continue
		}
		price := o.Price
		if o.Market == cluster.Spot {
			price += price / 5 // spot prices move
		}
		cost, known := burst.WorstCost(n, lifetime, price, o.Risk)
		if !known || best != nil && best.Cost <= cost {
			continue
		}
		best = &cluster.Launch{Job: j.ID, Attempt: j.Attempt + 1, Offer: o.Key(), Nodes: n, MaxPrice: price, Lifetime: lifetime, Cost: cost, Why: "the rule of the simulation"}
	}
	return best
}

// cleanUp is the time after a time limit that plans leave to end a job, beyond the policy's.
const cleanUp = 10 * time.Second

// nodesOf returns how many nodes of an offer a request needs; 0 if they do not suit it.
func nodesOf(q *cluster.Request, o *cluster.Offer) int32 {
	if q.CPUsPerNode() > o.CPUs || q.GPUsPerNode > o.GPUs {
		return 0
	}
	if q.GPUs == 0 || q.GPUsPerNode > 0 || q.Nodes > 0 {
		if q.Nodes > 0 && q.GPUs > q.Nodes*o.GPUs {
			return 0
		}
		return max(q.Nodes, 1)
	}
	if o.GPUs == 0 {
		return 0
	}
	return (q.GPUs + o.GPUs - 1) / o.GPUs
}
