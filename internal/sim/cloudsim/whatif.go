package cloudsim

import (
	"errors"
	"time"

	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/cloud"
	"github.com/greylag/greylag/pkg/cluster"
)

// Estimate is what a value of saved time leads to, on a saved cluster.
type Estimate struct {
	Value   int64            // what an hour less of waiting is worth for each GPU, in millionths of the currency; 0: no node is leased
	Wait    sim.Distribution // of the jobs that wait, from the snapshot until they start
	Started int
	Never   int // jobs that never start
	OnCloud int // jobs that ran on leased nodes
	Cloud   sim.CloudSummary
}

// WhatIf continues a saved cluster in virtual time, with changes, once for each value of saved time in all its QOS. It returns
// an estimate for each, and how many of the jobs that wait may burst.
func WhatIf(snapshot []byte, c *sim.Changes, kinds []cloud.Kind, seed uint64, values []int64, o sim.Options) (list []Estimate, may int, err error) {
	for _, value := range values {
		x, err := continueWith(snapshot, c, &Options{Kinds: kinds, Seed: seed}, value, o)
		if err != nil {
			return nil, 0, err
		}
		e, n := x.estimate(value)
		list, may = append(list, e), n
	}
	return list, may, nil
}

// continueWith continues a saved cluster until all its jobs and leases have ended.
func continueWith(snapshot []byte, c *sim.Changes, t *Options, value int64, o sim.Options) (*replay, error) {
	v, err := sim.Continue(snapshot, o.Check)
	if err != nil {
		return nil, err
	}
	changes := *c
	policy := v.State.View().Policy()
	if changes.Policy != nil {
		policy = changes.Policy
	}
	p := WithCloud(policy)
	p.QOS = append([]cluster.QOS(nil), p.QOS...)
	for i := range p.QOS {
		if p.QOS[i].BurstValue = value; value == 0 {
			p.QOS[i].BurstMaxWait = 0
		}
	}
	changes.Policy = p
	if err := v.Change(&changes); err != nil {
		return nil, err
	}
	lasts := sim.RunTimes(v.State.View(), c.Expected)
	jobs := make([]sim.Job, len(c.Jobs))
	for i := range c.Jobs {
		jobs[i] = sim.Job{Name: "added", Submit: v.Now, Run: lasts(&c.Jobs[i]), Spec: &c.Jobs[i]}
	}
	x := newReplay(v, jobs, t, o)
	for i := range jobs {
		x.waited = append(x.waited, i)
	}
	x.adopt(lasts)
	return x, errors.Join(x.processInstant(), x.passes(), x.run())
}

// adopt adds the jobs and the leases of a saved cluster.
func (x *replay) adopt(lasts func(*cluster.JobSpec) time.Duration) {
	for j := range x.State.View().Jobs(0) {
		at := len(x.Results)
		x.ResultOf[j.ID] = at
		job := &sim.Job{Name: j.Ref().String(), Submit: j.Submitted, Run: lasts(j.Spec), Spec: j.Spec}
		res := sim.Result{Job: job, ID: j.ID, Attempt: j.Attempt, Waited: true}
		if j.State == cluster.Pending {
			x.waited = append(x.waited, at)
		} else {
			res.Start, res.Nodes = j.Started, j.Alloc.Nodes
			x.ending(j, x.EndOf(j, lasts))
		}
		x.Results = append(x.Results, res)
	}
	for _, l := range x.State.View().LeaseWork() {
		if x.leases = true; l.Instance == "" {
			continue
		}
		i := x.cloud.Adopt(x.Now, l)
		x.live(i)
		if l.State == cluster.LeaseLaunched {
			x.At(i.Joins, func() error { return x.join(i) })
		}
	}
}

// estimate measures the waits of the jobs that waited at the instant of the snapshot or were added.
func (x *replay) estimate(value int64) (e Estimate, may int) {
	e.Value = value
	var waits []time.Duration
	for _, i := range x.waited {
		r := &x.Results[i]
		if r.Job.Spec.Burst.On() {
			may++
		}
		if r.Start == 0 {
			e.Never++
			continue
		}
		if waits = append(waits, r.Start.Sub(x.began)); r.OnCloud() {
			e.OnCloud++
		}
	}
	e.Started, e.Wait = len(waits), sim.DistributionOf(waits)
	x.summary.Hours += x.liveHours()
	e.Cloud = x.summary
	return e, may
}
