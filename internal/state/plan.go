package state

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// commit carries out a plan. The plan was computed from an older state, so every start is checked
// against the present one, including the starts before it in the plan. A start that does not fit is
// left out alone. O((starts + verdicts) log n).
func (s *State) commit(c *command.CommitPlan) command.Result {
	s.rebuildPartitionIndex()
	answer := &command.Committed{}
	lent, allowed := licences{s: s}, limitChecker{s: s, plan: &c.Plan}
	for i := range c.Plan.Starts {
		p := &c.Plan.Starts[i]
		j, _ := s.pending.Get(p.Job)
		why := s.stale(p, &c.Plan)
		if why == "" {
			why = lent.short(j)
		}
		if why == "" {
			why = allowed.over(sized(j, p))
		}
		if why == "" {
			why = s.renewLien(p)
		}
		if why != "" {
			answer.Stale = append(answer.Stale, command.Stale{Job: p.Job, Why: why})
			continue
		}
		s.start(p)
		lent.take(j)
		allowed.take(sized(j, p))
		answer.Started = append(answer.Started, p.Job)
	}
	var preemptors []cluster.JobID
	for i := range c.Plan.Evictions {
		e := &c.Plan.Evictions[i]
		if why := s.evict(e); why != "" {
			answer.Stale = append(answer.Stale, command.Stale{Job: e.Job, Why: why})
			continue
		}
		preemptors = append(preemptors, e.For)
	}
	for i := range c.Plan.Reclaims {
		if why := s.reclaim(&c.Plan.Reclaims[i]); why != "" {
			answer.Stale = append(answer.Stale, command.Stale{Job: c.Plan.Reclaims[i].Job, Why: why})
		}
	}
	for i := range c.Plan.Grants {
		if why := s.grant(&c.Plan.Grants[i], &c.Plan, &allowed); why != "" {
			answer.Stale = append(answer.Stale, command.Stale{Job: c.Plan.Grants[i].Job, Why: why})
		}
	}
	for i := range c.Plan.Launches {
		why := "a plan leases nodes for one job only"
		if i == 0 {
			why = s.launch(&c.Plan.Launches[i], c.Plan.Index)
		}
		if why != "" {
			answer.Stale = append(answer.Stale, command.Stale{Job: c.Plan.Launches[i].Job, Why: why})
		}
	}
	for _, v := range c.Plan.Verdicts {
		s.setPendingReason(v, c.Plan.Index)
	}
	for _, id := range preemptors { // last: verdicts are for unchanged jobs only
		s.markPreemptor(id)
	}
	return answer
}

// sized returns a job with the number of nodes of its start, if that is not the one that it requests.
func sized(j *cluster.Job, p *cluster.PlannedStart) *cluster.Job {
	spec := j.Spec.OnNodes(int32(len(p.Placement.Nodes)))
	if spec == j.Spec {
		return j
	}
	c := *j
	c.Spec = spec
	return &c
}

// start grants a job its placement.
func (s *State) start(p *cluster.PlannedStart) {
	old, _ := s.pending.Get(p.Job)
	j := *old
	s.step(&j, cluster.Start)
	j.Attempt, j.Partition = p.Attempt, s.partitionOf(old, p)
	j.Alloc = &cluster.Allocation{Nodes: p.Placement.Nodes}
	if j.Spec.Request.Exclusive {
		j.Alloc.Nodes = s.whole(p.Placement.Nodes)
	}
	tasks := make([]cluster.Task, len(j.Alloc.Nodes))
	for i := range j.Alloc.Nodes {
		s.words.share(&j.Alloc.Nodes[i].Node)
		tasks[i].Node = j.Alloc.Nodes[i].Node
	}
	j.Tasks = cluster.NewTasks(tasks...)
	if j.Spec.Elastic.On() {
		j.Members = cluster.NewMembers(len(tasks), hostsOf(j.Alloc.Nodes), s.index, s.now)
	}
	s.words.share(&j.Partition)
	j.Started, j.Granted, j.Planned, j.Resume = s.now, s.index, 0, 0
	if from := j.ResumePoint(); from != nil {
		j.Resume = from.Number
	}
	j.Reason, j.Detail = cluster.ReasonNone, ""
	s.recordPromise(&j)
	s.credits.StartBilling(s.env(), &j, s.granted)
	s.put(old, &j)
}

// whole returns the allocation of an exclusive job: all CPUs and every working GPU of its nodes,
// and the memory that it requests.
func (x *nodeTables) whole(placed []cluster.NodeAllocation) []cluster.NodeAllocation {
	all := slices.Clone(placed)
	for i := range all {
		n, _ := x.nodes.Get(all[i].Node)
		all[i].CPUs, all[i].GPUs = n.CPUs, nil
		for g := range n.GPUs {
			if n.GPUs[g].Fault == "" {
				all[i].GPUs = append(all[i].GPUs, int32(g))
			}
		}
	}
	return all
}

// stale returns why a start does not fit the present state; "" if it does.
func (s *State) stale(p *cluster.PlannedStart, plan *cluster.Plan) string {
	planned := plan.Index
	j, waits := s.pending.Get(p.Job)
	if !waits {
		return "the job is not pending"
	}
	switch {
	case p.Attempt != j.Attempt+1:
		return fmt.Sprintf("attempt %d is not the next one", p.Attempt)
	case j.Hold != cluster.NotHeld:
		return "the job is held"
	case j.Version > planned:
		return "the job was changed since the plan"
	case j.Eligible > s.now:
		return "the job may not start yet"
	case len(j.Unfenced) > 0:
		return "a task of its last attempt may still run on node " + j.Unfenced[0]
	case j.Spec.Deadline > 0 && s.now > lastStart(j.Spec):
		return "the job could not end before its deadline"
	}
	if a, _ := s.arrays.Get(j.Array); j.Array != 0 && j.Spec.ArrayLimit > 0 && a.holding >= j.Spec.ArrayLimit {
		return "the array runs the maximum number of elements"
	}
	if (plan.Policy != s.policy.Version || s.accounts.Version() > planned) && !s.policy.MayUseQOS(s.accounts.Tree(), j.Spec) {
		return "the job may no longer use qos " + j.Spec.QOS
	}
	if why := s.joined(j, planned); why != "" {
		return why
	}
	if why := s.wrongPlace(j, p); why != "" {
		return why
	}
	filter := cluster.NewNodeFilter(&j.Spec.Request)
	filter.Price = func(kind string) int64 { return s.credits.Price(kind, s.now) }
	seen := make(map[string]none, len(p.Placement.Nodes))
	for i := range p.Placement.Nodes {
		a := &p.Placement.Nodes[i]
		if _, duplicate := seen[a.Node]; duplicate {
			return "node " + a.Node + " is named twice"
		}
		seen[a.Node] = none{}
		if why := s.nodeMismatch(j, a, planned); why != "" {
			return why
		}
		if why := s.unsuitable(filter, a); why != "" {
			return why
		}
		if why := s.reservedElsewhere(j, a.Node, plan); why != "" {
			return why
		}
		if why := s.leasedElsewhere(j, a.Node, s.endOf(j)); why != "" {
			return why
		}
	}
	return s.placementMismatch(j, &p.Placement)
}

// wrongPlace returns why the placement does not suit the partition in the plan. If the plan has
// none, it checks the first of the job's partitions that is up.
func (s *State) wrongPlace(j *cluster.Job, p *cluster.PlannedStart) string {
	first := ""
	for _, name := range j.Spec.AllPartitions() {
		if p.Partition != "" && p.Partition != name {
			continue
		}
		why, up := s.wrongIn(j, &p.Placement, name)
		if why == "" {
			return ""
		}
		if up && first == "" {
			first = why
		}
	}
	if first == "" {
		return "the partition is down"
	}
	return first
}

// wrongIn returns why the placement does not suit one of the job's partitions, and whether that
// partition is up.
func (s *State) wrongIn(j *cluster.Job, p *cluster.Placement, name string) (why string, up bool) {
	part, known := s.policy.Partition(name)
	if !known || part.Down {
		return "the partition is down", false
	}
	if most := part.MaxTime; most > 0 && (j.Spec.TimeLimit == 0 || j.Spec.TimeLimit > most) {
		return "the partition does not allow the job's time limit", true
	}
	if !part.Allows(j.Spec.Account) {
		return "the partition does not allow the job's account", true
	}
	if why := part.RefuseShare(j.Spec.Request.Share.Jobs); why != "" {
		return why, true
	}
	if why := wrongSize(j, p, part); why != "" {
		return why, true
	}
	if !s.credits.PaidIn(s.policy, j, name) {
		return "the job's lien does not cover the partition", true
	}
	for i := range p.Nodes {
		if node := p.Nodes[i].Node; !s.partitions.Partition(part.Name).Has(node) {
			return "node " + node + " is not in the partition", true
		}
	}
	return "", true
}

// partitionOf returns the partition of a start that was accepted.
func (s *State) partitionOf(j *cluster.Job, p *cluster.PlannedStart) string {
	if p.Partition != "" {
		return p.Partition
	}
	for _, name := range j.Spec.AllPartitions() {
		if why, _ := s.wrongIn(j, &p.Placement, name); why == "" {
			return name
		}
	}
	return j.Spec.Partition
}

// wrongSize returns what the whole placement lacks for the job.
func wrongSize(j *cluster.Job, p *cluster.Placement, part cluster.Partition) string {
	r := &j.Spec.OnNodes(min(int32(len(p.Nodes)), j.Spec.Request.MaxNodes)).Request
	var gpus int64
	for i := range p.Nodes {
		n := int64(len(p.Nodes[i].GPUs))
		if gpus += n; r.GPUsPerNode > 0 && n < int64(r.GPUsPerNode) {
			return "node " + p.Nodes[i].Node + " provides too few GPUs"
		}
	}
	switch {
	case len(p.Nodes) == 0:
		return "the placement has no node"
	case r.Nodes > 0 && len(p.Nodes) != int(r.Nodes), r.Nodes < j.Spec.Request.Nodes:
		return fmt.Sprintf("the placement has %d nodes, not %d", len(p.Nodes), j.Spec.Request.Nodes)
	case j.Spec.Elastic.On() && (r.Nodes-j.Spec.Request.Nodes)%j.Spec.Elastic.Step != 0:
		return fmt.Sprintf("%d nodes beyond the minimum are no multiple of %d", r.Nodes-j.Spec.Request.Nodes, j.Spec.Elastic.Step)
	case part.MaxNodes > 0 && len(p.Nodes) > int(part.MaxNodes):
		return "the placement has more nodes than the partition allows"
	case gpus < int64(r.TotalGPUs()):
		return fmt.Sprintf("the placement has %d GPUs, not %d", gpus, r.TotalGPUs())
	}
	return ""
}

// nodeMismatch returns why a node cannot provide its part of the placement now.
func (x *nodeTables) nodeMismatch(j *cluster.Job, a *cluster.NodeAllocation, planned uint64) string {
	n, known := x.nodes.Get(a.Node)
	switch {
	case !known:
		return "node " + a.Node + " is gone"
	case !n.Usable():
		return "node " + a.Node + " does not accept jobs now"
	case j.Spec.Request.NeedsSeveral() && n.Degraded() != "":
		return "node " + a.Node + " accepts no jobs of several nodes now"
	case n.Epoch > planned:
		return "node " + a.Node + " was restarted since the plan"
	}
	u, _ := x.uses.Get(a.Node)
	switch {
	case u.Whole:
		return "node " + a.Node + " is allocated exclusively"
	case j.Spec.Request.Exclusive && u.Jobs > 0:
		return "node " + a.Node + " is not empty"
	case a.CPUs < j.Spec.Request.CPUsPerNode() || a.CPUs > n.CPUs-u.CPUs:
		return "node " + a.Node + " has too few CPUs free"
	case a.Memory < j.Spec.Request.MemoryRule().On(n.Size(), int32(len(a.GPUs))) || a.Memory > n.Memory-u.Memory:
		return "node " + a.Node + " has too little memory free"
	}
	for _, g := range j.Spec.Request.Gres {
		if cluster.CountGres(n.Gres, &g)-cluster.CountGres(u.Gres, &cluster.Gres{Name: g.Name}) < g.Count {
			return fmt.Sprintf("node %s has too few %s free", a.Node, g.Name)
		}
	}
	by, shares := j.Spec.Sharers()
	last := int32(-1)
	for _, g := range a.GPUs {
		switch {
		case g <= last || int(g) >= len(n.GPUs):
			return fmt.Sprintf("node %s has no GPU %d, or the GPUs are not sorted", a.Node, g)
		case int(g) < len(u.GPUs) && u.GPUs[g] && !(shares && u.SharedGPU(g).Admits(by)):
			return fmt.Sprintf("GPU %d of node %s is in use", g, a.Node)
		case n.GPUs[g].Fault != "":
			return fmt.Sprintf("GPU %d of node %s is faulty", g, a.Node)
		}
		last = g
	}
	return ""
}

// setPendingReason records why a job is still pending. A verdict on a job that changed since the
// plan was computed is void; the next pass computes another. So is a verdict that delays a promise
// without a cause.
func (s *State) setPendingReason(v cluster.Verdict, planned uint64) {
	old, waits := s.pending.Get(v.Job)
	if !waits || old.Version > planned || old.Hold != cluster.NotHeld {
		return
	}
	if was := old.Promise; was != nil && v.Broken == "" && (v.Promise == nil || v.Promise.At > was.At) {
		return
	}
	if v.Broken == "" && old.Reason == v.Reason && old.Detail == v.Detail && old.Planned == v.Planned && samePromise(old.Promise, v.Promise) {
		return
	}
	j := *old
	j.Reason, j.Detail, j.Planned, j.Promise = v.Reason, v.Detail, v.Planned, v.Promise
	j.History = cluster.AppendNote(old.History, cluster.Note{
		Index: s.index, At: s.now, Reason: v.Reason, Planned: v.Planned, Promised: v.Promise != nil, Broken: v.Broken,
	})
	s.put(old, &j)
}

func samePromise(a, b *cluster.Promise) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.At == b.At && a.Partition == b.Partition && a.Kind == b.Kind && slices.Equal(a.Hosts, b.Hosts)
}

// recordPromise records the outcome of a promise when its job starts.
func (s *State) recordPromise(j *cluster.Job) {
	if j.Promise == nil {
		return
	}
	n := cluster.Note{Index: s.index, At: s.now, Planned: s.now, Promised: true}
	if s.now > j.Promise.At.Add(cluster.Late) {
		n.Broken = "it started " + cluster.FormatElapsed(s.now.Sub(j.Promise.At)) + " late"
	}
	j.History = cluster.AppendNote(j.History, n)
	j.Promise = nil
}

// recordHold records that a job is held, and so has no promise any longer.
func (s *State) recordHold(j *cluster.Job) {
	n := cluster.Note{Index: s.index, At: s.now, Reason: j.Reason}
	if j.Promise != nil {
		n.Broken, j.Promise = j.Detail, nil
	}
	j.History = cluster.AppendNote(j.History, n)
}
