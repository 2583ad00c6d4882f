package schedule

import (
	"cmp"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxAsking is for how many different requests one pass looks for room that others
// could make.
const maxAsking = 16

const (
	// askAgain is how often all jobs that may preempt are looked at.
	askAgain = time.Minute
	// worthIt is how much sooner a job has to start for others to be ended for it.
	worthIt = 5 * time.Minute
)

// preempt asks for room for the first job, in order, of a QOS that may preempt which
// cannot start before that room could be made. One a pass: the next one is asked for
// when what was asked for has been done. It looks at jobs of which something changed,
// and at all of them when everything is planned anew or it has not for a minute: others
// that they may preempt can have started. A pass that leaves something to offer asks for
// nothing: the next one may give the job that. O(QOS) where none may preempt.
func (p *Planner) preempt(r *pass) {
	if !slices.ContainsFunc(r.snap.Policy.QOS, func(q cluster.QOS) bool { return len(q.Preempts) > 0 }) {
		return
	}
	for _, e := range r.told {
		if len(p.ground.qos[e.job.Spec.QOS].Preempts) > 0 {
			p.unasked = append(p.unasked, e)
		}
	}
	if r.decision.More || len(p.left) > 0 {
		return
	}
	list := p.unasked
	p.unasked = nil
	if e := p.entries[p.made]; e != nil && (e.starts || e.at > 0 && e.at <= r.snap.Now.Add(p.ground.grace)+1) {
		return // the room that was made last is not taken yet: where, is not settled before that
	}
	if every := cluster.Instant(askAgain); r.snap.Now-p.asked >= every {
		p.asked, list = r.snap.Now, make([]*entry, 0, len(p.entries))
		for _, e := range p.entries {
			list = append(list, e)
		}
	}
	var asking []*entry
	for _, e := range list {
		if p.wouldAsk(r, e) {
			asking = append(asking, e)
		}
	}
	slices.SortFunc(asking, func(a, b *entry) int { return a.rank.compare(&b.rank) })
	if len(asking) == 0 {
		return
	}
	shot := p.decided(r)
	tried := map[*requestClass]bool{}
	for _, e := range asking {
		if tried[e.class] {
			continue
		}
		if len(tried) == maxAsking {
			return
		}
		tried[e.class] = true
		if q, ok := p.planPreemption(r, shot, e); ok {
			r.decision.Preempt = append(r.decision.Preempt, q)
			p.preemptingFor, p.made = e.job.ID, e.job.ID
			return
		}
	}
}

// wouldAsk reports whether a job may preempt others, waits for longer than it takes them to
// leave, and no limit keeps it from using what they have.
func (p *Planner) wouldAsk(r *pass, e *entry) bool {
	if len(p.ground.qos[e.job.Spec.QOS].Preempts) == 0 || p.ground.lowered.by(e.job.Spec) != "" {
		return false
	}
	waits := !e.gone && !e.starts && p.entries[e.job.ID] == e && e.class != nil && e.kept == nil
	if !waits || e.at > 0 && e.at <= r.snap.Now.Add(p.ground.grace+worthIt) {
		return false
	}
	if _, limited := r.limits.bar(e.job); limited {
		return false
	}
	_, away := p.promisedAway(r, e.job)
	return !away || e.promised
}

// decided returns the snapshot as it will be once the decisions of the pass so far are committed:
// with its starts and the current promises.
func (p *Planner) decided(r *pass) *cluster.Snapshot {
	shot := *r.snap
	shot.Active, shot.Pending = slices.Clone(r.jobs.active), make([]*cluster.Job, 0, len(r.jobs.pending))
	starts := make(map[cluster.JobID]*cluster.PlannedStart, len(r.decision.Plan.Starts))
	for i := range r.decision.Plan.Starts {
		starts[r.decision.Plan.Starts[i].Job] = &r.decision.Plan.Starts[i]
	}
	for _, j := range r.jobs.pending {
		job := *j
		if s := starts[j.ID]; s != nil {
			job.State, job.Attempt, job.Started = cluster.Configuring, s.Attempt, r.snap.Now
			job.Alloc, job.Promise = &cluster.Allocation{Nodes: s.Placement.Nodes}, nil
			shot.Active = append(shot.Active, &job)
			continue
		}
		if job.Promise = nil; p.entries[j.ID] != nil && p.entries[j.ID].promised {
			job.Promise = p.promiseOf(p.entries[j.ID])
		}
		shot.Pending = append(shot.Pending, &job)
	}
	return &shot
}

// planPreemption finds who could make room for a job. The trial has all that goes before the job
// and every promise, as they are in a snapshot; the job has to fit with them from when the
// victims are gone.
func (p *Planner) planPreemption(r *pass, shot *cluster.Snapshot, e *entry) (PreemptRequest, bool) {
	list := p.mayEvict(r, e.job)
	if len(list) == 0 {
		return PreemptRequest{}, false
	}
	t := newTrial(shot, e.job, p.before(r, e.job), true)
	c := t.class(e.job.Spec)
	if len(c.options) == 0 {
		return PreemptRequest{}, false
	}
	m := &preemptTrial{whatIf: t, class: c, at: r.snap.Now.Add(p.ground.grace), gone: map[cluster.JobID]bool{}}
	m.sort(list)
	if !m.enough(list) {
		return PreemptRequest{}, false
	}
	q := PreemptRequest{
		Job: e.job.ID, Partition: c.options[m.choice/2].part.Name, Candidates: list, Enough: m.enough,
	}
	for _, s := range m.start.Shares {
		q.Hosts = append(q.Hosts, cluster.NodeShare{Node: t.p.ground.hosts[s.Host].Name, GPUs: s.GPUs})
	}
	return q, true
}

// mayEvict is the jobs that the QOS of a job may preempt and that would stay longer
// than it takes to end them.
func (p *Planner) mayEvict(r *pass, job *cluster.Job) []Candidate {
	var list []Candidate
	for _, v := range r.jobs.active {
		if !r.snap.Policy.MayPreempt(job.Spec.QOS, v.Spec.QOS) || v.Alloc == nil || v.State == cluster.Completing {
			continue
		}
		if p.ground.end(r.snap.Now, v) <= r.snap.Now.Add(p.ground.grace) {
			continue
		}
		c := Candidate{Job: v.ID, Attempt: v.Attempt, Tier: p.ground.qos[v.Spec.QOS].Tier, Started: v.Started}
		for i := range v.Alloc.Nodes {
			c.GPUs += int32(len(v.Alloc.Nodes[i].GPUs))
		}
		list = append(list, c)
	}
	return list
}

// preemptTrial is a trial in which some of those who may be evicted are gone.
type preemptTrial struct {
	*whatIf
	class  *requestClass
	at     cluster.Instant // from when on what they had is free
	gone   map[cluster.JobID]bool
	start  backfill.Start // that was found last
	choice int
}

// enough reports whether the job could start if exactly these were gone.
func (m *preemptTrial) enough(gone []Candidate) bool {
	want := make(map[cluster.JobID]bool, len(gone))
	for _, c := range gone {
		want[c.Job] = true
		if t := m.p.tenants[c.Job]; t != nil && !m.gone[c.Job] && t.until > m.at {
			m.gone[c.Job] = true
			m.p.leave(t, m.at, t.until)
		}
	}
	for id := range m.gone {
		if t := m.p.tenants[id]; !want[id] {
			delete(m.gone, id)
			m.p.hold(t, m.at, t.until)
		}
	}
	s, choice, ok := m.p.find(m.class, m.at, m.at+1, (*backfill.Profile).Search)
	if ok {
		m.start, m.choice = s, choice
	}
	return ok
}

// sort puts those first whose tier is lowest, then those on the node where the fewest
// have to go, then the youngest.
func (m *preemptTrial) sort(list []Candidate) {
	on := map[int][]Candidate{}
	for _, c := range list {
		if t := m.p.tenants[c.Job]; t != nil {
			for _, h := range t.hosts {
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

// cost is how many of the candidates on a host have to go at least so that it can be
// one of the job's, by their GPUs, CPUs and memory together; more than there are when
// not even all would do.
func (m *preemptTrial) cost(h int, list []Candidate) int {
	const every = backfill.Lanes(0x7f7f7f7f7f7f7f7f)
	free := m.p.profile.Row(h).Free(m.r.snap.Now)
	q := &m.class.spec.Request
	rule, size := q.MemoryRule(), m.p.profile.Host(h).Size
	gpus := max(q.GPUsPerNode, min(1, q.GPUs))
	enough := func() bool {
		return free.GPUs.Sum(every) >= gpus && free.CPUs >= q.CPUsPerNode() && free.Memory >= rule.On(size, gpus)
	}
	largest := slices.Clone(list)
	slices.SortFunc(largest, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(b.Started, a.Started), cmp.Compare(b.Job, a.Job))
	})
	for n, c := range largest {
		if enough() {
			return n
		}
		t := m.p.tenants[c.Job]
		for i, host := range t.hosts {
			if host == h {
				free.GPUs += t.amounts[i].GPUs
				free.CPUs += t.amounts[i].CPUs
				free.Memory += t.amounts[i].Memory
			}
		}
	}
	if enough() {
		return len(largest)
	}
	return len(largest) + 1
}

// planPreemptor plans the job for which room was made, before what became free is offered to
// anybody else: the trial has found that this delays no promise and nobody ahead.
func (p *Planner) planPreemptor(r *pass, id cluster.JobID) {
	e := p.entries[id]
	soon := r.snap.Now.Add(p.ground.grace) + 1
	if e == nil || e.class == nil || e.kept != nil {
		return
	}
	if e.at > 0 && e.at >= soon {
		p.bringForward(r, e)
	} else if s, choice, ok := p.find(e.class, r.snap.Now, soon, (*backfill.Profile).Earliest); e.at == 0 && ok {
		p.book(e, s, choice)
	}
	if e.at > 0 && e.at < soon && p.mayPromise(r, e.job) {
		p.reserve(r, e) // whatever starts until it can
	}
}

// madeFor is the job for which resources were freed that it has not used yet; 0 if there is none.
func (p *Planner) madeFor(r *pass) cluster.JobID {
	if e := p.entries[p.made]; p.preemptingFor == 0 && (e == nil || e.starts || e.at == 0 || e.at > r.snap.Now.Add(p.ground.grace+Leeway)) {
		return 0
	}
	return p.made
}
