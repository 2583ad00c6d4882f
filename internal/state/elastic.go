package state

import (
	"fmt"
	"maps"
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// The members of an elastic job change in three ways: a plan grants extra nodes, a plan reclaims some, or a node is
// lost. A node that leaves belongs to the job until nothing of it is left there. Each change begins another epoch.

// reclaim has extra nodes leave a job. It returns why not.
func (s *State) reclaim(t *cluster.Reclaim) string {
	old, why := s.findResizable(t.Job, t.Attempt, t.Epoch)
	if why != "" {
		return why
	}
	extra := old.ExtraRanks()
	ranks := make([]int, len(t.Nodes))
	for i, node := range t.Nodes {
		ranks[i] = s.rankOf(old.ID, node)
		if !slices.Contains(extra, ranks[i]) || slices.Contains(ranks[:i], ranks[i]) {
			return fmt.Sprintf("node %s is not an extra node of the job", node)
		}
	}
	j := *old
	s.releaseNodes(&j, ranks, s.now.Add(s.policy.Elastic.Grace), "reclaimed "+s.causeOf(&j, t))
	s.advance(&j, 0) // it may have waited only for what leaves
	s.put(old, &j)
	return ""
}

// causeOf says why nodes leave a job, for its user: for a job, for a reservation, or since one of them is drained.
func (s *State) causeOf(j *cluster.Job, t *cluster.Reclaim) string {
	if t.For != 0 {
		return "for " + s.refFor(j, t.For)
	}
	for _, x := range s.partitions.Reservations() {
		if x.End > s.now && slices.ContainsFunc(t.Nodes, x.Has) {
			return fmt.Sprintf("for reservation %q", x.Name)
		}
	}
	for _, node := range t.Nodes {
		if n, _ := s.nodes.Get(node); n != nil && n.DrainedByOperator() {
			return fmt.Sprintf("since %s is drained: %s", node, n.DrainWhy)
		}
	}
	return "for a reservation"
}

// refFor names a job for the user of another one, as far as that user may know.
func (s *State) refFor(j *cluster.Job, id cluster.JobID) string {
	by, known := s.job(id)
	switch {
	case !known:
		return "job " + id.String()
	case s.policy.Private && by.Spec.Owner.User != j.Spec.Owner.User:
		return "another job"
	}
	return "job " + by.Ref().String()
}

// findResizable returns a job whose nodes a plan changes, if they are still those of the plan; else why not.
func (s *State) findResizable(id cluster.JobID, attempt cluster.Attempt, epoch uint32) (*cluster.Job, string) {
	j, holds := s.holding.Get(id)
	switch {
	case !holds || j.Members == nil || j.State != cluster.Running && j.State != cluster.Configuring:
		return nil, "the job is not running, or not elastic"
	case j.Attempt != attempt:
		return nil, fmt.Sprintf("attempt %d is not the running one", attempt)
	case j.Members.Epoch != epoch:
		return nil, "the nodes of the job have changed since the plan"
	}
	return j, ""
}

// grant gives extra nodes to a job. It returns why not.
func (s *State) grant(g *cluster.NodeGrant, plan *cluster.Plan, allowed *limitChecker) string {
	old, why := s.findResizable(g.Job, g.Attempt, g.Epoch)
	if why == "" {
		why = s.grantMismatch(old, g, plan)
	}
	if why == "" {
		why = allowed.exceededBy(old, int32(len(g.Nodes)))
	}
	if why != "" {
		return why
	}
	j := *old
	nodes := g.Nodes
	if j.Spec.Request.Exclusive {
		nodes = s.whole(nodes)
	}
	tasks := j.Tasks.List()
	nodes = slices.Clone(nodes)
	for i := range nodes {
		s.words.share(&nodes[i].Node)
		tasks = append(tasks, cluster.Task{Node: nodes[i].Node})
	}
	j.Alloc = &cluster.Allocation{Nodes: slices.Concat(old.Alloc.Nodes, nodes)}
	j.Tasks, j.Members = cluster.NewTasks(tasks...), old.Members.WithMore(len(nodes), s.index, s.now)
	j.Members.Note(cluster.MemberChange{At: s.now, Nodes: hostsOf(nodes), Joins: true})
	s.put(old, &j)
	return ""
}

// grantMismatch returns why extra nodes do not suit a job, or its present state; "" if they do.
func (s *State) grantMismatch(j *cluster.Job, g *cluster.NodeGrant, plan *cluster.Plan) string {
	r, n := &j.Spec.Request, int32(j.NodeCount()+len(g.Nodes))
	part, known := s.policy.Partition(j.Partition)
	switch {
	case j.State != cluster.Running || j.Preempting != nil || j.Members.Changing() || len(g.Nodes) > int(j.MostMore()):
		return "the job cannot grow now"
	case len(g.Nodes) == 0 || n > r.MaxNodes || (n-r.Nodes)%j.Spec.Elastic.Step != 0:
		return fmt.Sprintf("%d nodes are not MIN plus a multiple of the step, or exceed MAX", n)
	case !known || part.Down:
		return "the partition is down"
	case part.MaxNodes > 0 && n > part.MaxNodes:
		return fmt.Sprintf("the partition allows at most %d nodes", part.MaxNodes)
	}
	filter := cluster.NewNodeFilter(r)
	filter.Price = func(kind string) int64 { return s.credits.Price(kind, s.now) }
	for i := range g.Nodes {
		a := &g.Nodes[i]
		if s.rankOf(j.ID, a.Node) >= 0 || slices.ContainsFunc(g.Nodes[:i], func(o cluster.NodeAllocation) bool { return o.Node == a.Node }) {
			return "node " + a.Node + " belongs to the job already"
		}
		if !s.partitions.Partition(part.Name).Has(a.Node) {
			return "node " + a.Node + " is not in the partition"
		}
		if why := s.nodeMismatch(j, a, plan.Index); why != "" {
			return why
		}
		if int32(len(a.GPUs)) < r.GPUsPerNode {
			return "node " + a.Node + " provides too few GPUs"
		}
		if why := s.unsuitable(filter, a); why != "" {
			return why
		}
		if why := s.reservedElsewhere(j, a.Node, plan); why != "" {
			return why
		}
		if why := s.leasedElsewhere(j, a.Node, j.Limit()); why != "" {
			return why
		}
	}
	all := cluster.Placement{Nodes: slices.Concat(j.Alloc.Nodes[:1], g.Nodes)}
	if kind, other := s.kinds(&all); other != "" {
		return fmt.Sprintf("its GPUs are of types %s and %s", kind, other)
	}
	return ""
}

// exceededBy returns which limit a job would exceed with more nodes.
func (l *limitChecker) exceededBy(j *cluster.Job, more int32) string {
	if !l.active() {
		return ""
	}
	o, _ := l.count.ExceededByGrowth(j.Spec, int32(j.NodeCount()), more)
	if o.Detail == "" {
		l.count.Grow(j.Spec, int32(j.NodeCount()), more)
	}
	return o.Detail
}

// releaseNodes has nodes leave a job, a value that is not shared yet: their tasks get SIGTERM at an instant. Further
// extra nodes leave with them, the youngest first, if only a part of a step remained.
func (s *State) releaseNodes(j *cluster.Job, ranks []int, at cluster.Instant, why string) {
	m := *j.Members
	m.List = slices.Clone(m.List)
	m.Resized, m.Epoch = s.now, m.Epoch+1
	named, leaving := false, map[string][]string{} // by cause
	leave := func(rank int, at cluster.Instant, why string) {
		x := &m.List[rank]
		x.Leaves, x.Stops, x.Why = at, at <= s.now, why
		named = named || x.Since > 0
		leaving[why] = append(leaving[why], j.Alloc.Nodes[rank].Node)
	}
	for _, rank := range ranks {
		leave(rank, at, why)
	}
	j.Members = &m
	extra, step := j.ExtraRanks(), int(j.Spec.Elastic.Step)
	for range len(extra) % step {
		leave(extra[len(extra)-1], s.now.Add(s.policy.Elastic.Grace), fmt.Sprintf("released: the rest is less than one step (%d nodes)", step))
		extra = extra[:len(extra)-1]
	}
	for _, why := range slices.Sorted(maps.Keys(leaving)) {
		m.Note(cluster.MemberChange{At: s.now, Nodes: hostlist.Compress(leaving[why]), Why: why})
	}
	if named {
		s.publishMembers(j, &m)
	}
}

// publishMembers begins another version of the members file, which names the nodes that m has, and sends the resize
// signal of a running job: not to the tasks that the last version does not name. m is not shared yet.
func (s *State) publishMembers(j *cluster.Job, m *cluster.Members) {
	m.Version++
	if j.Spec.Elastic.Signal == 0 || j.State != cluster.Running {
		return
	}
	s.send(s.index, j.ID, j.Spec.Elastic.Signal, j.Spec.Elastic.BatchOnly)
	list, _ := s.signals.Get(j.ID)
	for i := range m.List {
		if x := &m.List[i]; x.Since == 0 || x.Since == m.Version {
			x.SignalsAfter = list[len(list)-1].ID
		}
	}
}

// advanceMembers follows a change of the task of a rank in an elastic job, a value that is not shared yet, that has not
// ended. It returns the rank whose task may end the attempt.
func (s *State) advanceMembers(j *cluster.Job, rank int) int {
	t := j.Tasks.At(rank)
	if t.Phase >= cluster.TaskEnded && !j.Leaving(rank) && j.MayLose(rank) {
		e := endingOf(j, t, j.Spec.EveryNode)
		if joins := j.Members.List[rank].Since == 0; e.outcome == cluster.NodeFailed || joins && e.outcome != cluster.Completed {
			why := "lost: " + command.Sanitize(t.Message)
			if t.Message == "" {
				why = "lost: " + t.Cause.String()
			}
			s.releaseNodes(j, []int{rank}, s.now, why)
			j.Avoided = cluster.AvoidNodes(j.Avoided, []string{t.Node}, j.Attempt, s.now) // as after the failure of an attempt there
			s.blameGPU(t)
		}
	}
	switch {
	case !j.Leaving(rank):
	case t.Phase == cluster.TaskClean:
		s.removeMember(j, rank)
		rank = 0
	case t.Phase >= cluster.TaskEnded && !j.Members.List[rank].Stops:
		x := j.Members.List[rank]
		x.Stops = true
		j.Members = j.Members.With(rank, x)
		rank = 0
	default:
		rank = 0
	}
	s.publishJoined(j)
	return rank
}

// publishJoined names the nodes that have joined a job in the members file, once the tasks on all of them have started.
func (s *State) publishJoined(j *cluster.Job) {
	joined := false
	for rank := range j.Members.List {
		if x := &j.Members.List[rank]; x.Stays() && x.Since == 0 {
			if j.Tasks.At(rank).Phase < cluster.TaskStarted {
				return
			}
			joined = true
		}
	}
	if !joined {
		return
	}
	m := *j.Members
	m.List = slices.Clone(m.List)
	for rank := range m.List {
		if x := &m.List[rank]; x.Stays() && x.Since == 0 {
			x.Since = m.Version + 1
		}
	}
	s.publishMembers(j, &m)
	j.Members = &m
}

// removeMember removes a node from a job when nothing of the job is left there.
func (s *State) removeMember(j *cluster.Job, rank int) {
	t := j.Tasks.At(rank)
	m := j.Members.Without(rank)
	m.Left.Add(t, &j.Alloc.Nodes[rank], &j.Members.List[rank], s.now)
	j.Members = m
	j.Alloc = &cluster.Allocation{Nodes: slices.Delete(slices.Clone(j.Alloc.Nodes), rank, rank+1)}
	j.Tasks = cluster.NewTasks(slices.Delete(j.Tasks.List(), rank, rank+1)...)
	j.Steps = cluster.WithoutNode(j.Steps, int32(rank), s.now)
}

// stopLeaving ends the tasks of members whose grace time is over, in a job that is not shared yet.
func (s *State) stopLeaving(j *cluster.Job) {
	m := *j.Members
	m.List = slices.Clone(m.List)
	for i := range m.List {
		if x := &m.List[i]; !x.Stays() && x.Leaves <= s.now {
			x.Stops = true
		}
	}
	j.Members = &m
}

// hostsOf returns the nodes of an allocation as a hostlist. O(nodes × log nodes).
func hostsOf(nodes []cluster.NodeAllocation) string {
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Node
	}
	return hostlist.Compress(names)
}
