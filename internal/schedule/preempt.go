package schedule

import (
	"cmp"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// maxTrials is for how many request classes one pass tries preemption.
	maxTrials = 16
	// retryAll is how often all jobs that may preempt are tried: others that they may preempt can have
	// started.
	retryAll = time.Minute
)

// preemption is the state of the preempt step between passes, until all jobs are planned again.
type preemption struct {
	triedAll cluster.Instant // when all jobs that may preempt were tried last
	changed  []*plan.Entry   // those that may preempt and changed since jobs were tried last
}

// preempt requests preemption for the first job, in order, that may preempt and cannot start before others would
// have ended. It makes at most one request a pass: the next one follows when that is done. It tries jobs that
// changed, and all of them after a full plan and once a minute. A pass that leaves something to the next one
// requests nothing, since that may start the job. O(QOS) where no QOS may preempt.
func (p *Planner) preempt(c *plan.Pass) []PreemptRequest {
	if c.Full() {
		p.preemption = preemption{}
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
	if e := c.Entry(c.Preemptor()); e != nil && (e.Starting || e.At > 0 && e.At <= c.Snap.Now.Add(c.Resources().Grace)+1) {
		return nil // the last preemptor has not started: its hosts may change until then
	}
	if every := cluster.Instant(retryAll); c.Snap.Now-p.preemption.triedAll >= every {
		p.preemption.triedAll, list = c.Snap.Now, make([]*plan.Entry, 0, len(c.Entries()))
		for _, e := range c.Entries() {
			list = append(list, e)
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
// no such job. One job of each class is tried.
func (p *Planner) firstRequest(c *plan.Pass, preemptors []*plan.Entry) []PreemptRequest {
	shot := committed(c)
	tried := map[*plan.Class]bool{}
	for _, e := range preemptors {
		if tried[e.Class] {
			continue
		}
		if len(tried) == maxTrials {
			return nil
		}
		tried[e.Class] = true
		if q, ok := requestFor(c, shot, e.Job); ok {
			c.Preempt(e.Job.ID)
			return []PreemptRequest{q}
		}
	}
	return nil
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

// requestFor returns the request of a job, if others can make enough room for it. The trial has all jobs ahead of
// the job and every promise, as they are in the snapshot; the job has to fit with them once the victims have ended.
func requestFor(c *plan.Pass, shot *cluster.Snapshot, job *cluster.Job) (PreemptRequest, bool) {
	list := candidates(c, job)
	if len(list) == 0 {
		return PreemptRequest{}, false
	}
	t := plan.NewTrial(shot, job, c.Ahead(job), true)
	class := t.ClassOf(job.Spec)
	if len(class.Options) == 0 {
		return PreemptRequest{}, false
	}
	m := &preemptTrial{Trial: t, class: class, at: c.Snap.Now.Add(c.Resources().Grace), gone: map[cluster.JobID]bool{}}
	m.sort(list)
	if !m.enough(list) {
		return PreemptRequest{}, false
	}
	q := PreemptRequest{
		Job: job.ID, Partition: class.Options[m.choice/2].Partition, Candidates: list, Enough: m.enough,
	}
	for _, s := range m.start.Shares {
		q.Hosts = append(q.Hosts, cluster.NodeShare{Node: t.Resources().Hosts[s.Host].Name, GPUs: s.GPUs})
	}
	return q, true
}

// candidates returns the jobs that the QOS of a job may preempt and that run for longer than it takes to end them.
func candidates(p *plan.Pass, job *cluster.Job) []Candidate {
	var list []Candidate
	for _, v := range p.Check.Jobs.Active {
		if !p.Snap.Policy.MayPreempt(job.Spec.QOS, v.Spec.QOS) || v.Alloc == nil || v.State == cluster.Completing {
			continue
		}
		if p.Resources().End(p.Snap.Now, v) <= p.Snap.Now.Add(p.Resources().Grace) {
			continue
		}
		c := Candidate{Job: v.ID, Attempt: v.Attempt, Tier: p.Resources().QOS[v.Spec.QOS].Tier, Started: v.Started}
		for i := range v.Alloc.Nodes {
			c.GPUs += int32(len(v.Alloc.Nodes[i].GPUs))
		}
		list = append(list, c)
	}
	return list
}

// preemptTrial is a trial without some of the candidates.
type preemptTrial struct {
	*plan.Trial
	class  *plan.Class
	at     cluster.Instant // from when on what they had is free
	gone   map[cluster.JobID]bool
	start  backfill.Start // the last one found
	choice int
}

// enough reports whether the job could start without exactly these candidates.
func (m *preemptTrial) enough(gone []Candidate) bool {
	want := make(map[cluster.JobID]bool, len(gone))
	for _, c := range gone {
		want[c.Job] = true
		if t := m.Running().Job(c.Job); t != nil && !m.gone[c.Job] && t.Until > m.at {
			m.gone[c.Job] = true
			m.Running().Release(t, m.at, t.Until)
		}
	}
	for id := range m.gone {
		if t := m.Running().Job(id); !want[id] {
			delete(m.gone, id)
			m.Running().Hold(t, m.at, t.Until)
		}
	}
	s, choice, ok := m.Bookings().Find(m.class, m.at, m.at+1)
	if ok {
		m.start, m.choice = s, choice
	}
	return ok
}

// sort sorts candidates by tier, lowest first, then by the number of jobs that have to end on their node, then the
// youngest first.
func (m *preemptTrial) sort(list []Candidate) {
	on := map[int][]Candidate{}
	for _, c := range list {
		if t := m.Running().Job(c.Job); t != nil {
			for _, h := range t.Hosts {
				on[h] = append(on[h], c)
			}
		}
	}
	type place struct{ cost, host int }
	best := map[cluster.JobID]place{}
	hosts := make([]int, 0, len(on))
	for h := range on {
		hosts = append(hosts, h)
	}
	slices.Sort(hosts)
	for _, h := range hosts {
		cost := m.cost(h, on[h])
		for _, c := range on[h] {
			if b, known := best[c.Job]; !known || cost < b.cost {
				best[c.Job] = place{cost, h}
			}
		}
	}
	slices.SortFunc(list, func(a, b Candidate) int {
		x, y := best[a.Job], best[b.Job]
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(x.cost, y.cost), cmp.Compare(x.host, y.host),
			cmp.Compare(b.Started, a.Started), cmp.Compare(b.Job, a.Job))
	})
}

// cost returns how many of the candidates on a host have to end at least so that the host can serve the job, by
// GPUs, CPUs, memory and generic resources; one more than all when even that is not enough.
func (m *preemptTrial) cost(h int, list []Candidate) int {
	const every = backfill.Lanes(0x7f7f7f7f7f7f7f7f)
	free := m.Bookings().Profile.Row(h).Free(m.Snap.Now)
	q := &m.class.Spec.Request
	host := m.Bookings().Profile.Host(h)
	rule, size, gres := q.MemoryRule(), host.Size, backfill.GresOf(host.Gres, q.Gres)
	gpus := max(q.GPUsPerNode, min(1, q.GPUs))
	enough := func() bool {
		return free.GPUs.Sum(every) >= gpus && free.CPUs >= q.CPUsPerNode() && free.Memory >= rule.On(size, gpus) &&
			(len(q.Gres) == 0 || cluster.HasGres(host.Gres, q.Gres) && free.Covers(&backfill.Amount{Gres: gres}))
	}
	largest := slices.Clone(list)
	slices.SortFunc(largest, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(b.Started, a.Started), cmp.Compare(b.Job, a.Job))
	})
	for n, c := range largest {
		if enough() {
			return n
		}
		t := m.Running().Job(c.Job)
		for i, on := range t.Hosts {
			if on == h {
				free.Add(&t.Amounts[i])
			}
		}
	}
	if enough() {
		return len(largest)
	}
	return len(largest) + 1
}
