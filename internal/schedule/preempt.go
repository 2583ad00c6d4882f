package schedule

import (
	"slices"
	"time"

	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

const (
	// maxTrials is for how many request classes one pass tries preemption.
	maxTrials = 16
	// retryAll is how often all jobs that may preempt are tried: others that they may preempt can have
	// started.
	retryAll = time.Minute
)

// PreemptRequest is a job for which others end.
type PreemptRequest struct {
	Job cluster.JobID
	// Hosts are hosts on which the job could start then, with the GPUs of each. Others may be chosen at the start.
	Hosts   []cluster.NodeShare
	Victims []Candidate
}

// preemption is the state of the preempt step between passes.
type preemption struct {
	triedAll cluster.Instant           // when all jobs that may preempt were tried last; 0 after a full plan
	again    cluster.Instant           // when they have to be tried again: a job may be preempted from then on; 0 for never
	changed  []*plan.Entry             // those that may preempt and changed since jobs were tried last
	failed   map[cluster.JobID]outlook // of jobs for which no victims were found
}

// outlook is what the outcome of a trial depends on: policy, hosts, and a hash of the other jobs.
type outlook struct {
	policy *cluster.Policy
	hosts  *topology.Host
	jobs   uint64
}

// preempt requests preemption for the first job, in order, that may preempt and cannot start before others would
// have ended. It makes at most one request a pass: the next one follows when that is done. It tries jobs that
// changed, and all of them after a full plan and once a minute. A pass that leaves something to the next one
// requests nothing, since that may start the job. O(QOS) where no QOS may preempt.
func (p *Planner) preempt(c *plan.Pass) []PreemptRequest {
	if c.Full() {
		p.preemption = preemption{failed: p.preemption.failed}
	}
	if !slices.ContainsFunc(c.Snap.Policy.QOS, func(q cluster.QOS) bool { return len(q.Preempts) > 0 }) {
		return nil
	}
	for _, e := range c.Changed() {
		if len(c.Resources().QOS[e.Job.Spec.QOS].Preempts) > 0 {
			p.preemption.changed = append(p.preemption.changed, e)
		}
	}
	if !c.Settled() {
		return nil
	}
	list := p.preemption.changed
	p.preemption.changed = nil
	if e := c.Entry(c.Preemptor()); e != nil && (e.Starting || e.At > 0 && e.At <= c.Vacated()+1) {
		return nil // the last preemptor has not started: its hosts may change until then
	}
	if again := p.preemption.again; c.Snap.Now-p.preemption.triedAll >= cluster.Instant(retryAll) || again > 0 && again <= c.Snap.Now {
		p.preemption.triedAll, p.preemption.again, list = c.Snap.Now, 0, make([]*plan.Entry, 0, len(c.Entries()))
		for _, e := range c.Entries() {
			list = append(list, e)
		}
	}
	for _, e := range list {
		if from := e.Job.PreemptsFrom; from > c.Snap.Now && len(c.Resources().QOS[e.Job.Spec.QOS].Preempts) > 0 {
			p.retryAt(from)
		}
	}
	preemptors := slices.DeleteFunc(list, func(e *plan.Entry) bool { return !c.MayPreempt(e) })
	if len(preemptors) == 0 {
		return nil
	}
	slices.SortFunc(preemptors, func(a, b *plan.Entry) int { return a.Rank.Compare(&b.Rank) })
	return p.firstRequest(c, preemptors)
}

// firstRequest returns the request of the first preemptor for which others can make enough room; none if there is
// no such job. One job of each class is tried, and none again with the outlook for which there were no victims.
func (p *Planner) firstRequest(c *plan.Pass, preemptors []*plan.Entry) []PreemptRequest {
	shot := committed(c)
	tried, trials := map[*plan.Class]bool{}, 0
	failed := map[cluster.JobID]outlook{}
	defer func() { p.preemption.failed = failed }()
	for _, e := range preemptors {
		if tried[e.Class] {
			continue
		}
		tried[e.Class] = true
		list := candidates(c, e.Job)
		now := outlookOf(c, e.Job, list)
		if p.preemption.failed[e.Job.ID] != now {
			if trials++; trials > maxTrials {
				return nil
			}
			q, again, ok := requestFor(c, shot, e.Job, list)
			if ok {
				c.Preempt(e.Job.ID)
				return []PreemptRequest{q}
			}
			p.retryAt(again)
			if again > 0 {
				continue
			}
		}
		failed[e.Job.ID] = now
		if first := firstExempt(c.Snap.Now, list); first > 0 {
			p.retryAt(max(first, c.Snap.Now.Add(retryAll)))
		}
	}
	return nil
}

// retryAt has jobs tried again at an instant; 0 for none.
func (p *Planner) retryAt(at cluster.Instant) {
	if at > 0 && (p.preemption.again == 0 || at < p.preemption.again) {
		p.preemption.again = at
	}
}

// outlookOf returns what the outcome of a trial of a job depends on now. O(jobs).
func outlookOf(c *plan.Pass, job *cluster.Job, list []Candidate) outlook {
	const prime = 1099511628211 // of FNV-1a
	x := outlook{policy: c.Snap.Policy, jobs: 14695981039346656037}
	if hosts := c.Resources().Hosts; len(hosts) > 0 {
		x.hosts = hosts[0]
	}
	add := func(values ...uint64) {
		for _, v := range values {
			x.jobs = (x.jobs ^ v) * prime
		}
	}
	for i := range list {
		if list[i].From <= c.Snap.Now {
			add(uint64(list[i].Job), uint64(list[i].Attempt))
		}
	}
	active := slices.Clone(c.Check.Jobs.Active)
	slices.SortFunc(active, func(a, b *cluster.Job) int { return int(a.ID) - int(b.ID) })
	for _, j := range active {
		add(uint64(j.ID), uint64(j.Attempt), uint64(j.State))
	}
	for _, j := range c.Ahead(job) {
		add(uint64(j.ID))
	}
	return x
}

// committed returns the snapshot as it will be once the decisions of the pass so far are committed: with its starts
// and the present promises.
func committed(c *plan.Pass) *cluster.Snapshot {
	shot := *c.Snap
	jobs := &c.Check.Jobs
	shot.Active, shot.Pending = slices.Clone(jobs.Active), make([]*cluster.Job, 0, len(jobs.Pending))
	starts := make(map[cluster.JobID]*cluster.PlannedStart, len(c.Starts))
	for i := range c.Starts {
		starts[c.Starts[i].Job] = &c.Starts[i]
	}
	for _, j := range jobs.Pending {
		job := *j
		if s := starts[j.ID]; s != nil {
			job.State, job.Attempt, job.Started = cluster.Configuring, s.Attempt, c.Snap.Now
			job.Alloc, job.Promise = &cluster.Allocation{Nodes: s.Placement.Nodes}, nil
			shot.Active = append(shot.Active, &job)
			continue
		}
		job.Promise = nil
		if e := c.Entry(j.ID); e != nil && e.Promised {
			job.Promise = c.PromiseOf(e)
		}
		shot.Pending = append(shot.Pending, &job)
	}
	return &shot
}
