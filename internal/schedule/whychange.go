package schedule

import (
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// whatIf is a plan of all that goes before one job, in which other requests of the job
// are tried. What goes before it are the jobs served first, and promises.
type whatIf struct {
	p   *Planner
	r   *pass
	job *cluster.Job
}

// newTrial plans everything but the job and what comes after it. Those behind are
// held, not left out: others may depend on them. Promises stay where they are, or are brought
// forward as a pass does.
func newTrial(snap *cluster.Snapshot, job *cluster.Job, before []*cluster.Job, stay bool) *whatIf {
	first := make(map[cluster.JobID]bool, len(before))
	for _, j := range before {
		first[j.ID] = true
	}
	shot := *snap
	shot.Pending = make([]*cluster.Job, 0, len(snap.Pending))
	for _, j := range snap.Pending {
		if j.ID == job.ID || !first[j.ID] && j.Promise == nil && j.Hold == cluster.NotHeld {
			behind := *j
			behind.Hold, behind.Promise = cluster.HeldByUser, nil
			j = &behind
		}
		shot.Pending = append(shot.Pending, j)
	}
	t := &whatIf{p: NewPlanner(), r: newRound(&shot), job: job}
	t.r.stay = stay
	t.p.replan(t.r, false)
	t.p.startDue(t.r)
	return t
}

// starts reports whether the job would start now if it asked for something else.
func (t *whatIf) starts(spec *cluster.JobSpec) bool {
	job := *t.job
	job.Spec = spec
	if _, barred := t.p.bar(t.r, &job); barred {
		return false
	}
	if _, away := t.p.promisedAway(t.r, &job); away {
		return false
	}
	c := t.class(spec)
	if len(c.options) == 0 {
		return false
	}
	now := t.r.snap.Now
	_, _, ok := t.p.find(c, now, now+1, (*backfill.Profile).Search)
	return ok
}

func (t *whatIf) class(spec *cluster.JobSpec) *requestClass {
	c := &requestClass{spec: spec}
	t.p.prepareSearches(t.r, c)
	return c
}

// lacks is what keeps a job that may start: that not enough is free, near enough
// to each other, of licences too, or that what is free is kept for others.
func (t *whatIf) lacks(s *nodeSurvey) []verdict {
	spec := t.job.Spec
	if t.starts(spec) {
		return nil
	}
	c := t.class(spec)
	if len(c.options) == 0 {
		return []verdict{c.never}
	}
	if v, away := t.p.promisedAway(t.r, t.job); away && t.job.Promise == nil {
		return []verdict{v}
	}
	var all []verdict
	for _, l := range spec.Request.Licences {
		if row := t.p.ground.licences[l.Name]; !t.p.profile.HasExtra(row, t.r.snap.Now, l.Count) {
			all = append(all, verdict{cluster.ReasonLicenses, fmt.Sprintf("needs %d of licence %q, of which there are %d", l.Count, l.Name, t.p.ground.counts[row])})
		}
	}
	loose, near := false, false
	for i := range c.options {
		o := &c.options[i]
		loose = loose || o.any != nil && t.p.profile.FitsIn(o.any, t.r.freeNow(t.p), nil)
		near = near || o.near != nil && t.p.profile.FitsIn(o.near, t.r.freeNow(t.p), nil)
	}
	c.fits = near || loose
	early, notYet := t.r.early(spec)
	kept := t.p.keptFrom(t.r, c)
	switch {
	case notYet && kept != "" && t.job.Planned == 0:
		all = append(all, verdict{cluster.ReasonReqNodeNotAvail, kept + ", " + early.detail})
	case notYet:
		all = append(all, verdict{early.reason, s.needs + ", " + early.detail})
	case kept != "":
		all = append(all, verdict{cluster.ReasonReqNodeNotAvail, kept})
	case len(all) > 0 && (near || loose): // of nodes nothing is lacking
	case near || loose && !spec.Request.HasLocality():
		all = append(all, verdict{cluster.ReasonPriority, fitsButDelays})
	case len(s.fit) >= int(max(1, spec.Request.Nodes)) && spec.Request.HasLocality():
		all = append(all, verdict{cluster.ReasonResources, s.needs + "; enough is free, but not near enough to each other" + c.bounded()})
	case len(all) == 0:
		all = append(all, verdict{cluster.ReasonResources, s.needs + c.bounded()})
	}
	return all
}

// maxDelayed is how many planned starts are looked at to tell which of them a job would
// delay: each costs a search or two.
const maxDelayed = 256

// delayed is when the job could start if no other waited, and the jobs whose planned starts
// would have to make room for that: the fewest that are as far back in order as can be. Of
// more than maxDelayed that might be in its way the first stay where they are.
func (t *whatIf) delayed() (cluster.Instant, []*cluster.Job) {
	now, c := t.r.snap.Now, t.class(t.job.Spec)
	if len(c.options) == 0 {
		return 0, nil
	}
	type place struct {
		*entry
		start  backfill.Start
		choice int
	}
	var planned []place
	for _, e := range t.p.due.Items() {
		if !e.starts && e.at > now {
			planned = append(planned, place{e, backfill.Start{At: e.at, Kind: e.kind, Shares: e.shares}, e.choice})
		}
	}
	slices.SortFunc(planned, func(a, b place) int { return a.rank.compare(&b.rank) })
	planned = planned[max(0, len(planned)-maxDelayed):]
	for _, x := range planned {
		t.p.unbook(x.entry)
	}
	first, _, ever := t.p.find(c, now, cluster.Never, (*backfill.Profile).Search)
	fits := func() bool {
		_, _, ok := t.p.find(c, first.At, first.At+1, (*backfill.Profile).Search)
		return ok
	}
	var others []*cluster.Job
	for _, x := range planned {
		if t.p.book(x.entry, x.start, x.choice); ever && !fits() {
			t.p.unbook(x.entry)
			others = append(others, x.job)
			defer t.p.book(x.entry, x.start, x.choice)
		}
	}
	return first.At, others
}

// changes is what of the request could be smaller so that the job starts now, one
// thing at a time, and as little of it as does.
func (t *whatIf) changes() []string {
	if t.starts(t.job.Spec) {
		return nil
	}
	var found []string
	found = append(found, t.shorter()...)
	found = append(found, t.smaller()...)
	found = append(found, t.other()...)
	return append(found, t.without()...)
}

// with is the job's specification with something changed.
func (t *whatIf) with(change func(*cluster.JobSpec)) *cluster.JobSpec {
	spec := *t.job.Spec
	change(&spec)
	return &spec
}

// most is the largest number below the one asked for with which the job starts; 0
// for none. What starts is thought to start with less, too; the answer was tried.
func (t *whatIf) most(asked int64, set func(*cluster.JobSpec, int64)) int64 {
	best := int64(0)
	for low, high := int64(1), asked-1; low <= high; {
		middle := low + (high-low)/2
		if t.starts(t.with(func(s *cluster.JobSpec) { set(s, middle) })) {
			best, low = middle, middle+1
		} else {
			high = middle - 1
		}
	}
	return best
}

// shorter is a time limit with which it ends before others need its place.
func (t *whatIf) shorter() []string {
	limit := limitOf(t.job.Spec)
	set := func(s *cluster.JobSpec, n int64) { s.TimeLimit = time.Duration(n) * time.Minute }
	n := t.most(int64((limit+time.Minute-1)/time.Minute), set)
	if n == 0 {
		return nil
	}
	text := cluster.FormatLimit(time.Duration(n) * time.Minute)
	return []string{"--time=" + text}
}

// smaller is fewer nodes, GPUs and CPUs.
func (t *whatIf) smaller() []string {
	q := &t.job.Spec.Request
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
	if gib := int64(q.MemPerNode / cluster.GiB); gib > 1 {
		n := t.most(gib, func(s *cluster.JobSpec, n int64) { s.Request.MemPerNode = cluster.Bytes(n) * cluster.GiB })
		if n > 0 {
			found = append(found, fmt.Sprintf("--mem=%dG", n))
		}
	}
	return found
}

// other is another type of GPU, one of several where a limit is on others, another partition.
func (t *whatIf) other() []string {
	var found []string
	if t.job.Spec.Request.TotalGPUs() > 0 {
		for _, kind := range t.kinds() {
			one := []string{kind}
			if !slices.Equal(t.job.Spec.Request.GPUTypes, one) && t.starts(t.with(func(s *cluster.JobSpec) { s.Request.GPUTypes = one })) {
				found = append(found, t.typed(kind))
			}
		}
	}
	own := partitions(t.job.Spec)
	for i := range t.r.snap.Policy.Partitions {
		name := t.r.snap.Policy.Partitions[i].Name
		if slices.Contains(own, name) {
			continue
		}
		if t.starts(t.with(func(s *cluster.JobSpec) { s.Partition, s.Others = name, nil })) {
			found = append(found, "--partition="+name)
		}
	}
	return found
}

// typed is the option that asks for GPUs of a type.
func (t *whatIf) typed(kind string) string {
	if q := &t.job.Spec.Request; q.GPUs == 0 {
		return fmt.Sprintf("--gpus-per-node=%s:%d", kind, q.GPUsPerNode)
	}
	return fmt.Sprintf("--gpus=%s:%d", kind, t.job.Spec.Request.GPUs)
}

// kinds is the types of GPU of the cluster, sorted.
func (t *whatIf) kinds() []string {
	var kinds []string
	for _, host := range t.p.ground.hosts {
		for i := range host.Pools {
			if k := host.Pools[i].Kind; !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
	}
	slices.Sort(kinds)
	return kinds
}

// without is the request without one of its conditions.
func (t *whatIf) without() []string {
	q := &t.job.Spec.Request
	var found []string
	try := func(asked bool, c string, drop func(*cluster.JobSpec)) {
		if asked && t.starts(t.with(drop)) {
			found = append(found, c)
		}
	}
	try(q.HasLocality(), "--connect=any", func(s *cluster.JobSpec) {
		s.Request.Connect, s.Request.Switches, s.Request.SwitchWait = cluster.ConnectAny, 0, 0
	})
	try(q.GPUMemory > 0, "without --gpu-mem", func(s *cluster.JobSpec) { s.Request.GPUMemory = 0 })
	try(q.Exclusive, "without --exclusive", func(s *cluster.JobSpec) { s.Request.Exclusive = false })
	try(len(q.NodeList) > 0, "without --nodelist", func(s *cluster.JobSpec) { s.Request.NodeList = nil })
	try(len(q.Exclude) > 0, "without --exclude", func(s *cluster.JobSpec) { s.Request.Exclude = nil })
	try(t.job.Spec.Reservation != "", "without --reservation", func(s *cluster.JobSpec) { s.Reservation = "" })
	try(q.MaxPrice > 0, "without --max-price", func(s *cluster.JobSpec) { s.Request.MaxPrice = 0 })
	try(len(q.Regions) > 0, "without --region", func(s *cluster.JobSpec) { s.Request.Regions = nil })
	try(len(q.Features) > 0, "without --constraint", func(s *cluster.JobSpec) { s.Request.Features = nil })
	return found
}
