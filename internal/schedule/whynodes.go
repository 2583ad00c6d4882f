package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// nodeSurvey is what each node can give one job.
type nodeSurvey struct {
	job     *cluster.Job
	need    topology.Need
	needs   string
	members int      // nodes of its partitions
	could   int      // that could ever serve it
	fit     []string // that could now
	counts  map[string]int
	order   []string           // of the constraints, as they were met
	lacking map[string]deficit // of the nodes that could serve it, and cannot now
	used    map[string]*occupied
	later   []ReservedNodes
	short   map[string]bool // licences of which it asks for more than jobs leave
}

// deficit is of what a node has too little free for one job, since others have it.
type deficit struct{ gpus, cpus, memory, all bool }

// from reports whether an allocation on the node is part of what is lacking there.
func (l deficit) from(s *nodeSurvey, n *cluster.Node, a *cluster.NodeAllocation) bool {
	wanted := func(i int32) bool { return int(i) < len(n.GPUs) && s.suits(&n.GPUs[i]) }
	return l.all || l.cpus && a.CPUs > 0 || l.memory && a.Memory > 0 || l.gpus && slices.ContainsFunc(a.GPUs, wanted)
}

// suits reports whether a GPU is of a type that the job may have, and works.
func (s *nodeSurvey) suits(gpu *cluster.GPU) bool {
	return gpu.Fault == "" && (s.need.Types[0] == "" || slices.Contains(s.need.Types, gpu.Type))
}

// occupied is what jobs have of one node.
type occupied struct {
	gpus   topology.Set
	cpus   int32
	memory cluster.Bytes
	jobs   int
	whole  bool
}

// survey looks at every node for what rules it out for a job. O(nodes + GPUs + running jobs).
func survey(g *resources, snap *cluster.Snapshot, job *cluster.Job) *nodeSurvey {
	s := &nodeSurvey{
		job: job, need: topology.NeedOf(&job.Spec.Request),
		counts: map[string]int{}, lacking: map[string]deficit{}, used: map[string]*occupied{},
	}
	s.needs = needs(&s.need)
	for _, j := range snap.Active {
		s.occupy(j)
	}
	s.short = shortOf(snap, job)
	member, refused, kept := s.memberships(g), s.refusals(g), keptNodes(snap)
	only, all := names(job.Spec.Request.NodeList)
	never, none := names(job.Spec.Request.Exclude)
	var fit []*cluster.Node
	for _, n := range snap.Nodes {
		if !member[n.Name] {
			continue
		}
		s.members++
		switch { // what else there is of such a node matters nothing to the job
		case len(only) > 0 && !all && !only[n.Name]:
			s.rule("not in --nodelist")
			continue
		case none || never[n.Name]:
			s.rule("in --exclude")
			continue
		case refused[n.Name] != "":
			s.rule(refused[n.Name])
			continue
		}
		why := append(s.unable(n), g.outside(&job.Spec.Request, n)...)
		why = append(why, reserved(snap, kept[n.Name], job.Spec, snap.Now.Add(g.holdTime(job.Spec)))...)
		if len(why) == 0 {
			s.could++
			s.keep(kept[n.Name], snap.Now)
			if why, s.lacking[n.Name] = s.taken(n); len(why) == 0 {
				delete(s.lacking, n.Name)
				fit = append(fit, n)
			}
		}
		for _, w := range why {
			s.rule(w)
		}
	}
	s.gather(fit)
	return s
}

// shortOf is the licences of which a job asks for more than running jobs leave.
func shortOf(snap *cluster.Snapshot, job *cluster.Job) map[string]bool {
	short := map[string]bool{}
	for _, l := range job.Spec.Request.Licences {
		free, _ := snap.Policy.Scheduling.Licence(l.Name)
		for _, j := range snap.Active {
			for _, x := range j.Spec.Request.Licences {
				if x.Name == l.Name {
					free -= x.Count
				}
			}
		}
		short[l.Name] = free < l.Count
	}
	return short
}

// keep notes the reservations, but for the job's own, that a node which could serve the job
// is kept by before the job is planned to start.
func (s *nodeSurvey) keep(by []*cluster.Reservation, now cluster.Instant) {
	for _, x := range by {
		if x.Name == s.job.Spec.Reservation || x.Start <= now || s.job.Planned > 0 && x.Start >= s.job.Planned {
			continue
		}
		i := slices.IndexFunc(s.later, func(k ReservedNodes) bool { return k.By == x })
		if i < 0 {
			i, s.later = len(s.later), append(s.later, ReservedNodes{By: x})
		}
		s.later[i].Nodes++
	}
}

// gather keeps the nodes that could serve the job now: none of those that each have GPUs
// to give, where GPUs are spread and all of them together have too few.
func (s *nodeSurvey) gather(fit []*cluster.Node) {
	enough := s.need.PerNode >= 0 || s.need.Total == 0 || len(fit) == 0
	for _, kind := range s.need.Types {
		var gives []int32
		for _, n := range fit {
			gives = append(gives, s.gives(n, kind))
		}
		slices.Sort(gives)
		if k := int(s.need.Nodes); k > 0 && k < len(gives) {
			gives = gives[len(gives)-k:]
		}
		sum := int32(0)
		for _, g := range gives {
			sum += g
		}
		enough = enough || sum >= s.need.Total
	}
	for _, n := range fit {
		if enough {
			s.fit = append(s.fit, n.Name)
			continue
		}
		s.rule("fewer than " + count(s.need.Total, s.kind()) + " free on them together")
		if s.used[n.Name] != nil {
			s.lacking[n.Name] = deficit{gpus: true}
		}
	}
}

// gives is how many GPUs of a type ("" is any) a node can give now, with the memory that is
// asked for with each.
func (s *nodeSurvey) gives(n *cluster.Node, kind string) (gpus int32) {
	u := cmp.Or(s.used[n.Name], &occupied{})
	for i := range n.GPUs {
		gpu := &n.GPUs[i]
		if gpu.Fault == "" && !u.gpus.Has(int32(i)) && (kind == "" || gpu.Type == kind) && gpu.Memory >= s.need.GPUMemory {
			gpus++
		}
	}
	if m := s.need.Memory.PerGPUOn(n.Size()); m > 0 {
		gpus = int32(min(cluster.Bytes(gpus), (n.Memory-u.memory)/m))
	}
	return gpus
}

// kind is what the GPUs are called that the job asks for.
func (s *nodeSurvey) kind() string {
	return strings.Trim(strings.Join(s.need.Types, " or ")+" GPU", " ")
}

func (s *nodeSurvey) rule(why string) {
	if s.counts[why] == 0 {
		s.order = append(s.order, why)
	}
	s.counts[why]++
}

// ruled is what rules out how many nodes, most first.
func (s *nodeSurvey) ruled() []Exclusion {
	list := make([]Exclusion, 0, len(s.order))
	for _, why := range s.order {
		list = append(list, Exclusion{why, s.counts[why]})
	}
	slices.SortStableFunc(list, func(a, b Exclusion) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.Says, b.Says))
	})
	return list
}

func (s *nodeSurvey) occupy(j *cluster.Job) {
	if j.Alloc == nil {
		return
	}
	for i := range j.Alloc.Nodes {
		a := &j.Alloc.Nodes[i]
		u := s.used[a.Node]
		if u == nil {
			u = &occupied{}
			s.used[a.Node] = u
		}
		u.gpus = u.gpus.Or(topology.SetOf(a.GPUs))
		u.cpus, u.memory, u.jobs = u.cpus+a.CPUs, u.memory+a.Memory, u.jobs+1
		u.whole = u.whole || j.Spec.Request.Exclusive
	}
}

// memberships is the nodes of the job's partitions.
func (s *nodeSurvey) memberships(g *resources) map[string]bool {
	member := map[string]bool{}
	for _, name := range partitions(s.job.Spec) {
		for _, node := range g.nodesOf(name) {
			member[node] = true
		}
	}
	return member
}

// refusals is the nodes of the job's partitions that refuse it, with why, except those that
// another of its partitions has, too. Where all refuse it there are none: that is its reason.
func (s *nodeSurvey) refusals(g *resources) map[string]string {
	refused := map[string]string{}
	var open []string
	for _, name := range partitions(s.job.Spec) {
		x, refuses := g.refusalBy(s.job.Spec, name)
		if !refuses {
			open = append(open, name)
			continue
		}
		for _, node := range g.nodesOf(name) {
			refused[node] = fmt.Sprintf("in partition %q, which %s", name, x.says)
		}
	}
	if len(open) == 0 {
		return nil
	}
	for _, name := range open {
		for _, node := range g.nodesOf(name) {
			delete(refused, node)
		}
	}
	return refused
}

// unable is why a node can never serve the job as it is, or not until somebody sees
// to the node.
func (s *nodeSurvey) unable(n *cluster.Node) []string {
	var why []string
	note := func(is bool, text string) {
		if is {
			why = append(why, text)
		}
	}
	note(n.Liveness == cluster.Dead, "down")
	note(n.Liveness == cluster.Silent, "not heard of lately")
	note(n.Drain, "drained")
	note(n.Fault != "", "not fit for work, as it says itself")
	note(n.Orphans > 0, "clearing up after another job")
	r := &s.job.Spec.Request
	for _, f := range r.Features {
		note(!slices.Contains(n.Features, f), fmt.Sprintf("without feature %q", f))
	}
	note(n.CPUs < s.need.CPUs, "fewer than "+count(s.need.CPUs, "CPU")+" in all")
	m := s.need.Memory.On(n.Size(), s.each())
	note(n.Memory < m, "less than "+m.String()+" of memory in all")
	return append(why, s.gpusOf(n, topology.Set{}, " in all")...)
}

// each is how many GPUs a node has to give at least.
func (s *nodeSurvey) each() int32 {
	if s.need.PerNode < 0 {
		return min(1, s.need.Total)
	}
	return s.need.PerNode
}

// gpusOf is why the GPUs of a node, but for some, do not do.
func (s *nodeSurvey) gpusOf(n *cluster.Node, but topology.Set, where string) []string {
	k := s.each()
	if k == 0 {
		return nil
	}
	typed, large := int32(0), int32(0)
	domains, linked := map[string]int32{}, int32(0)
	for i := range n.GPUs {
		gpu := &n.GPUs[i]
		if but.Has(int32(i)) || !s.suits(gpu) {
			continue
		}
		if typed++; gpu.Memory < s.need.GPUMemory {
			continue
		}
		large++
		if gpu.Domain != "" {
			domains[gpu.Domain]++
			linked = max(linked, domains[gpu.Domain])
		}
	}
	kind, whole := s.kind(), but == topology.Set{}
	switch {
	case typed < k && typed == 0 && (k == 1 || whole):
		return []string{"no " + kind + where}
	case typed < k:
		return []string{"fewer than " + count(k, kind) + where}
	case large < k:
		return []string{fmt.Sprintf("fewer than %s of at least %s each%s", count(k, kind), s.need.GPUMemory, where)}
	case s.need.Linked && k > 1 && linked < k:
		return []string{fmt.Sprintf("fewer than %s in one NVLink domain%s", count(k, kind), where)}
	}
	return nil
}

// keptNodes is the reservations of each node, those first that have it before others.
// O(reservations × nodes).
func keptNodes(snap *cluster.Snapshot) map[string][]*cluster.Reservation {
	kept := map[string][]*cluster.Reservation{}
	for _, x := range reservationsOf(snap) {
		member, all := names(x.Nodes)
		for _, n := range snap.Nodes {
			if all || member[n.Name] {
				kept[n.Name] = append(kept[n.Name], x)
			}
		}
	}
	return kept
}

// reserved says that a node is kept for others before a job that starts now could end, or
// not for the job's reservation.
func reserved(snap *cluster.Snapshot, by []*cluster.Reservation, spec *cluster.JobSpec, end cluster.Instant) []string {
	for _, x := range by {
		switch {
		case x.Name == spec.Reservation && x.Start > snap.Now:
			return []string{fmt.Sprintf("reservation %q has not begun", x.Name)}
		case x.Name == spec.Reservation:
			return nil
		case x.Start <= snap.Now && x.End > snap.Now:
			return []string{fmt.Sprintf("in reservation %q", x.Name)}
		case x.Start < end && x.End > snap.Now:
			return []string{fmt.Sprintf("in reservation %q before it could end", x.Name)}
		}
	}
	if spec.Reservation != "" {
		return []string{fmt.Sprintf("not in reservation %q", spec.Reservation)}
	}
	return nil
}

// taken is why a node that could serve the job cannot now: others have what it lacks.
func (s *nodeSurvey) taken(n *cluster.Node) (why []string, lacks deficit) {
	u := s.used[n.Name]
	switch {
	case u == nil:
		return nil, deficit{}
	case u.whole:
		return []string{"taken as a whole by another job"}, deficit{all: true}
	case s.need.Exclusive:
		return []string{"not empty"}, deficit{all: true}
	}
	why = s.gpusOf(n, u.gpus, " free")
	lacks.gpus = len(why) > 0
	if n.CPUs-u.cpus < s.need.CPUs {
		why, lacks.cpus = append(why, "fewer than "+count(s.need.CPUs, "CPU")+" free"), true
	}
	if m := s.need.Memory.On(n.Size(), s.each()); n.Memory-u.memory < m {
		why, lacks.memory = append(why, "less than "+m.String()+" of memory free"), true
	}
	return why, lacks
}

// holders is the jobs that have what is lacking on nodes that could serve it, or licences of
// which too few are left, those first that end first.
func (s *nodeSurvey) holders(g *resources, snap *cluster.Snapshot) []Holder {
	var list []Holder
	for _, j := range snap.Active {
		h := Holder{Job: j, Ends: g.end(snap.Now, j)}
		if j.Alloc != nil {
			for i := range j.Alloc.Nodes {
				a := &j.Alloc.Nodes[i]
				if l, short := s.lacking[a.Node]; short && l.from(s, g.nodes[a.Node], a) {
					h.Nodes++
				}
			}
		}
		for _, l := range j.Spec.Request.Licences {
			if s.short[l.Name] {
				h.Licences = append(h.Licences, l)
			}
		}
		if h.Nodes > 0 || len(h.Licences) > 0 {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Ends, b.Ends), cmp.Compare(a.Job.ID, b.Job.ID))
	})
	list = list[:min(len(list), maxListed)]
	for i := range list {
		list[i].Ends = list[i].Job.Limit()
	}
	return list
}
