package state

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/internal/state/admission"
	"github.com/greylag/greylag/pkg/cluster"
)

// A plan may be outdated when it is agreed: the policy, the topology, a node's GPUs or the job
// changed. These checks compare a start with all that its job requests. They must not be stricter
// than a pass, or the same start would be planned and dropped repeatedly.

// joined says that another job of the same name and user was started since the plan, when
// the job must be the only one. No other dependency that held can cease to.
// O(running jobs), for such jobs alone.
func (s *State) joined(j *cluster.Job, planned uint64) string {
	if !slices.ContainsFunc(j.Spec.Depends, func(d cluster.Dependency) bool { return d.Kind == cluster.Singleton }) {
		return ""
	}
	for _, o := range s.holding.All() {
		if o.Granted > planned && o.Spec.Owner.User == j.Spec.Owner.User && o.Spec.Name == j.Spec.Name {
			return "job " + o.Ref().String() + " of the same name was started since the plan"
		}
	}
	return ""
}

// unsuitable returns why a job does not accept a node, or a GPU that the placement takes of it.
// Of the node's GPUs only those count that the job is given.
func (s *State) unsuitable(f *cluster.NodeFilter, a *cluster.NodeAllocation) string {
	n, _ := s.nodes.Get(a.Node)
	for m := range f.Attributes(n) {
		switch m.Kind {
		case cluster.NotListed:
			return "node " + a.Node + " is none that the job named"
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

// apart says why the nodes and GPUs of a placement, whose nodes have been found fit,
// are not as near to each other as the job insists, or not alike.
func (s *State) apart(j *cluster.Job, p *cluster.Placement) string {
	r := &j.Spec.Request
	if kind, other := s.kinds(p); len(r.GPUTypes) > 0 && other != "" {
		return fmt.Sprintf("the placement has GPUs of types %s and %s", kind, other)
	}
	if r.SwitchWait >= 0 { // a preference, which a start need not keep
		return ""
	}
	if r.Connect == cluster.ConnectNVLink || r.Connect == cluster.ConnectNode {
		if why := s.notLinked(r, p); why != "" {
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
			return "the topology does not say where node " + p.Nodes[i].Node + " is"
		}
		under[leaf] = none{}
	}
	if len(under) > most {
		return fmt.Sprintf("its nodes are under %s, at most %d may be", words.Count(len(under), "leaf switch", "leaf switches"), most)
	}
	return ""
}

// kinds are the type of the first GPU of a placement, and another one if there is any.
func (s *State) kinds(p *cluster.Placement) (kind, other string) {
	for i := range p.Nodes {
		n, _ := s.nodes.Get(p.Nodes[i].Node)
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

// notLinked says why the GPUs of a job, or those of each node, are not in one NVLink domain.
func (s *State) notLinked(r *cluster.Request, p *cluster.Placement) string {
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

// reservedElsewhere says why reservations keep a job from a node for as long as it may
// run. The time to clear up is left out: it covers what passed since the plan. Whether
// another reservation has the node before the job's own, the pass has seen to, unless the
// policy is another since.
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

// reservedFor is the reservation that a job names, nil when it names none, and why the job
// may not run on a node of it until an instant.
func (s *State) reservedFor(j *cluster.Job, node string, end cluster.Instant) (*admission.Reservation, string) {
	name := j.Spec.Reservation
	if name == "" {
		return nil, ""
	}
	all := s.partitions.Reservations()
	i := slices.IndexFunc(all, func(k admission.Reservation) bool { return k.Name == name })
	if i < 0 {
		return nil, fmt.Sprintf("there is no reservation %q any more", name)
	}
	switch k := &all[i]; {
	case s.now < k.Start || end > k.End:
		return nil, fmt.Sprintf("the job would not lie within reservation %q", name)
	case !k.Admits(j.Spec.Owner.User, j.Spec.Account):
		return nil, fmt.Sprintf("reservation %q is not for user %s or account %q", name, j.Spec.Owner.User, j.Spec.Account)
	case !k.Has(node):
		return nil, fmt.Sprintf("node %s is not in reservation %q", node, name)
	default:
		return k, ""
	}
}

// limitChecker checks the starts of one plan against what accounts, users and QOS may
// have. A pass has done that: it is done again only when limits changed since the plan
// was made, something was started that it did not know of, or a node is another. O(running
// jobs) then.
type limitChecker struct {
	s     *State
	plan  *cluster.Plan
	asked bool
	count *eligible.Limits // nil when the pass's own check holds
}

// over says which limit a start would exceed.
func (l *limitChecker) over(j *cluster.Job) string {
	if !l.asked {
		l.asked = true
		if l.s.admission().Limited() && l.changed() {
			l.count = eligible.NewLimits(l.s.sharingNow())
		}
	}
	if l.count == nil {
		return ""
	}
	o, _ := l.count.First(j)
	return o.Detail
}

// changed reports whether the plan's own check of limits may not hold any more.
func (l *limitChecker) changed() bool {
	if l.plan.Policy != l.s.policy.Version || l.s.accounts.Version() > l.plan.Index {
		return true
	}
	for _, j := range l.s.holding.All() {
		if j.Granted > l.plan.Index {
			return true
		}
	}
	return l.others()
}

// others reports whether a node of the plan's starts is another since: its GPUs may be of a
// type that a job which names none could not get before.
func (l *limitChecker) others() bool {
	for i := range l.plan.Starts {
		for _, a := range l.plan.Starts[i].Placement.Nodes {
			if n, known := l.s.nodes.Get(a.Node); known && n.Changed > l.plan.Index {
				return true
			}
		}
	}
	return false
}

// take counts a start.
func (l *limitChecker) take(j *cluster.Job) {
	if l.count != nil {
		l.count.Start(j)
	}
}

// sharingNow is what limits are checked against: the part of a snapshot that they need.
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

// licences counts what the jobs with an allocation hold of each licence. It counts when
// it is first asked, since most jobs want none: O(jobs with an allocation).
type licences struct {
	s    *State
	held map[string]int64 // nil until it was asked
}

// short says which of the job's licences are not there; "" when all are.
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
			return fmt.Sprintf("%d of %d licences %s are taken", l.held[want.Name], have, want.Name)
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
