package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// whatIf tries other requests of a job.
type whatIf struct{ *plan.Trial }

// lacks returns what keeps an eligible job from starting: too little is free, it is not near enough to each
// other, too few licences are free, or what is free is kept for others.
func (t *whatIf) lacks(s *nodeSurvey) []eligible.Obstacle {
	spec := t.Job.Spec
	if t.Starts(spec) {
		return nil
	}
	c := t.ClassOf(t.Job.ID, spec)
	if len(c.Options) == 0 {
		return []eligible.Obstacle{c.Never}
	}
	if o, exceeded := t.PromisedToOthers(t.Job); exceeded && t.Job.Promise == nil {
		return []eligible.Obstacle{o}
	}
	all := licences(t.Pass, spec)
	free, _ := t.Unallocated()
	near, loose := t.Bookings().FitsApart(c, t.OfLongLeases(c, free))
	early, notYet := t.Check.Early(spec)
	kept := reservedFor(t.Pass, c, near || loose)
	add := func(reason cluster.Reason, detail string) {
		all = append(all, eligible.Obstacle{Reason: reason, Detail: detail})
	}
	switch {
	case notYet && kept != "" && t.Job.Planned == 0:
		add(cluster.ReasonReqNodeNotAvail, kept+", "+early.Detail)
	case notYet:
		add(early.Reason, s.needs+", "+early.Detail)
	case kept != "":
		add(cluster.ReasonReqNodeNotAvail, kept)
	case len(all) > 0 && (near || loose): // enough nodes are free
	case near || loose && !spec.Request.HasLocality():
		add(cluster.ReasonPriority, fitsButDelays)
	case len(s.free) >= int(max(1, spec.Request.Nodes)) && spec.Request.HasLocality():
		add(cluster.ReasonResources, s.needs+"; enough resources are free, but not with the requested locality"+bounded(c))
	case len(all) == 0 && len(busyOf(s, spec)) > 0:
		add(cluster.ReasonResources, s.needs+"; not free: "+strings.Join(busyOf(s, spec), ", "))
	case len(all) == 0 && len(s.free) >= int(max(1, spec.Request.Nodes)) && len(cluster.FeatureSets(spec.Request.Features)) > 1:
		add(cluster.ReasonResources, s.needs+"; enough nodes are free, but not with the same features")
	case len(all) == 0:
		add(cluster.ReasonResources, s.needs+bounded(c))
	}
	return all
}

// busyOf returns the nodes that a job takes with others and that cannot serve it now.
func busyOf(s *nodeSurvey, spec *cluster.JobSpec) []string {
	if !spec.Request.IncludesList() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(spec.Request.NodeList), func(n string) bool { return slices.Contains(s.free, n) })
}

// changes returns the smallest changes of the request, one option at a time, with which the job would start
// now.
func (t *whatIf) changes() []string {
	if t.Starts(t.Job.Spec) {
		return nil
	}
	var found []string
	found = append(found, t.shorter()...)
	found = append(found, t.smaller()...)
	found = append(found, t.other()...)
	return append(found, t.without()...)
}

// with returns the job's specification with a change.
func (t *whatIf) with(change func(*cluster.JobSpec)) *cluster.JobSpec {
	spec := *t.Job.Spec
	change(&spec)
	return &spec
}

// most returns the largest number below the requested one with which the job starts; 0 for none. It assumes
// that a job which starts also starts with less; the returned number was tried.
func (t *whatIf) most(asked int64, set func(*cluster.JobSpec, int64)) int64 {
	best := int64(0)
	for low, high := int64(1), asked-1; low <= high; {
		middle := low + (high-low)/2
		if t.Starts(t.with(func(s *cluster.JobSpec) { set(s, middle) })) {
			best, low = middle, middle+1
		} else {
			high = middle - 1
		}
	}
	return best
}

// shorter returns a time limit with which the job ends before others need its place.
func (t *whatIf) shorter() []string {
	limit := eligible.TimeLimit(t.Job.Spec)
	set := func(s *cluster.JobSpec, n int64) { s.TimeLimit = time.Duration(n) * time.Minute }
	n := t.most(int64((limit+time.Minute-1)/time.Minute), set)
	if n == 0 {
		return nil
	}
	text := cluster.FormatLimit(time.Duration(n) * time.Minute)
	return []string{"--time=" + text}
}

// smaller returns fewer nodes, GPUs, CPUs, generic resources, or less memory.
func (t *whatIf) smaller() []string {
	q := &t.Job.Spec.Request
	var found []string
	try := func(asked int64, option string, set func(*cluster.Request, int64)) {
		n := t.most(asked, func(s *cluster.JobSpec, n int64) { set(&s.Request, n) })
		if n > 0 {
			found = append(found, fmt.Sprintf("%s=%d", option, n))
		}
	}
	total := q.GPUs > 0
	if !total {
		try(int64(q.Nodes), "--nodes", func(r *cluster.Request, n int64) { r.Nodes = int32(n) })
	}
	if q.GPUsPerNode > 0 && !total {
		try(int64(q.GPUsPerNode), "--gpus-per-node", func(r *cluster.Request, n int64) { r.GPUsPerNode = int32(n) })
	}
	if total && q.GPUsPerNode == 0 {
		try(int64(q.GPUs), "--gpus", func(r *cluster.Request, n int64) { r.GPUs = int32(n) })
	}
	try(int64(q.CPUsPerTask), "--cpus-per-task", func(r *cluster.Request, n int64) { r.CPUsPerTask = int32(n) })
	for i, g := range q.Gres {
		n := t.most(g.Count, func(s *cluster.JobSpec, n int64) {
			s.Request.Gres = slices.Clone(q.Gres)
			s.Request.Gres[i].Count = n
		})
		if n > 0 {
			g.Count = n
			found = append(found, g.Option())
		}
	}
	if gib := int64(q.MemPerNode / cluster.GiB); gib > 1 {
		n := t.most(gib, func(s *cluster.JobSpec, n int64) { s.Request.MemPerNode = cluster.Bytes(n) * cluster.GiB })
		if n > 0 {
			found = append(found, fmt.Sprintf("--mem=%dG", n))
		}
	}
	return found
}

// other returns other types of GPU, and other partitions.
func (t *whatIf) other() []string {
	var found []string
	if t.Job.Spec.Request.TotalGPUs() > 0 {
		for _, kind := range t.kinds() {
			one := []string{kind}
			if !slices.Equal(t.Job.Spec.Request.GPUTypes, one) && t.Starts(t.with(func(s *cluster.JobSpec) { s.Request.GPUTypes = one })) {
				found = append(found, t.typed(kind))
			}
		}
	}
	own := t.Job.Spec.AllPartitions()
	for i := range t.Snap.Policy.Partitions {
		name := t.Snap.Policy.Partitions[i].Name
		if slices.Contains(own, name) {
			continue
		}
		if t.Starts(t.with(func(s *cluster.JobSpec) { s.Partition, s.OtherPartitions = name, nil })) {
			found = append(found, "--partition="+name)
		}
	}
	return found
}

// typed returns the option that requests GPUs of a type.
func (t *whatIf) typed(kind string) string {
	if q := &t.Job.Spec.Request; q.GPUs == 0 {
		return fmt.Sprintf("--gpus-per-node=%s:%d", kind, q.GPUsPerNode)
	}
	return fmt.Sprintf("--gpus=%s:%d", kind, t.Job.Spec.Request.GPUs)
}

// kinds returns the types of GPU of the cluster, sorted.
func (t *whatIf) kinds() []string {
	var kinds []string
	for _, host := range t.Resources().Hosts {
		for i := range host.Pools {
			if k := host.Pools[i].Kind; !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
	}
	slices.Sort(kinds)
	return kinds
}

// without returns the conditions without which the job would start now.
func (t *whatIf) without() []string {
	q := &t.Job.Spec.Request
	var found []string
	try := func(asked bool, c string, drop func(*cluster.JobSpec)) {
		if asked && t.Starts(t.with(drop)) {
			found = append(found, c)
		}
	}
	try(q.HasLocality(), "--connect=any", func(s *cluster.JobSpec) {
		s.Request.Connect, s.Request.Switches, s.Request.SwitchWait = cluster.ConnectAny, 0, 0
	})
	try(q.GPUMemory > 0, "without --gpu-mem", func(s *cluster.JobSpec) { s.Request.GPUMemory = 0 })
	gres := "without --gres"
	if len(q.Gres) == 1 && q.Gres[0].Name == cluster.GresTmp {
		gres = "without --tmp"
	}
	try(len(q.Gres) > 0, gres, func(s *cluster.JobSpec) { s.Request.Gres = nil })
	try(q.Exclusive, "without --exclusive", func(s *cluster.JobSpec) { s.Request.Exclusive = false })
	try(len(q.NodeList) > 0, "without --nodelist", func(s *cluster.JobSpec) { s.Request.NodeList = nil })
	try(len(q.Exclude) > 0, "without --exclude", func(s *cluster.JobSpec) { s.Request.Exclude = nil })
	try(t.Job.Spec.Reservation != "", "without --reservation", func(s *cluster.JobSpec) { s.Reservation = "" })
	try(q.MaxPrice > 0, "without --max-price", func(s *cluster.JobSpec) { s.Request.MaxPrice = 0 })
	try(len(q.Regions) > 0, "without --region", func(s *cluster.JobSpec) { s.Request.Regions = nil })
	try(len(q.Features) > 0, "without --constraint", func(s *cluster.JobSpec) { s.Request.Features = nil })
	return found
}
