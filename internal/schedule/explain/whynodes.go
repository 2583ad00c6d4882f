package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// nodeSurvey records what each node can give one job.
type nodeSurvey struct {
	job      *cluster.Job
	need     topology.NodeRequest
	filter   *cluster.NodeFilter
	prices   map[string]int64 // of an hour of a GPU, by type
	needs    string
	members  int      // nodes of its partitions
	suitable int      // of these, nodes that suit it
	free     []string // of these, nodes that could serve it now
	counts   map[string]int
	order    []string                    // of the conditions
	lacking  map[string]deficit          // of suitable nodes that cannot serve it now
	used     map[string]*cluster.NodeUse // by node
	later    []ReservedNodes
	short    map[string]bool // licences with too few left by running jobs
	faults   int             // different ones that it names
	spot     bool            // the job's QOS allows spot nodes
	regions  []string        // of leased nodes, by the policy
	end      cluster.Instant // of the job, if it started now
}

// deficit says what of a node others have, so that too little is free for one job.
type deficit struct {
	gpus, cpus, memory, all bool
	gres                    []cluster.Gres // by name
}

// from reports whether a job's allocation has part of what is missing on its node.
func (l deficit) from(s *nodeSurvey, n *cluster.Node, q *cluster.Request, a *cluster.NodeAllocation) bool {
	wanted := func(i int32) bool { return int(i) < len(n.GPUs) && s.accepts(&n.GPUs[i]) }
	has := func(g cluster.Gres) bool { return cluster.CountGres(q.Gres, &g) > 0 }
	return l.all || slices.ContainsFunc(l.gres, has) || l.cpus && a.CPUs > 0 || l.memory && a.Memory > 0 || l.gpus && slices.ContainsFunc(a.GPUs, wanted)
}

// accepts reports whether a GPU is healthy and of a type that the job accepts.
func (s *nodeSurvey) accepts(gpu *cluster.GPU) bool {
	return gpu.Fault == "" && slices.ContainsFunc(s.need.Types, func(kind string) bool { return topology.Accepts(kind, gpu.Type) })
}

// newNodeSurvey checks every node for a job. O(nodes + GPUs + running jobs).
func newNodeSurvey(g *plan.Resources, snap *cluster.Snapshot, job *cluster.Job) *nodeSurvey {
	s := &nodeSurvey{
		job: job, need: topology.NeedOf(&job.Spec.Request),
		counts: map[string]int{}, lacking: map[string]deficit{}, used: map[string]*cluster.NodeUse{},
	}
	s.needs = words.Request(&job.Spec.Request)
	s.filter = g.Filter(&job.Spec.Request)
	s.filter.GPUs = s.each()
	s.prices = g.Prices
	qos := g.QOS[job.Spec.QOS]
	s.spot, s.regions, s.end = qos.AllowsSpot(), snap.Policy.Burst.Regions, snap.Now.Add(g.HoldTime(job.Spec))
	for _, j := range snap.Active {
		s.occupy(j)
	}
	s.short = shortOf(snap, job)
	member, refused, kept := s.memberships(g), s.refusals(g), keptNodes(snap)
	var free []*cluster.Node
	for _, n := range snap.Nodes {
		if !member[n.Name] {
			continue
		}
		s.members++
		if why := s.leftOut(n, refused); why != "" { // other mismatches of such a node do not matter
			s.exclude(why)
			continue
		}
		why := append(s.unable(n), reserved(snap, kept[n.Name], job.Spec, snap.Now.Add(g.HoldTime(job.Spec)))...)
		if len(why) == 0 {
			s.suitable++
			s.keep(kept[n.Name], snap.Now)
			if why, s.lacking[n.Name] = s.taken(n); len(why) == 0 {
				delete(s.lacking, n.Name)
				free = append(free, n)
			}
		}
		for _, w := range why {
			s.exclude(w)
		}
	}
	s.addFree(free)
	return s
}

// leftOut returns why the job does not consider a node: it names others, excludes the node, or a
// partition refuses it there. "" if it considers the node.
func (s *nodeSurvey) leftOut(n *cluster.Node, refused map[string]string) string {
	for m := range s.filter.Attributes(n) {
		switch m.Kind {
		case cluster.NotListed:
			return "not in --nodelist"
		case cluster.Excluded:
			return "in --exclude"
		}
	}
	return refused[n.Name]
}

// shortOf returns the licences with too few left by running jobs.
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

// keep records the reservations, except the job's own, that will keep a suitable node before the job's
// planned start.
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

// addFree records the nodes that could serve the job now. Where the job's GPUs are spread over nodes that
// have too few of them together, there are none.
func (s *nodeSurvey) addFree(free []*cluster.Node) {
	enough := s.need.PerNode >= 0 || s.need.Total == 0 || len(free) == 0
	for _, kind := range s.need.Types {
		var gives []int32
		for _, n := range free {
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
	for _, n := range free {
		if enough {
			s.free = append(s.free, n.Name)
			continue
		}
		s.exclude("fewer than " + words.Count(s.need.Total, s.kind()) + " free on them together")
		if s.used[n.Name] != nil {
			s.lacking[n.Name] = deficit{gpus: true}
		}
	}
}

// gives returns how many GPUs of a type ("" is any) a node can give now, with the memory that the job requests
// for each.
func (s *nodeSurvey) gives(n *cluster.Node, kind string) (gpus int32) {
	u := cmp.Or(s.used[n.Name], &cluster.NodeUse{})
	for i := range n.GPUs {
		gpu := &n.GPUs[i]
		if gpu.Fault == "" && !(i < len(u.GPUs) && u.GPUs[i]) && topology.Accepts(kind, gpu.Type) && gpu.Memory >= s.need.GPUMemory {
			gpus++
		}
	}
	if m := s.need.Memory.PerGPUOn(n.Size()); m > 0 {
		gpus = int32(min(cluster.Bytes(gpus), (n.Memory-u.Memory)/m))
	}
	return gpus
}

// kind names a GPU of the requested types.
func (s *nodeSurvey) kind() string {
	return strings.Trim(strings.Join(s.need.Types, " or ")+" GPU", " ")
}

func (s *nodeSurvey) exclude(why string) {
	if s.counts[why] == 0 {
		s.order = append(s.order, why)
	}
	s.counts[why]++
}

// exclusions returns how many nodes each condition excludes, most first.
func (s *nodeSurvey) exclusions() []Exclusion {
	list := make([]Exclusion, 0, len(s.order))
	for _, why := range s.order {
		list = append(list, Exclusion{why, s.counts[why]})
	}
	slices.SortStableFunc(list, func(a, b Exclusion) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.Condition, b.Condition))
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
			u = &cluster.NodeUse{}
			s.used[a.Node] = u
		}
		for _, g := range a.GPUs {
			u.GPUs = append(u.GPUs, make([]bool, max(0, int(g)+1-len(u.GPUs)))...)
			u.GPUs[g] = true
		}
		u.CPUs, u.Memory, u.Jobs = u.CPUs+a.CPUs, u.Memory+a.Memory, u.Jobs+1
		u.Gres = cluster.AddGres(u.Gres, j.Spec.Request.Gres, 1)
		u.Whole = u.Whole || j.Spec.Request.Exclusive
	}
}

// memberships returns the nodes of the job's partitions.
func (s *nodeSurvey) memberships(g *plan.Resources) map[string]bool {
	member := map[string]bool{}
	for _, name := range s.job.Spec.AllPartitions() {
		for _, node := range g.NodesOf(name) {
			member[node] = true
		}
	}
	return member
}

// refusals returns why partitions refuse the job, by node, except for nodes of a partition that does not. Nil
// when all partitions refuse it: that is its reason.
func (s *nodeSurvey) refusals(g *plan.Resources) map[string]string {
	refused := map[string]string{}
	var open []string
	for _, name := range s.job.Spec.AllPartitions() {
		x, refuses := g.Refusal(s.job.Spec, name)
		if !refuses {
			open = append(open, name)
			continue
		}
		for _, node := range g.NodesOf(name) {
			refused[node] = fmt.Sprintf("in partition %q, which %s", name, x.Says)
		}
	}
	if len(open) == 0 {
		return nil
	}
	for _, name := range open {
		for _, node := range g.NodesOf(name) {
			delete(refused, node)
		}
	}
	return refused
}

// unable returns why a node cannot serve the job even when it is empty.
func (s *nodeSurvey) unable(n *cluster.Node) []string {
	var why []string
	note := func(is bool, text string) {
		if is {
			why = append(why, text)
		}
	}
	note(n.Liveness == cluster.Dead, "down")
	note(n.Liveness == cluster.Silent, "no heartbeat")
	note(n.Drain, "drained")
	note(n.Fault != "", s.faultText(n.Fault))
	if n.Rental.Lease != 0 {
		why := n.LeaseRefusal(s.job.ID, s.job.Spec, s.spot, s.regions)
		note(why != "", why)
		note(why == "" && n.Rental.Until < s.end, "leased for less time than it needs")
	}
	note(n.Orphans > 0, "cleaning up after another job")
	for m := range s.filter.Attributes(n) {
		note(true, s.describe(m, ""))
	}
	for m := range s.filter.Capacity(n, cluster.NodeUse{}) {
		note(true, s.describe(m, ofNode))
	}
	return why
}

// maxFaults is the number of different faults that an answer names.
const maxFaults = 8

// faultText names the fault of a node, unless the answer names enough others.
func (s *nodeSurvey) faultText(fault string) string {
	text := "reports a fault: " + cluster.Sanitize(fault, 160)
	if s.counts[text] > 0 {
		return text
	}
	if s.faults >= maxFaults {
		return "reports another fault"
	}
	s.faults++
	return text
}

// What of a node a mismatch is about.
const (
	ofNode = " in all"
	ofFree = " free"
)

// describe describes a mismatch of a node.
func (s *nodeSurvey) describe(m cluster.Mismatch, where string) string {
	switch m.Kind {
	case cluster.MissingFeature:
		if strings.Contains(m.Name, "|") {
			return "with none of the features " + strings.Trim(m.Name, "[]")
		}
		return fmt.Sprintf("without feature %q", m.Name)
	case cluster.OutsideRegions:
		if m.Name == "" {
			return "in an unknown region"
		}
		return fmt.Sprintf("in region %s, not in --region", m.Name)
	case cluster.TooExpensive:
		return fmt.Sprintf("more expensive than --max-price: %s costs %s credits an hour", cluster.TypeOfPriced(m.Name), accounting.Credits(plan.PriceOf(s.prices, m.Name)))
	case cluster.DegradedNode:
		return "degraded: no jobs of several nodes"
	case cluster.TooFewCPUs:
		return "fewer than " + words.Count(int32(m.Want), "CPU") + where
	case cluster.TooLittleMemory:
		return "less than " + cluster.Bytes(m.Want).String() + " of memory" + where
	case cluster.TooFewGres:
		return words.GresShortage(m.Name, m.Have, m.Want) + where
	case cluster.SmallGPUs:
		return fmt.Sprintf("fewer than %s of at least %s each%s", words.Count(int32(m.Want), s.kind()), s.need.GPUMemory, where)
	case cluster.UnlinkedGPUs:
		return fmt.Sprintf("fewer than %s in one NVLink domain%s", words.Count(int32(m.Want), s.kind()), where)
	}
	if m.Have == 0 && (m.Want == 1 || where == ofNode) {
		return "no " + s.kind() + where
	}
	return "fewer than " + words.Count(int32(m.Want), s.kind()) + where
}

// each returns how many GPUs a node has to give at least.
func (s *nodeSurvey) each() int32 {
	if s.need.PerNode < 0 {
		return min(1, s.need.Total)
	}
	return s.need.PerNode
}

// keptNodes returns the reservations of each node; the one that has it first comes first.
// O(reservations × nodes).
func keptNodes(snap *cluster.Snapshot) map[string][]*cluster.Reservation {
	kept := map[string][]*cluster.Reservation{}
	for _, x := range plan.ReservationsOf(snap) {
		member := cluster.ParseNodeNames(x.Nodes)
		for _, n := range snap.Nodes {
			if member.Has(n.Name) {
				kept[n.Name] = append(kept[n.Name], x)
			}
		}
	}
	return kept
}

// reserved says that a node is reserved for others before a job that starts now could end, or is not in the
// job's reservation.
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

// taken returns why a suitable node cannot serve the job now, and what other jobs have of it.
func (s *nodeSurvey) taken(n *cluster.Node) (why []string, lacks deficit) {
	u := s.used[n.Name]
	switch {
	case u == nil:
		return nil, deficit{}
	case u.Whole:
		return []string{"allocated exclusively to another job"}, deficit{all: true}
	case s.need.Exclusive:
		return []string{"not empty"}, deficit{all: true}
	}
	for m := range s.filter.Capacity(n, *u) {
		why = append(why, s.describe(m, ofFree))
		switch m.Kind {
		case cluster.TooFewCPUs:
			lacks.cpus = true
		case cluster.TooLittleMemory:
			lacks.memory = true
		case cluster.TooFewGres:
			lacks.gres = append(lacks.gres, cluster.Gres{Name: m.Name})
		default:
			lacks.gpus = true
		}
	}
	return why, lacks
}

// holders returns the jobs that have what is missing on suitable nodes, or licences with too few left, by
// expected end.
func (s *nodeSurvey) holders(g *plan.Resources, snap *cluster.Snapshot) []Holder {
	var list []Holder
	for _, j := range snap.Active {
		h := Holder{Job: j, Ends: g.End(snap.Now, j)}
		if j.Alloc != nil {
			for i := range j.Alloc.Nodes {
				a := &j.Alloc.Nodes[i]
				if l, short := s.lacking[a.Node]; short && l.from(s, g.Nodes[a.Node], &j.Spec.Request, a) {
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
