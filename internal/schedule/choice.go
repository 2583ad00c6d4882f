package schedule

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/internal/schedule/victims"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxWait is how long a preemptor waits at most for the start that a cheaper, exempt victim allows.
const maxWait = 5 * time.Minute

// requestFor returns the request of a job, if others can make enough room for it. The trial has all jobs ahead of
// the job and every promise, as they are in the snapshot; the job has to fit with them once the victims have ended.
// If less is lost when the job waits for the end of an exemption, it requests nothing and returns that instant.
func requestFor(c *plan.Pass, shot *cluster.Snapshot, job *cluster.Job, list []Candidate) (q PreemptRequest, again cluster.Instant, ok bool) {
	now := c.Snap.Now
	list = slices.DeleteFunc(slices.Clone(list), func(x Candidate) bool { return x.From > max(now, now.Add(maxWait-x.Grace)) })
	last := lastGone(now, list)
	if e := c.Entry(job.ID); len(list) == 0 || e != nil && e.At > 0 && e.At <= last {
		return q, 0, false
	}
	t := plan.NewTrial(shot, job, c.Ahead(job), true)
	m := &preemptTrial{Trial: t, class: t.ClassOf(job.ID, job.Spec), gone: map[cluster.JobID]bool{}}
	if len(m.class.Options) == 0 {
		return q, 0, false
	}
	for _, at := range instants(c, last) {
		// What the last try removed is free from its instant on.
		m.remove(nil)
		if m.at = at; m.at > last && m.enough(nil) { // extra nodes alone are enough
			return q, 0, false
		}
		gone, until := m.chooseNow(list)
		if until > now {
			return q, until, false
		}
		if len(gone) == 0 {
			continue
		}
		m.enough(gone)
		q = PreemptRequest{Job: job.ID, Victims: gone}
		for _, s := range m.start.Shares {
			q.Hosts = append(q.Hosts, cluster.NodeShare{Node: t.Resources().Hosts[s.Host].Name, GPUs: s.GPUs})
		}
		return q, 0, true
	}
	return q, 0, false
}

// instants returns from when on the job could start: first with the extra nodes of jobs that go on, which are reclaimed
// instead of ending more jobs, and then before these could be free.
func instants(c *plan.Pass, last cluster.Instant) []cluster.Instant {
	if with := c.Reclaimed(); with > last {
		return []cluster.Instant{with, last}
	}
	return []cluster.Instant{last}
}

// chooseNow returns the candidates that have to end, without exempt ones. If less is lost when the job waits for the end
// of an exemption, it returns that instant.
func (m *preemptTrial) chooseNow(list []Candidate) (gone []Candidate, until cluster.Instant) {
	now := m.Snap.Now
	gone = m.choose(slices.Clone(list))
	if until = lastExempt(gone); until <= now {
		return gone, 0
	}
	able := m.choose(slices.DeleteFunc(slices.Clone(list), func(x Candidate) bool { return x.From > now }))
	if len(able) == 0 || highestTier(gone) < highestTier(able) || sum(gone).Loss < sum(able).Loss {
		return nil, until
	}
	return able, 0
}

// lastGone returns the instant from which on none of the candidates has its nodes, if all end now.
func lastGone(now cluster.Instant, list []Candidate) cluster.Instant {
	last := now
	for i := range list {
		last = max(last, now.Add(list[i].Grace))
	}
	return last
}

// lastExempt returns the instant from which on all of the candidates may be preempted.
func lastExempt(list []Candidate) (last cluster.Instant) {
	for i := range list {
		last = max(last, list[i].From)
	}
	return last
}

// sum returns the cost of all candidates.
func sum(list []Candidate) (all victims.Cost) {
	for i := range list {
		all = all.Plus(list[i].Cost)
	}
	return all
}

// highestTier returns the highest tier of the candidates.
func highestTier(list []Candidate) int32 {
	return slices.MaxFunc(list, func(a, b Candidate) int { return cmp.Compare(a.Tier, b.Tier) }).Tier
}

// preemptTrial is a trial without some of the candidates.
type preemptTrial struct {
	*plan.Trial
	class *plan.Class
	at    cluster.Instant // from when on what they had is free
	gone  map[cluster.JobID]bool
	start backfill.Start // the last one found
}

// choose returns the candidates that have to end so that the job can start: their highest tier is as low as
// possible, and then the least work is lost. None when the job could not start even without all of them.
func (m *preemptTrial) choose(list []Candidate) []Candidate {
	slices.SortFunc(list, func(a, b Candidate) int { return cmp.Or(cmp.Compare(a.Tier, b.Tier), compare(a, b)) })
	for n := range list {
		if n+1 < len(list) && list[n+1].Tier == list[n].Tier {
			continue
		}
		if gone := m.chooseFrom(list[: n+1 : n+1]); len(gone) > 0 {
			return gone
		}
	}
	return nil
}

// compare compares candidates by cost.
func compare(a, b Candidate) int { return cmp.Or(a.Cost.Compare(b.Cost), cmp.Compare(a.Job, b.Job)) }

// chooseFrom returns those of the candidates that lose the least work. It verifies sets that amounts by host
// suggest, and searches itself when none of these is enough: amounts are not plans.
func (m *preemptTrial) chooseFrom(list []Candidate) []Candidate {
	problems := m.problems(list)
	var proposals []victims.Proposal
	for i := range problems {
		proposals = append(proposals, victims.Propose(&problems[i])...)
	}
	if len(proposals) == 0 {
		return nil
	}
	slices.SortStableFunc(proposals, func(a, b victims.Proposal) int { return a.Cost.Compare(b.Cost) })
	for _, p := range proposals {
		gone := make([]Candidate, 0, len(p.Victims))
		for _, v := range p.Victims {
			gone = append(gone, list[v])
		}
		if len(gone) > 0 && m.enough(gone) {
			return gone
		}
	}
	if !m.enough(list) {
		return nil
	}
	return m.search(problems, list)
}

// problems returns the choice of victims in amounts by host, for each way to serve the class.
func (m *preemptTrial) problems(list []Candidate) []victims.Problem {
	m.remove(nil)
	b := m.Bookings()
	lasts := m.Resources().HoldTime(m.Job.Spec)
	free, limit := make([]backfill.Amount, b.Profile.Hosts()), make([]backfill.Amount, b.Profile.Hosts())
	able, rows := make([]victims.Victim, len(list)), map[int]*backfill.Row{}
	for i := range list {
		able[i].Cost = list[i].Cost
		for _, part := range m.Running().Job(list[i].Job).Parts() {
			if part.Until <= m.at {
				continue // free by then anyway
			}
			able[i].Hosts, able[i].Amounts = append(able[i].Hosts, part.Hosts...), append(able[i].Amounts, part.Amounts...)
			for n, h := range part.Hosts {
				if rows[h] == nil {
					row := b.Profile.Row(h).Clone()
					rows[h] = &row
				}
				rows[h].Release(m.at, part.Until, &part.Amounts[n])
			}
		}
	}
	for h := range free {
		row := b.Profile.Row(h)
		free[h], limit[h] = row.Free(m.at), row.Window(m.at, m.at.Add(lasts))
		if rows[h] != nil {
			limit[h] = rows[h].Window(m.at, m.at.Add(lasts))
		}
	}
	var problems []victims.Problem
	for i := range m.class.Options {
		for _, need := range b.Profile.Fittings(m.class.Options[i].Loosest()) {
			problems = append(problems, victims.Problem{Need: need, Free: free, Limit: limit, Victims: able})
		}
	}
	return problems
}

// search finds victims by trials alone: of the candidates on the cheapest hosts as few as suffice, without those
// that the job can do without, the most expensive first. All candidates have to be enough.
// O((log candidates + victims) searches).
func (m *preemptTrial) search(problems []victims.Problem, list []Candidate) []Candidate {
	type place struct {
		cost victims.Cost
		host int
	}
	best := map[cluster.JobID]place{}
	for i := range problems {
		costs, can := victims.HostCosts(&problems[i])
		for v := range list {
			for _, h := range problems[i].Victims[v].Hosts {
				if b, known := best[list[v].Job]; can[h] && (!known || costs[h].Compare(b.cost) < 0) {
					best[list[v].Job] = place{costs[h], h}
				}
			}
		}
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Candidate) int {
		x, onX := best[a.Job]
		y, onY := best[b.Job]
		if onX != onY {
			return map[bool]int{true: -1, false: 1}[onX]
		}
		return cmp.Or(x.cost.Compare(y.cost), cmp.Compare(x.host, y.host), compare(a, b))
	})
	gone := list[:sort.Search(len(list), func(n int) bool { return m.enough(list[:n]) })]
	for _, c := range slices.SortedFunc(slices.Values(gone), func(a, b Candidate) int { return compare(b, a) }) {
		i := slices.Index(gone, c)
		if fewer := slices.Delete(slices.Clone(gone), i, i+1); m.enough(fewer) {
			gone = fewer
		}
	}
	return gone
}

// enough reports whether the job could start without exactly these candidates.
func (m *preemptTrial) enough(gone []Candidate) bool {
	m.remove(gone)
	s, _, ok := m.Bookings().Find(m.class, m.at, m.at+1)
	if ok {
		m.start = s
	}
	return ok
}

// remove removes exactly these candidates from the trial.
func (m *preemptTrial) remove(gone []Candidate) {
	want := make(map[cluster.JobID]bool, len(gone))
	for _, c := range gone {
		want[c.Job] = true
		if t := m.Running().Job(c.Job); t != nil && !m.gone[c.Job] && t.Until > m.at {
			m.gone[c.Job] = true
			for _, part := range t.Parts() {
				m.Running().Release(part, m.at, part.Until)
			}
		}
	}
	for id := range m.gone {
		if t := m.Running().Job(id); !want[id] {
			delete(m.gone, id)
			for _, part := range t.Parts() {
				m.Running().Hold(part, m.at, part.Until)
			}
		}
	}
}
