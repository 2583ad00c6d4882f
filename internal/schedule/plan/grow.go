package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// growth is the search for extra nodes of one job.
type growth struct {
	*Pass
	job   *cluster.Job
	class *Class // of the nodes of one step
	has   int32
	most  int32
	got   []cluster.NodeAllocation
}

// Grow decides which jobs get extra nodes: those that start in this pass and running ones, the highest tier and the
// longest running first. It comes last, so that extra nodes are in no plan.
func (p *Pass) Grow() (grants []cluster.NodeGrant) {
	if !p.Settled() {
		return nil
	}
	var undo []func()
	defer func() {
		for _, f := range undo {
			f()
		}
	}()
	for i := range p.Starts {
		s := &p.Starts[i]
		e := p.entries[s.Job]
		if e == nil || !e.Job.Spec.Elastic.On() {
			continue
		}
		job := *e.Job
		job.Alloc, job.Partition, job.Started = &cluster.Allocation{Nodes: s.Placement.Nodes}, s.Partition, p.Snap.Now
		g := p.grow(&job, &undo)
		s.Placement.Nodes = append(s.Placement.Nodes, g.got...)
	}
	for _, job := range p.growing() {
		if g := p.grow(job, &undo); len(g.got) > 0 {
			grants = append(grants, cluster.NodeGrant{Job: job.ID, Attempt: job.Attempt, Epoch: job.Members.Epoch, Nodes: g.got})
		}
	}
	return grants
}

// growing returns the running jobs that may grow now, in order.
func (p *Pass) growing() (list []*cluster.Job) {
	for _, j := range p.running.elastic {
		if p.GrowthObstacle(j.job) == "" {
			list = append(list, j.job)
		}
	}
	tier := func(j *cluster.Job) int32 { return p.res.QOS[j.Spec.QOS].Tier }
	slices.SortFunc(list, func(a, b *cluster.Job) int {
		return cmp.Or(cmp.Compare(tier(b), tier(a)), cmp.Compare(a.Started, b.Started), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// GrowthObstacle returns why a running elastic job gets no extra nodes now, whatever is idle; "" if it may.
func (p *Pass) GrowthObstacle(job *cluster.Job) string {
	rules := &p.Snap.Policy.Elastic
	most := p.mostNodes(job)
	switch {
	case job.State != cluster.Running:
		return "it is " + job.State.String()
	case job.Preempting != nil:
		return "it is being preempted"
	case int32(job.NodeCount()) >= most && most < job.Spec.Request.MaxNodes:
		return fmt.Sprintf("partition %q allows %s", job.Partition, words.Count(most, "node"))
	case int32(job.NodeCount()) >= most:
		return fmt.Sprintf("it has its maximum of %s (--nodes)", words.Count(most, "node"))
	case job.Members.Changing():
		return "its nodes are changing"
	case job.MostMore() < job.Spec.Elastic.Step:
		return fmt.Sprintf("its nodes have changed %s, and each extra node must be able to leave within %d; gctl requeue %s begins another attempt",
			words.Count(int64(job.Members.Resizes), "time"), cluster.MaxResizes, job.Ref())
	case growsFrom(p.Snap.Policy, job) > p.Snap.Now:
		return fmt.Sprintf("its nodes changed at %s, and it grows at the earliest at %s, %s later (elastic.interval)",
			words.Instant(job.Members.Resized), words.Instant(growsFrom(p.Snap.Policy, job)), cluster.FormatElapsed(rules.Interval))
	case job.Limit() > 0 && job.Limit().Sub(p.Snap.Now) < rules.MinTime:
		return fmt.Sprintf("less than %s of its time limit is left (elastic.min_time)", cluster.FormatElapsed(rules.MinTime))
	}
	return ""
}

// ExplainGrowth returns why a running elastic job gets no extra nodes now; "" if it gets some.
func (p *Pass) ExplainGrowth(job *cluster.Job) string {
	if why := p.GrowthObstacle(job); why != "" {
		return why
	}
	var undo []func()
	g := p.grow(job, &undo)
	for _, f := range undo {
		f()
	}
	step := job.Spec.Elastic.Step
	if o, limited := p.limitsGrowth(job, g.has, step); limited && len(g.got) == 0 {
		return o
	}
	if len(g.got) == 0 {
		return fmt.Sprintf("it needs %s more that are suitable, idle, and not planned for other jobs for %s (elastic.min_time)", words.Count(step, "node"), cluster.FormatElapsed(p.extraTime()))
	}
	return ""
}

// mostNodes returns the most nodes that a job may have where it runs.
func (p *Pass) mostNodes(job *cluster.Job) int32 {
	q := &job.Spec.Request
	most := q.MaxNodes
	if part := p.res.parts[job.Partition]; part != nil && part.MaxNodes > 0 {
		most = min(most, part.MaxNodes)
	}
	return most - (most-q.Nodes)%job.Spec.Elastic.Step
}

// extraTime returns for how long a node is in no plan at least when it is granted.
func (p *Pass) extraTime() time.Duration {
	return max(p.Snap.Policy.Elastic.MinTime, p.res.Lead, time.Second)
}

// grow finds as many extra nodes for a job as it may get, in whole steps. undo gets what removes them from the profile.
func (p *Pass) grow(job *cluster.Job, undo *[]func()) *growth {
	g := &growth{Pass: p, job: job, has: int32(job.NodeCount()), most: p.mostNodes(job)}
	if job.Members != nil {
		g.most = min(g.most, g.has+job.MostMore())
	}
	step := job.Spec.Elastic.Step
	spec := p.stepSpec(job)
	if spec == nil {
		return g
	}
	g.class = p.classes.create(spec, nil, job.ID)
	*undo = append(*undo, func() {
		for i := range g.class.Options {
			p.classes.drop(&g.class.Options[i])
		}
	})
	var hosts []int // that it has got
	for len(g.class.Options) > 0 && g.has+step <= g.most {
		if _, limited := p.limitsGrowth(job, g.has, step); limited {
			break
		}
		var s backfill.Start
		choice, ok := 0, false
		p.bookings.Profile.Closed(hosts, p.Snap.Now, p.Snap.Now.Add(p.extraTime()), func() {
			s, choice, ok = p.bookings.Find(g.class, p.Snap.Now, p.Snap.Now+1)
		})
		if !ok {
			break
		}
		w := g.class.want(choice)
		p.bookings.Profile.Book(w, s.At, s.Shares)
		*undo = append(*undo, func() { p.bookings.Profile.Hide(w, s.At, s.Shares) })
		for i := range s.Shares {
			g.got, hosts = append(g.got, p.allocate(&s.Shares[i], p.used)), append(hosts, s.Shares[i].Host)
		}
		p.Check.Limits.Grow(job.Spec, g.has, step)
		g.has += step
	}
	slices.SortFunc(g.got, func(a, b cluster.NodeAllocation) int { return strings.Compare(a.Node, b.Node) })
	return g
}

// limitsGrowth returns why limits keep a job from getting more nodes than it has, what is promised to others included.
func (p *Pass) limitsGrowth(job *cluster.Job, has, more int32) (string, bool) {
	if o, limited := p.Check.Limits.ExceededByGrowth(job.Spec, has, more); limited {
		return o.Detail, true
	}
	if !p.Check.Limits.Limited() {
		return "", false
	}
	extra := *job
	extra.Spec = job.Spec.OnNodes(more)
	o, exceeded := p.promises.exceeded(&extra)
	return o.Detail, exceeded
}

// stepSpec returns the specification of a job that would run for a short time on the extra nodes of one step: of the same
// type, in the same partition, and neither its own nor reserved nor avoided nor leased for less time than the job has left. Nil if
// it has lost its GPUs.
func (p *Pass) stepSpec(job *cluster.Job) *cluster.JobSpec {
	spec := *job.Spec
	q := &spec.Request
	spec.Partition, spec.OtherPartitions, spec.TimeLimit = job.Partition, nil, p.extraTime()
	if q.IncludesList() {
		q.NodeList = nil
	}
	q.Nodes, q.MaxNodes, q.Licences = spec.Elastic.Step, 0, nil
	first := p.res.Nodes[job.Alloc.Nodes[0].Node]
	if gpus := job.Alloc.Nodes[0].GPUs; len(gpus) > 0 {
		if first == nil || int(gpus[0]) >= len(first.GPUs) {
			return nil
		}
		q.GPUTypes = []string{first.GPUs[gpus[0]].Type}
	}
	if sets := cluster.FeatureSets(q.Features); len(sets) > 1 && first != nil {
		for _, set := range sets {
			if !slices.ContainsFunc(set, func(f string) bool { return !cluster.HasFeatures(first.Features, f) }) {
				q.Features = set
				break
			}
		}
	}
	q.Exclude = slices.Clone(q.Exclude)
	for i := range job.Alloc.Nodes {
		q.Exclude = append(q.Exclude, job.Alloc.Nodes[i].Node)
	}
	for i := range job.Avoided {
		if a := &job.Avoided[i]; a.Until > p.Snap.Now {
			q.Exclude = append(q.Exclude, a.Node)
		}
	}
	if spec.Reservation == "" {
		q.Exclude = append(q.Exclude, p.res.ReservedNodes()...)
	}
	for _, n := range p.res.leased {
		if limit := job.Limit(); limit == 0 || n.Rental.Until < limit {
			q.Exclude = append(q.Exclude, n.Name)
		}
	}
	return &spec
}
