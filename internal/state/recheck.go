package state

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/internal/state/admission"
	"github.com/greylag/greylag/pkg/cluster"
)

// A plan may be outdated when it is committed: the policy, the topology, a node's GPUs or the job
// changed. These checks compare a start with all that its job requests. They must not be stricter
// than a pass, or the same start would be planned and dropped repeatedly.

// joined returns that another job of the same name and user started since the plan, if the job must
// be the only one. No other satisfied dependency can become unsatisfied. O(running jobs), for such
// jobs only.
func (x *jobTables) joined(j *cluster.Job, planned uint64) string {
	if !slices.ContainsFunc(j.Spec.Depends, func(d cluster.Dependency) bool { return d.Kind == cluster.Singleton }) {
		return ""
	}
	for _, o := range x.holding.All() {
		if o.Granted > planned && o.Spec.Owner.User == j.Spec.Owner.User && o.Spec.Name == j.Spec.Name {
			return "job " + o.Ref().String() + " of the same name was started since the plan"
		}
	}
	return ""
}

// unsuitable returns why a job does not accept a node, or a GPU that the placement takes on it.
// Only the GPUs that the job is given count.
func (x *nodeTables) unsuitable(f *cluster.NodeFilter, a *cluster.NodeAllocation) string {
	n, _ := x.nodes.Get(a.Node)
	for m := range f.Attributes(n) {
		switch m.Kind {
		case cluster.NotListed:
			return "node " + a.Node + " is not in the node list of the job"
		case cluster.Excluded:
			return "the job excludes node " + a.Node
		case cluster.MissingFeature:
			return fmt.Sprintf("node %s has no feature %q", a.Node, m.Name)
		case cluster.OutsideRegions:
			return fmt.Sprintf("node %s is in region %q", a.Node, m.Name)
		}
	}
	for _, g := range a.GPUs {
		switch m, bad := f.GPU(&n.GPUs[g]); {
		case !bad:
		case m.Kind == cluster.TooExpensive:
			return fmt.Sprintf("GPUs of type %s cost more now than the job would pay", m.Name)
		case m.Kind == cluster.SmallGPUs:
			return fmt.Sprintf("GPU %d of node %s has %s of memory, less than %s", g, a.Node, cluster.Bytes(m.Have), cluster.Bytes(m.Want))
		default:
			return fmt.Sprintf("GPU %d of node %s is of type %s", g, a.Node, m.Name)
		}
	}
	return ""
}

// placementMismatch returns why the nodes and GPUs of a placement are not as close to each other as the job
// requires, or not of one type. The nodes have been checked before.
func (s *State) placementMismatch(j *cluster.Job, p *cluster.Placement) string {
	r := &j.Spec.Request
	if r.IncludesList() {
		for _, name := range r.NodeList {
			if !slices.ContainsFunc(p.Nodes, func(a cluster.NodeAllocation) bool { return a.Node == name }) {
				return "the placement has no node " + name
			}
		}
	}
	if !s.sameFeatures(r, p) {
		return "its nodes have no common one of the features " + cluster.FormatFeatures(r.Features)
	}
	if kind, other := s.kinds(p); len(r.GPUTypes) > 0 && other != "" {
		return fmt.Sprintf("the placement has GPUs of types %s and %s", kind, other)
	}
	if r.SwitchWait >= 0 { // a preference, which a start need not meet
		return ""
	}
	if r.Connect == cluster.ConnectNVLink || r.Connect == cluster.ConnectNode {
		if why := s.nvlinkMismatch(r, p); why != "" {
			return why
		}
	}
	most := int(r.Switches)
	if r.Connect == cluster.ConnectLeaf {
		most = 1
	}
	if most == 0 || len(p.Nodes) < 2 || r.Connect == cluster.ConnectNVLink && s.fabric.tree.Levels() == 0 {
		return ""
	}
	under := map[int32]none{}
	for i := range p.Nodes {
		leaf, known := s.fabric.tree.Domain(0, p.Nodes[i].Node)
		if !known {
			return "the topology does not contain node " + p.Nodes[i].Node
		}
		under[leaf] = none{}
	}
	if len(under) > most {
		return fmt.Sprintf("its nodes are under %s, at most %d may be", words.Count(len(under), "leaf switch", "leaf switches"), most)
	}
	return ""
}

// sameFeatures reports whether all nodes of a placement have one of the sets of features, if the request
// has several.
func (x *nodeTables) sameFeatures(r *cluster.Request, p *cluster.Placement) bool {
	sets := cluster.FeatureSets(r.Features)
	return len(sets) == 1 || slices.ContainsFunc(sets, func(set []string) bool {
		return !slices.ContainsFunc(p.Nodes, func(a cluster.NodeAllocation) bool {
			n, _ := x.nodes.Get(a.Node)
			return slices.ContainsFunc(set, func(f string) bool { return !cluster.HasFeatures(n.Features, f) })
		})
	})
}

// kinds returns the type of the first GPU of a placement, and another type if there is any.
func (x *nodeTables) kinds(p *cluster.Placement) (kind, other string) {
	for i := range p.Nodes {
		n, _ := x.nodes.Get(p.Nodes[i].Node)
		for _, g := range p.Nodes[i].GPUs {
			switch t := n.GPUs[g].Type; {
			case kind == "":
				kind = t
			case t != kind:
				return kind, t
			}
		}
	}
	return kind, ""
}

// nvlinkMismatch returns why the GPUs of a job, or those of each node, are not in one NVLink domain.
func (s *State) nvlinkMismatch(r *cluster.Request, p *cluster.Placement) string {
	all, gpus := "", 0
	for i := range p.Nodes {
		a := &p.Nodes[i]
		n, _ := s.nodes.Get(a.Node)
		n = s.fabric.tree.Linked(n)
		for k, g := range a.GPUs {
			gpus++
			domain := n.GPUs[g].Domain
			switch {
			case k > 0 && (domain == "" || domain != n.GPUs[a.GPUs[0]].Domain):
				return "the GPUs of node " + a.Node + " are not in one NVLink domain"
			case gpus > 1 && r.Connect == cluster.ConnectNVLink && (domain == "" || domain != all):
				return "the GPUs of the job are not in one NVLink domain"
			}
			all = domain
		}
	}
	return ""
}

// reservedElsewhere returns why reservations keep a job from a node for the time that it may run.
// The cleanup time is left out: it covers the time since the plan. The pass has checked whether
// another reservation holds the node before the job's own one does, unless the policy changed
// since.
func (s *State) reservedElsewhere(j *cluster.Job, node string, plan *cluster.Plan) string {
	end := cluster.Never
	if j.Spec.TimeLimit > 0 {
		end = s.now.Add(j.Spec.TimeLimit)
	}
	own, why := s.reservedFor(j, node, end)
	if why != "" {
		return why
	}
	all := s.partitions.Reservations()
	for i := range all {
		k := &all[i]
		first := own == nil || plan.Policy != s.policy.Version && k.Before(own.Reservation) < 0
		if first && k.Start < end && k.End > s.now && k.Has(node) {
			return fmt.Sprintf("node %s is in reservation %q", node, k.Name)
		}
	}
	return ""
}

// reservedFor returns the reservation that a job names, nil if it names none, and why the job may
// not run on a node of it until an instant.
func (s *State) reservedFor(j *cluster.Job, node string, end cluster.Instant) (*admission.Reservation, string) {
	name := j.Spec.Reservation
	if name == "" {
		return nil, ""
	}
	all := s.partitions.Reservations()
	i := slices.IndexFunc(all, func(k admission.Reservation) bool { return k.Name == name })
	if i < 0 {
		return nil, fmt.Sprintf("reservation %q no longer exists", name)
	}
	switch k := &all[i]; {
	case s.now < k.Start || end > k.End:
		return nil, fmt.Sprintf("the job does not fit reservation %q", name)
	case !k.Admits(j.Spec.Owner.User, j.Spec.Account):
		return nil, fmt.Sprintf("reservation %q is not for user %s or account %q", name, j.Spec.Owner.User, j.Spec.Account)
	case !k.Has(node):
		return nil, fmt.Sprintf("node %s is not in reservation %q", node, name)
	default:
		return k, ""
	}
}

// limitChecker checks the starts of one plan against the limits of accounts, users and QOS. A pass
// has checked them: the check is repeated only if limits changed since the plan, a job was started
// that the plan did not include, or a node changed. O(running jobs) then.
type limitChecker struct {
	s     *State
	plan  *cluster.Plan
	asked bool
	count *eligible.Limits // nil if the pass's own check holds
}

// active reports whether the check of limits has to be repeated.
func (l *limitChecker) active() bool {
	if !l.asked {
		l.asked = true
		if l.s.admission().Limited() && l.changed() {
			l.count = eligible.NewLimits(l.s.sharingNow())
		}
	}
	return l.count != nil
}

// over returns which limit a start would exceed.
func (l *limitChecker) over(j *cluster.Job) string {
	if !l.active() {
		return ""
	}
	o, _ := l.count.First(j)
	return o.Detail
}

// changed reports whether the plan's own check of limits may be outdated.
func (l *limitChecker) changed() bool {
	if l.plan.Policy != l.s.policy.Version || l.s.accounts.Version() > l.plan.Index {
		return true
	}
	for _, j := range l.s.holding.All() {
		if j.LastGrant() > l.plan.Index {
			return true
		}
	}
	return l.others()
}

// others reports whether a node of the plan's starts and grants changed since: its GPUs may be of a type that
// a job which names none could not get before.
func (l *limitChecker) others() bool {
	changed := func(a cluster.NodeAllocation) bool {
		n, known := l.s.nodes.Get(a.Node)
		return known && n.Changed > l.plan.Index
	}
	return slices.ContainsFunc(l.plan.Starts, func(p cluster.PlannedStart) bool { return slices.ContainsFunc(p.Placement.Nodes, changed) }) ||
		slices.ContainsFunc(l.plan.Grants, func(g cluster.NodeGrant) bool { return slices.ContainsFunc(g.Nodes, changed) })
}

// take counts a start.
func (l *limitChecker) take(j *cluster.Job) {
	if l.count != nil {
		l.count.Start(j)
	}
}

// sharingNow returns the part of a snapshot that limits are checked against.
func (s *State) sharingNow() *cluster.Snapshot {
	s.rebuildPartitionIndex()
	shot := &cluster.Snapshot{Index: s.index, Now: s.now, Policy: s.policy, Models: s.partitions.Models}
	s.accounts.Tree()
	clone := s.accounts.Clone(nil)
	shot.Accounts = clone.View()
	for _, j := range s.holding.All() {
		shot.Active = append(shot.Active, j)
	}
	return shot
}

// licences counts the licences that the jobs with an allocation hold. It counts on first use, since
// most jobs need none: O(jobs with an allocation).
type licences struct {
	s    *State
	held map[string]int64 // nil before the first use
}

// short returns which of the job's licences are not available; "" if all are.
func (l *licences) short(j *cluster.Job) string {
	if len(j.Spec.Request.Licences) == 0 {
		return ""
	}
	if l.held == nil {
		l.held = map[string]int64{}
		for _, other := range l.s.holding.All() {
			l.take(other)
		}
	}
	for _, want := range j.Spec.Request.Licences {
		have, _ := l.s.policy.Scheduling.Licence(want.Name)
		if l.held[want.Name]+int64(want.Count) > int64(have) {
			return fmt.Sprintf("%d of %d licences %s are in use", l.held[want.Name], have, want.Name)
		}
	}
	return ""
}

// take counts a job that was started.
func (l *licences) take(j *cluster.Job) {
	if l.held == nil {
		return
	}
	for _, x := range j.Spec.Request.Licences {
		l.held[x.Name] += int64(x.Count)
	}
}
