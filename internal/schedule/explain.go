package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// explain is the last step: it gives every job that waits, and of which something
// changed, its reason, its planned start and its promise.
func (p *Planner) explain(r *pass) {
	horizon := p.horizon(r)
	if r.limits.bounds != nil { // of those that a limit has not room for, the first is promised
		slices.SortStableFunc(r.told, func(a, b *entry) int { return cmp.Or(cmp.Compare(a.at, b.at), a.rank.compare(&b.rank)) })
	}
	for _, e := range r.told {
		if e.gone || e.starts || p.entries[e.job.ID] != e {
			continue
		}
		if e.at > 0 && e.at <= r.snap.Now { // the pass that follows at once starts it, or tells it why not
			continue
		}
		p.explainOne(r, e, horizon)
	}
}

// horizon is up to when planned starts become promises.
func (p *Planner) horizon(r *pass) cluster.Instant {
	switch h := r.snap.Policy.Scheduling.PromiseHorizon; {
	case h < 0:
		return cluster.Never
	case h == 0:
		return 0
	default:
		return r.snap.Now.Add(h)
	}
}

func (p *Planner) explainOne(r *pass, e *entry, horizon cluster.Instant) {
	v := cluster.Verdict{Job: e.job.ID, Reason: e.why.reason, Detail: e.why.detail, Broken: e.broken}
	if e.class != nil && e.kept == nil {
		v.Reason, v.Detail = p.shortage(r, e)
		v.Detail += r.outside(e) + p.ground.lowered.says(e.job.Spec)
		if len(e.job.Spec.Others) > 0 && e.at > 0 {
			v.Detail += fmt.Sprintf("; planned in partition %q", e.class.options[e.choice/2].part.Name)
		}
		v.Detail += e.class.refused
		v.Planned = shown(r.snap.Now, e.at)
		late := tooLate(e)
		if late {
			v.Detail += "; as planned it would miss its deadline"
		}
		if e.at > 0 && v.Planned > 0 && e.at <= horizon && !late && !e.promised && (p.pledged[e] || p.mayPromise(r, e.job)) {
			p.pledge(r, e)
			p.soft--
		}
		if e.promised {
			v.Promise = p.promiseOf(e)
		}
	}
	j := e.job
	if j.Promise != nil && v.Broken == "" && (v.Promise == nil || v.Promise.At > j.Promise.At) {
		if v.Broken = e.why.detail; v.Broken == "" {
			v.Broken = p.brokenReason(r, e, j.Promise)
		}
	}
	e.broken, e.changed = "", ""
	if j.Reason == v.Reason && j.Detail == v.Detail && j.Planned == v.Planned && v.Broken == "" && samePromise(j.Promise, v.Promise) {
		return
	}
	r.decision.Plan.Verdicts = append(r.decision.Plan.Verdicts, v)
}

// tooLate reports whether a planned start is one that a job with a deadline will not
// live to see. It keeps its place, since it may be brought forward, but no promise is
// made of it.
func tooLate(e *entry) bool {
	d := e.job.Spec.Deadline
	return d > 0 && e.at > d.Add(-e.job.Spec.TimeLimit)
}

func samePromise(a, b *cluster.Promise) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.At == b.At && a.Partition == b.Partition && a.Kind == b.Kind && slices.Equal(a.Hosts, b.Hosts)
}

// shown is the planned start that users see: none when it rests on the guess for
// jobs without a limit, and full seconds.
func shown(now, at cluster.Instant) cluster.Instant {
	if at == 0 || at.Sub(now) > unlimitedTime/2 {
		return 0
	}
	const second = 1e9
	return (at + second - 1) / second * second
}

// shortage is why an eligible job does not start now: not enough is free, or what
// is free is kept for jobs before it.
func (p *Planner) shortage(r *pass, e *entry) (cluster.Reason, string) {
	c := e.class
	if c.judged != r.number {
		free := r.freeNow(p)
		c.judged, c.fits = r.number, p.fitsIn(c, free, r.open)
		c.kept = p.keptFrom(r, c)
	}
	spec := e.job.Spec
	needs := c.needs()
	if spec.Reservation != "" {
		v, early := r.early(spec)
		switch {
		case early && c.kept != "" && e.at == 0:
			return cluster.ReasonReqNodeNotAvail, c.kept + ", " + v.detail
		case early:
			return v.reason, needs + ", " + v.detail
		}
		needs += fmt.Sprintf(", within reservation %q", spec.Reservation)
	}
	for _, l := range spec.Request.Licences {
		if row := p.ground.licences[l.Name]; !p.profile.HasExtra(row, r.snap.Now, l.Count) {
			return cluster.ReasonLicenses, fmt.Sprintf("needs %d of licence %q, of which there are %d", l.Count, l.Name, p.ground.counts[row])
		}
	}
	switch o := c.options[0]; {
	case c.fits && o.near != nil && o.any != nil && e.choice%2 == 1 && e.at.Sub(r.snap.Now) <= o.wait:
		return cluster.ReasonResources, needs + fmt.Sprintf(", and waits up to %s to have them near each other", cluster.FormatElapsed(o.wait))
	case c.kept != "":
		return cluster.ReasonReqNodeNotAvail, c.kept
	case c.fits:
		return cluster.ReasonPriority, fitsButDelays
	}
	return cluster.ReasonResources, needs + c.bounded()
}

// fitsButDelays is said of what would fit into what no job has.
const fitsButDelays = "fits now, but would delay jobs ahead of it"

// searchBounded is said of what may start later than it could, since not every set of
// nodes was tried for it.
const searchBounded = "; the search for so many nodes under so many switches is bounded: it may miss a place that it would find with --gpus-per-node"

// bounded says that the search for a place of the class gave up; nothing when none did.
func (c *requestClass) bounded() string {
	cut := c.cut
	for i := range c.options {
		cut = cut || c.options[i].bounded()
	}
	if cut {
		return searchBounded
	}
	return ""
}

// fitsIn reports whether the class would fit into what is free of each host; open, if it
// is known, is those that have a GPU free.
func (p *Planner) fitsIn(c *requestClass, free []backfill.Amount, open backfill.HostSet) bool {
	for i := range c.options {
		o := &c.options[i]
		w := o.any
		if w == nil {
			w = o.near
		}
		if p.profile.FitsIn(w, free, open) {
			return true
		}
	}
	return false
}

// freeNow is what no running job has of each host, nor one that starts in this pass.
func (r *pass) freeNow(p *Planner) []backfill.Amount {
	if r.free != nil {
		return r.free
	}
	r.free = slices.Clone(p.unallocated)
	for _, e := range p.started {
		for i := range e.shares {
			r.free[e.shares[i].Host].Take(&e.shares[i].Amount)
		}
	}
	r.open = backfill.NewHostSet(len(r.free))
	for h := range r.free {
		if r.free[h].GPUs > 0 {
			r.open.Add(h)
		}
	}
	return r.free
}

// needs says what a need asks for.
func needs(n *topology.Need) string {
	kind := ""
	if n.Total > 0 && n.Types[0] != "" {
		kind = strings.Join(n.Types, " or ") + " "
	}
	var what []string
	if n.PerNode > 0 {
		what = append(what, count(n.PerNode, kind+"GPU"))
	}
	if n.CPUs > 1 || n.PerNode < 1 {
		what = append(what, count(n.CPUs, "CPU"))
	}
	if m := n.Memory.On(cluster.NodeSize{}, n.PerNode); m > 0 {
		what = append(what, m.String()+" of memory")
	}
	if n.Memory.From == cluster.MemoryAll && !n.Exclusive {
		what = append(what, "all memory")
	}
	where, alone := " on one node", ""
	if n.Exclusive {
		alone = " to itself"
	}
	switch {
	case n.PerNode < 0 && n.Nodes == 0:
		return "needs " + count(n.Total, kind+"GPU") + " in all, and " + and(what) + " on each node" + alone
	case n.PerNode < 0:
		return fmt.Sprintf("needs %s on %d nodes%s, and %s on each", count(n.Total, kind+"GPU"), n.Nodes, alone, and(what))
	case n.Nodes > 1:
		where = fmt.Sprintf(" on each of %d nodes", n.Nodes)
	}
	where += alone
	return "needs " + and(what) + where
}

// count writes a number with its noun, whose plural adds an s or is given.
func count(n int32, noun string, plural ...string) string {
	if n != 1 {
		noun = slices.Concat(plural, []string{noun + "s"})[0]
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func and(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
