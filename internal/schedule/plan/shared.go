package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/order"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// A job that shares its GPU is planned as a job with a GPU of its own. It starts earlier when it can join jobs of the
// same sharers on a GPU: that needs a place there, and the GPU free from the end of the last of them until its own.
// So the profile has whole GPUs only: a shared one is booked from now on until its last job is expected to end, and
// no plan depends on a place on a GPU whose jobs have not started yet.

// sharedGPU is a GPU that jobs share.
type sharedGPU struct {
	running *Running
	node    string
	gpu     int32
	by      cluster.Sharers
	hosts   []int             // of the node
	lanes   []backfill.Amount // the GPU, on each host
	jobs    map[cluster.JobID]cluster.Instant
	until   cluster.Instant // until when it is booked: the last expected end of its jobs
	opened  uint64          // the number of openings when more became possible on it
}

// gpuID names a GPU.
type gpuID struct {
	node string
	gpu  int32
}

// sharedGPUs are the GPUs that jobs share. An opening is that more may be possible on some of them than before: the
// jobs of a class need no new search for a place where nothing was opened since their last one.
type sharedGPUs struct {
	byID     map[gpuID]*sharedGPU
	by       map[cluster.Sharers][]*sharedGPU // by node and index
	openings uint64
	licences uint64              // the number of openings when licences became free
	seen     backfill.FreedSoFar // what of the profile is in the openings
}

func newSharedGPUs() sharedGPUs {
	return sharedGPUs{byID: map[gpuID]*sharedGPU{}, by: map[cluster.Sharers][]*sharedGPU{}}
}

// add adds a GPU. O(GPUs of its sharers).
func (s *sharedGPUs) add(g *sharedGPU) {
	s.byID[gpuID{g.node, g.gpu}] = g
	i, _ := slices.BinarySearchFunc(s.by[g.by], g, (*sharedGPU).compare)
	s.by[g.by] = slices.Insert(s.by[g.by], i, g)
}

// remove is the inverse of add.
func (s *sharedGPUs) remove(g *sharedGPU) {
	delete(s.byID, gpuID{g.node, g.gpu})
	s.by[g.by] = slices.DeleteFunc(s.by[g.by], func(o *sharedGPU) bool { return o == g })
	if len(s.by[g.by]) == 0 {
		delete(s.by, g.by)
	}
}

// openOn records that something became free on hosts, and -1 for licences; nil for all. O(shared GPUs).
func (t *Running) openOn(hosts map[int]bool) {
	s := &t.shared
	if len(s.byID) == 0 || hosts != nil && len(hosts) == 0 {
		return
	}
	s.openings++
	if hosts == nil || hosts[-1] {
		s.licences = s.openings
	}
	for _, g := range s.byID {
		if hosts == nil || slices.ContainsFunc(g.hosts, func(h int) bool { return hosts[h] }) {
			g.opened = s.openings
		}
	}
}

// open records what became free in the profile since the last call.
func (t *Running) open() {
	s := &t.shared
	if s.seen == t.profile.Freed() {
		return
	}
	hosts := map[int]bool{}
	if !t.profile.FreedSince(s.seen, func(h int) { hosts[h] = true }) {
		hosts = nil
	}
	s.seen = t.profile.Freed()
	t.openOn(hosts)
}

func (g *sharedGPU) compare(o *sharedGPU) int {
	return cmp.Or(strings.Compare(g.node, o.node), cmp.Compare(g.gpu, o.gpu))
}

// sharedBy returns the GPU that a running job shares; nil if it shares none.
func (t *Running) sharedBy(job *cluster.Job) *sharedGPU {
	if !sharesGPU(job) {
		return nil
	}
	return t.shared.byID[gpuID{job.Alloc.Nodes[0].Node, job.Alloc.Nodes[0].GPUs[0]}]
}

// sharesGPU reports whether a running job shares its GPU.
func sharesGPU(job *cluster.Job) bool {
	return job.Spec.Request.Share.On() && job.Alloc != nil && len(job.Alloc.Nodes) == 1 && len(job.Alloc.Nodes[0].GPUs) == 1
}

// newShared returns a GPU that no job shares yet; nil if its node is unknown.
func (t *Running) newShared(job *cluster.Job, node string, gpu int32) *sharedGPU {
	h, known := t.res.index[node]
	if !known {
		return nil
	}
	by, _ := job.Spec.Sharers()
	g := &sharedGPU{running: t, node: node, gpu: gpu, by: by, hosts: []int{h}, jobs: map[cluster.JobID]cluster.Instant{}}
	for _, r := range t.res.reserved[node] {
		if r.host != noHost {
			g.hosts = append(g.hosts, r.host)
		}
	}
	for _, h := range g.hosts {
		g.lanes = append(g.lanes, backfill.Amount{GPUs: t.lanes(h, []int32{gpu})})
	}
	return g
}

// share adds a job to those that have a GPU until an instant, or changes the instant. It returns the GPU.
func (t *Running) share(job *cluster.Job, node string, gpu int32, until cluster.Instant) *sharedGPU {
	g := t.shared.byID[gpuID{node, gpu}]
	if g == nil {
		if g = t.newShared(job, node, gpu); g == nil {
			return nil
		}
		t.shared.add(g)
		t.taken[g.hosts[0]] = t.taken[g.hosts[0]].With(gpu)
		for i, h := range g.hosts {
			t.unallocated[h].Subtract(&g.lanes[i])
		}
	}
	g.jobs[job.ID] = until
	g.book()
	return g
}

// leave removes a job from those that have the GPU.
func (g *sharedGPU) leave(id cluster.JobID) {
	delete(g.jobs, id)
	g.book()
	if t := g.running; len(g.jobs) == 0 {
		t.shared.remove(g)
		t.taken[g.hosts[0]] = t.taken[g.hosts[0]].Minus(topology.GPUSet{}.With(g.gpu))
		for i, h := range g.hosts {
			t.unallocated[h].Add(&g.lanes[i])
		}
	}
}

// book books the GPU until the last expected end of its jobs.
func (g *sharedGPU) book() {
	now := g.running.profile.Now()
	last := now
	for _, until := range g.jobs {
		last = max(last, until)
	}
	from := max(now, g.until)
	for i, h := range g.hosts {
		if last > from {
			g.running.profile.Take(h, from, last, &g.lanes[i])
		} else if last < from {
			g.running.profile.Release(h, last, from, &g.lanes[i])
		}
	}
	g.until = last
	g.running.shared.openings++
	g.opened = g.running.shared.openings
}

// overlapsPlan reports whether the GPU is planned for another job in an interval in which its jobs do not have it.
func (g *sharedGPU) overlapsPlan(from, to cluster.Instant) bool {
	if from = max(from, g.until, g.running.profile.Now()); from >= to {
		return false
	}
	for i, h := range g.hosts {
		if free := g.running.profile.Row(h).Window(from, to); !free.GPUs.Covers(g.lanes[i].GPUs) {
			return true
		}
	}
	return false
}

// sharedOverlapsPlan reports whether the GPU that a job shares is planned for another job in an interval.
func (t *Running) sharedOverlapsPlan(j *RunningJob, from, to cluster.Instant) bool {
	if !sharesGPU(j.job) {
		return false
	}
	g := t.sharedBy(j.job)
	if g == nil {
		if g = t.newShared(j.job, j.job.Alloc.Nodes[0].Node, j.job.Alloc.Nodes[0].GPUs[0]); g == nil {
			return false
		}
	}
	return g.overlapsPlan(from, to)
}

// placeOn returns a start of an entry now, in a place on a GPU that jobs share.
func (p *Pass) placeOn(e *Entry, g *sharedGPU) (s backfill.Start, choice int, ok bool) {
	profile, now := p.bookings.Profile, p.Snap.Now
	h, _, known := p.res.hostOf(e.Job.Spec, g.node)
	at := slices.Index(g.hosts, h)
	if !known || at < 0 {
		return s, 0, false
	}
	lane := &g.lanes[at]
	if e.At > 0 {
		w := e.Class.want(e.Choice)
		profile.Hide(w, e.At, e.Shares)
		defer profile.Show(w, e.At, e.Shares)
	}
	profile.Opened(h, now, g.until, lane, func() {
		for i := range e.Class.Options {
			for _, kind := range p.kindsOn(e.Job, g) {
				promise := &cluster.Promise{At: now, Partition: e.Class.Options[i].Partition, Kind: kind, Hosts: []cluster.NodeShare{{Node: g.node, GPUs: 1}}}
				if s, choice, ok = p.kept(e, promise, now, &priorPlan{}); !ok {
					continue
				}
				s.Shares[0].Amount.GPUs = lane.GPUs
				if ok = profile.Fits(e.Class.want(choice), now, s.Shares); ok {
					return
				}
			}
		}
	})
	return s, choice, ok
}

// kindsOn returns the type by which a job may have the GPU, "" if it names none; nothing if it may not have it,
// whatever the other GPUs of the node are.
func (p *Pass) kindsOn(job *cluster.Job, g *sharedGPU) []string {
	n, q := p.res.Nodes[g.node], &job.Spec.Request
	switch {
	case n == nil || int(g.gpu) >= len(n.GPUs) || n.GPUs[g.gpu].Memory < q.GPUMemory || !q.AcceptsGPU(n.GPUs[g.gpu].Type):
		return nil
	case len(q.GPUTypes) == 0:
		return []string{""}
	}
	return []string{n.GPUs[g.gpu].Type}
}

// mayJoin reports whether a job may have a place on a GPU of its sharers now: there is one, as well as CPUs and memory,
// and something became possible there since there was none for a job of its class. A booking of the job itself that
// begins now is a place that others do not have.
func (p *Pass) mayJoin(e *Entry, g *sharedGPU, tried uint64) bool {
	q, now := &e.Job.Spec.Request, p.Snap.Now
	opened := g.opened
	if len(q.Licences) > 0 {
		opened = max(opened, p.running.shared.licences)
	}
	switch {
	case len(g.jobs) >= int(q.Share.Jobs):
		return false
	case e.At > 0 && e.At <= now && slices.ContainsFunc(e.Shares, func(s backfill.HostShare) bool { return slices.Contains(g.hosts, s.Host) }):
		return true
	case opened <= tried:
		return false
	}
	h := g.hosts[0] // such jobs use no reservation
	free := p.bookings.Profile.Row(h).Free(now)
	return free.CPUs >= q.CPUsPerNode() && free.Slots > 0 && free.Memory >= q.MemoryRule().On(p.res.Hosts[h].Size, 1)
}

// join plans the start of a job now on a GPU that jobs like it share, on the one with the most of them. It reports
// whether there is one. O(GPUs of its sharers + those that it may join × search of a host).
func (p *Pass) join(e *Entry) bool {
	by, _ := e.Job.Spec.Sharers()
	p.running.open()
	var list []*sharedGPU
	for _, g := range p.running.shared.by[by] {
		if p.mayJoin(e, g, e.Class.tried[by]) {
			list = append(list, g)
		}
	}
	slices.SortStableFunc(list, func(a, b *sharedGPU) int { return cmp.Compare(len(b.jobs), len(a.jobs)) })
	for _, g := range list {
		p.joins++
		s, choice, ok := p.placeOn(e, g)
		if !ok {
			continue
		}
		s.Shares[0].Amount.GPUs = 0
		if e.At > 0 {
			p.freeForNext(e)
			p.bookings.rebook(e, s, choice)
		} else {
			p.bookings.Book(e, s, choice)
		}
		e.shared = p.running.share(e.Job, g.node, g.gpu, s.At.Add(e.Class.want(choice).Lasts))
		p.markChanged(e)
		return true
	}
	if e.Class.tried == nil {
		e.Class.tried = map[cluster.Sharers]uint64{}
	}
	e.Class.tried[by] = p.running.shared.openings
	return false
}

// beginSharing makes the GPU of a start one that later jobs can join.
func (p *Pass) beginSharing(e *Entry) {
	share := e.Shares[0]
	a := p.allocate(&share, p.used)
	if len(a.GPUs) != 1 {
		return // another pass plans it again
	}
	share.Amount.GPUs = 0
	p.bookings.rebook(e, backfill.Start{At: e.At, Kind: e.Kind, Shares: []backfill.HostShare{share}}, e.Choice)
	e.shared = p.running.share(e.Job, a.Node, a.GPUs[0], e.At.Add(e.Class.want(e.Choice).Lasts))
}

// maxJoins is after how many searches for places on shared GPUs a pass ends; the next one goes on from there.
const maxJoins = 1000

// startSharing starts jobs that are planned for later, or not at all, on GPUs that jobs like them share, in order. It
// comes after the starts that are due: what they need is in the profile. O(jobs that share × GPUs of their sharers +
// maxJoins searches of a host).
func (p *Pass) startSharing() {
	list := p.joiners()
	first := 0
	if p.joinsLeft {
		first, _ = slices.BinarySearchFunc(list, &p.nextJoin, func(e *Entry, r *order.Rank) int { return e.Rank.Compare(r) })
		first %= max(len(list), 1)
	}
	p.joins, p.joinsLeft = 0, false
	for n := range list {
		e := list[(first+n)%len(list)]
		if len(p.Starts) == MaxStarts {
			p.More = true
			return
		}
		if p.joins >= maxJoins {
			p.nextJoin, p.joinsLeft = e.Rank, true
			// A pass that plans all jobs again knows nothing of earlier searches: it must not begin a second round.
			p.More = p.More || !p.full || first+n < len(list)
			return
		}
		if p.startNames[eligible.JobNameOf(e.Job)] && eligible.IsSingleton(e.Job.Spec) {
			continue
		}
		if _, limited := p.Check.Limits.First(e.Job); limited {
			continue
		}
		if _, exceeded := p.promises.exceeded(e.Job); exceeded && !p.promises.jobs[e] {
			continue
		}
		if !p.join(e) {
			continue
		}
		p.bookings.due.Remove(e.place)
		p.start(e)
	}
}

// joiners returns the jobs that may start on a GPU with a place for another job of their sharers, in order.
func (p *Pass) joiners() []*Entry {
	p.sharing = slices.DeleteFunc(p.sharing, func(e *Entry) bool { return e.removed || e.Starting || e.blocked != nil })
	open := map[cluster.Sharers]bool{}
	for by, gpus := range p.running.shared.by {
		open[by] = slices.ContainsFunc(gpus, func(g *sharedGPU) bool { return len(g.jobs) < int(by.Jobs) })
	}
	var list []*Entry
	for _, e := range p.sharing {
		if by, _ := e.Job.Spec.Sharers(); open[by] && e.Eligible() {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, compareRanks)
	return list
}

// shareOf returns what a start on a shared GPU is granted.
func (e *Entry) shareOf(r *Resources) cluster.NodeAllocation {
	a := &e.Shares[0].Amount
	return cluster.NodeAllocation{Node: r.Hosts[e.Shares[0].Host].Name, GPUs: []int32{e.shared.gpu}, CPUs: a.CPUs, Memory: a.Memory}
}
