package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// An extra node of an elastic job counts as occupied only until it could be free if it were reclaimed now. So jobs are
// planned there as on nodes that become free soon, and before that no job is preempted. A pass reclaims extra nodes
// for the starts that are planned as soon as that, and grants what is idle and in no plan for a while.

// reclaimAhead is how much earlier than needed an extra node is reclaimed: a pass may come late.
const reclaimAhead = 2 * slack

// memberNode is what an elastic job has of an extra node, or of one that leaves it: a job of one node for the profile.
type memberNode struct {
	*RunningJob
	rank int
}

// newMembers describes the extra and leaving nodes of a job, and returns the others.
func (t *Running) newMembers(now cluster.Instant, job *cluster.Job, j *RunningJob) []cluster.NodeAllocation {
	if job.Members == nil || job.State == cluster.Completing {
		return job.Alloc.Nodes
	}
	extra := job.ExtraRanks()
	var own []cluster.NodeAllocation
	for rank, a := range job.Alloc.Nodes {
		if !job.Leaving(rank) && !slices.Contains(extra, rank) {
			own = append(own, a)
			continue
		}
		m := &RunningJob{job: job, alloc: &cluster.Allocation{Nodes: []cluster.NodeAllocation{a}}}
		t.describe(m, m.alloc.Nodes)
		m.Until = t.memberEnd(now, job, rank)
		if at, promised := t.promisedAt[a.Node]; promised && !job.Leaving(rank) {
			m.Until = max(now+1, min(m.Until, at)) // a late pass breaks no promise
		}
		j.members = append(j.members, memberNode{m, rank})
	}
	return own
}

// memberEnd returns until when an extra or leaving node counts as occupied. A job that is being preempted keeps its extra
// nodes until it ends: it may save a checkpoint.
func (t *Running) memberEnd(now cluster.Instant, job *cluster.Job, rank int) cluster.Instant {
	end := t.res.End(now, job)
	switch {
	case job.Leaving(rank):
		return min(end, overdue(now, job.Members.List[rank].Leaves.Add(t.res.Grace-slack)))
	case job.Preempting != nil:
		return end
	}
	return min(end, now.Add(t.res.Lead))
}

// Parts returns what a job has on its nodes: first on those that it keeps.
func (j *RunningJob) Parts() []*RunningJob {
	parts := []*RunningJob{j}
	for _, m := range j.members {
		parts = append(parts, m.RunningJob)
	}
	return parts
}

// promisedNodes returns from when on nodes are promised to pending jobs.
func promisedNodes(pending []*cluster.Job) map[string]cluster.Instant {
	at := map[string]cluster.Instant{}
	for _, job := range pending {
		if job.Promise == nil {
			continue
		}
		for _, share := range job.Promise.Hosts {
			if first, known := at[share.Node]; !known || job.Promise.At < first {
				at[share.Node] = job.Promise.At
			}
		}
	}
	return at
}

// extendMembers moves the end of extra and leaving nodes: the former until they could be free if they were reclaimed
// now, or until another job is planned there.
func (d *delta) extendMembers() {
	for _, j := range d.running.elastic {
		for _, m := range j.members {
			end := d.running.memberEnd(d.Snap.Now, j.job, m.rank)
			if end > m.Until && !j.job.Leaving(m.rank) {
				end = d.running.freeUntil(m.RunningJob, m.Until, end)
			}
			if end < m.Until {
				d.freeRunning(m.RunningJob)
				d.running.Release(m.RunningJob, end, m.Until)
			} else if end > m.Until {
				d.late = d.late || d.running.overlapsPlan(m.RunningJob, m.Until, end)
				if d.late {
					return
				}
				d.running.Hold(m.RunningJob, m.Until, end)
			}
			m.Until = end
			d.late = d.late || end <= d.Snap.Now
		}
	}
}

// freeUntil returns the first instant of an interval at which another job is planned where a job is; its end if none is.
func (t *Running) freeUntil(j *RunningJob, from, to cluster.Instant) cluster.Instant {
	for i, h := range j.Hosts {
		for s := range t.profile.Row(h).Steps(from, to) {
			if !s.Free.Covers(&j.Amounts[i]) {
				to = min(to, s.From)
				break
			}
		}
	}
	return max(from, to)
}

// extraNode is a host that an elastic job has as an extra node.
type extraNode struct {
	job  *cluster.Job
	rank int
	host int
	tier int32

	amount backfill.Amount
	until  cluster.Instant // how long the profile has it
}

// compareExtraNodes orders extra nodes by how long they are kept: those of the highest tier, and of the oldest grants,
// first.
func compareExtraNodes(a, b *extraNode) int {
	return cmp.Or(cmp.Compare(b.tier, a.tier), cmp.Compare(a.job.Members.List[a.rank].Granted, b.job.Members.List[b.rank].Granted),
		cmp.Compare(a.job.ID, b.job.ID), cmp.Compare(a.rank, b.rank))
}

// extraNodes returns the extra nodes that stay, in the order of compareExtraNodes, without those of jobs that are being
// preempted. O(extra nodes log extra nodes).
func (p *Pass) extraNodes() (list []*extraNode) {
	for _, j := range p.running.elastic {
		if j.job.Preempting != nil {
			continue
		}
		for _, m := range j.members {
			if j.job.Leaving(m.rank) || len(m.Hosts) == 0 {
				continue
			}
			for i, h := range m.Hosts {
				list = append(list, &extraNode{j.job, m.rank, h, p.res.QOS[j.job.Spec.QOS].Tier, m.Amounts[i], m.Until})
			}
		}
	}
	slices.SortFunc(list, compareExtraNodes)
	return list
}

// Reclaim returns the extra nodes to reclaim now: those that jobs need which are planned to start as soon as the nodes
// can be free, the lowest tier and the youngest grant first where there is a choice, those that a reservation needs by then,
// and those that an operator drains.
func (p *Pass) Reclaim() (list []cluster.Reclaim) {
	if len(p.running.elastic) == 0 {
		return nil
	}
	extra := p.extraNodes()
	due := p.Snap.Now.Add(p.res.Lead + reclaimAhead)
	var starts []*Entry
	for _, x := range extra {
		for _, e := range p.bookings.byHost[x.host] {
			if e.At <= due && !e.Starting && !slices.Contains(starts, e) {
				starts = append(starts, e)
			}
		}
	}
	slices.SortFunc(starts, compareRanks)
	for _, e := range starts {
		p.spareExtra(e, extra)
	}
	needed := p.neededByStarts(starts, extra)
	reserved := reservedNodes(p.Snap)
	for _, j := range p.running.elastic {
		nodes := p.drainedExtra(j, p.neededByReservation(j, reserved, due))
		var by cluster.JobID
		for _, n := range needed {
			if n.job == j.job {
				by = cmp.Or(by, n.by)
				if !slices.Contains(nodes, n.node()) {
					nodes = append(nodes, n.node())
				}
			}
		}
		if len(nodes) > 0 {
			nodes = wholeSteps(j.job, nodes, extra)
			list = append(list, cluster.Reclaim{Job: j.job.ID, Attempt: j.job.Attempt, Epoch: j.job.Members.Epoch, Nodes: nodes, For: by})
		}
	}
	slices.SortFunc(list, func(a, b cluster.Reclaim) int { return cmp.Compare(a.Job, b.Job) })
	return list
}

// reservedNode is a reservation with its nodes.
type reservedNode struct {
	*cluster.Reservation
	nodes cluster.NodeNames
}

// reservedNodes returns the reservations that have not ended; the one that has a node first comes first.
func reservedNodes(snap *cluster.Snapshot) (list []reservedNode) {
	for _, x := range ReservationsOf(snap) {
		if x.End > snap.Now {
			list = append(list, reservedNode{x, cluster.ParseNodeNames(x.Nodes)})
		}
	}
	return list
}

// reservedFrom returns when the first reservation that keeps a node from a job begins; [cluster.Never] if none does.
func reservedFrom(list []reservedNode, spec *cluster.JobSpec, node string) cluster.Instant {
	at := cluster.Never
	for i := range list {
		if list[i].Name == spec.Reservation {
			break
		}
		if list[i].nodes.Has(node) {
			at = min(at, list[i].Start)
		}
	}
	return at
}

// neededByReservation returns the extra nodes of a job, usable or not, that a reservation of others has by an instant,
// and before the job is expected to end. O(extra nodes × reservations).
func (p *Pass) neededByReservation(j *RunningJob, reserved []reservedNode, due cluster.Instant) (nodes []string) {
	for _, m := range j.members {
		node := m.alloc.Nodes[0].Node
		if at := reservedFrom(reserved, j.job.Spec, node); at <= due && at < p.res.End(p.Snap.Now, j.job) && !j.job.Leaving(m.rank) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// drainedExtra adds the extra nodes of a job that are drained by an operator, or to reboot. O(extra nodes × log nodes).
func (p *Pass) drainedExtra(j *RunningJob, nodes []string) []string {
	for _, m := range j.members {
		name := m.alloc.Nodes[0].Node
		at, known := slices.BinarySearchFunc(p.Snap.Nodes, name, func(n *cluster.Node, name string) int { return strings.Compare(n.Name, name) })
		if known && p.Snap.Nodes[at].DrainedByOperator() && !j.job.Leaving(m.rank) && j.job.Preempting == nil && !slices.Contains(nodes, name) {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

func (x *extraNode) node() string { return x.job.Alloc.Nodes[x.rank].Node }

// neededExtra is an extra node that a job needs.
type neededExtra struct {
	*extraNode
	by cluster.JobID
}

// neededByStarts returns the extra nodes that have to leave before starts, by the first start that needs each.
func (p *Pass) neededByStarts(starts []*Entry, extra []*extraNode) (list []neededExtra) {
	starts = slices.Clone(starts)
	slices.SortStableFunc(starts, func(a, b *Entry) int { return cmp.Compare(a.At, b.At) })
	for _, e := range starts {
		for _, x := range p.displaced(e, extra) {
			if !slices.ContainsFunc(list, func(n neededExtra) bool { return n.extraNode == x }) {
				list = append(list, neededExtra{x, e.Job.ID})
			}
		}
	}
	return list
}

// displaced returns the extra nodes, in the order of compareExtraNodes, whose jobs cannot keep them when a start has taken what it
// needs. O(hosts of the start × extra nodes).
func (p *Pass) displaced(e *Entry, extra []*extraNode) (list []*extraNode) {
	if e.At == 0 {
		return nil
	}
	free := map[int]*backfill.Amount{}
	for _, s := range e.Shares {
		amount := p.bookings.Profile.Row(s.Host).Free(e.At)
		free[s.Host] = &amount
	}
	for _, x := range extra {
		if f := free[x.host]; f != nil && x.until > e.At {
			f.Add(&x.amount)
		}
	}
	for _, x := range extra {
		if f := free[x.host]; f != nil && f.Covers(&x.amount) {
			f.Subtract(&x.amount)
		} else if f != nil {
			list = append(list, x)
		}
	}
	return list
}

// wholeSteps adds the youngest other extra nodes of a job, so that it keeps a multiple of its step.
func wholeSteps(job *cluster.Job, nodes []string, extra []*extraNode) []string {
	step := int(job.Spec.Elastic.Step)
	for i := len(extra) - 1; i >= 0 && len(nodes)%step != 0; i-- {
		if x := extra[i]; x.job == job && !slices.Contains(nodes, x.node()) {
			nodes = append(nodes, x.node())
		}
	}
	return nodes
}

// spareExtra moves a start to other hosts at the same time, as far as that spares extra nodes that are to be kept first.
// O(extra nodes of the start × search).
func (p *Pass) spareExtra(e *Entry, extra []*extraNode) {
	var needed []*extraNode
	for i, x := range extra {
		if !slices.Contains(p.displaced(e, extra), x) {
			continue
		}
		var kept []backfill.HostShare
		for _, other := range extra[:i+1] {
			if !slices.Contains(needed, other) {
				kept = append(kept, backfill.HostShare{Host: other.host, Amount: other.amount})
			}
		}
		w := e.Class.want(e.Choice)
		var s backfill.Start
		choice, ok := 0, false
		p.bookings.Profile.Hide(w, e.At, e.Shares)
		p.bookings.Profile.Kept(kept, e.At, e.At.Add(w.Lasts), func() { s, choice, ok = p.bookings.findElsewhere(e) })
		p.bookings.Profile.Show(w, e.At, e.Shares)
		if !ok || choice%2 != e.Choice%2 {
			needed = append(needed, x)
			continue
		}
		p.bookings.rebook(e, s, choice)
		p.markChanged(e)
	}
}

// elasticWake returns when extra nodes have to be reclaimed next, or a job may grow.
func (p *Pass) elasticWake() cluster.Instant {
	at := cluster.Never
	for _, x := range p.extraNodes() {
		for _, e := range p.bookings.byHost[x.host] {
			if take := e.At.Add(-p.res.Lead - reclaimAhead); take > p.Snap.Now {
				at = min(at, take)
			}
		}
	}
	reserved := reservedNodes(p.Snap)
	for _, j := range p.running.elastic {
		for _, m := range j.members {
			from := reservedFrom(reserved, j.job.Spec, m.alloc.Nodes[0].Node)
			if take := from.Add(-p.res.Lead - reclaimAhead); from < cluster.Never && take > p.Snap.Now && !j.job.Leaving(m.rank) {
				at = min(at, take)
			}
		}
		if from := growsFrom(p.Snap.Policy, j.job); from > p.Snap.Now {
			at = min(at, from)
		}
		for i := range j.job.Avoided {
			if until := j.job.Avoided[i].Until; until > p.Snap.Now {
				at = min(at, until)
			}
		}
	}
	return at
}

// growsFrom returns from when on a job may grow after its last change of nodes.
func growsFrom(policy *cluster.Policy, job *cluster.Job) cluster.Instant {
	if job.Members.Resized == 0 {
		return 0
	}
	return job.Members.Resized.Add(policy.Elastic.Interval)
}
