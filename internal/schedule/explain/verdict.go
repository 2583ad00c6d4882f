package explain

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// explainer explains the jobs of one pass. What it found for a class holds for all its jobs.
type explainer struct {
	*plan.Pass
	fits map[*plan.Class]fit
}

// fit says whether a class fits into what is free now.
type fit struct {
	fits     bool
	reserved string // the reservations that alone keep it from starting, in words
}

// Verdicts returns the verdict of each job of a pass that needs one, unless the job has it already.
func Verdicts(p *plan.Pass) []cluster.Verdict {
	x := &explainer{Pass: p, fits: map[*plan.Class]fit{}}
	var list []cluster.Verdict
	for _, e := range p.Verdicts() {
		v := x.verdict(e)
		e.MarkReported()
		if j := e.Job; j.Reason != v.Reason || j.Detail != v.Detail || j.Planned != v.Planned || v.Broken != "" || !samePromise(j.Promise, v.Promise) {
			list = append(list, v)
		}
	}
	return list
}

// verdict returns why a job is pending, its planned start, its promise, and why its last promise is broken.
func (x *explainer) verdict(e *plan.Entry) cluster.Verdict {
	v := cluster.Verdict{Job: e.Job.ID, Reason: e.Obstacle.Reason, Detail: e.Obstacle.Detail, Broken: e.Broken}
	if e.Eligible() {
		v.Reason, v.Detail = x.shortage(e)
		v.Detail += x.unplanned(e) + demoted(x.Resources(), e.Job.Spec)
		if len(e.Job.Spec.OtherPartitions) > 0 && e.At > 0 {
			v.Detail += fmt.Sprintf("; planned in partition %q", e.Option().Partition)
		}
		v.Detail += e.Class.Refused
		v.Planned = plan.Shown(x.Snap.Now, e.At)
		if e.MissesDeadline() {
			v.Detail += "; the planned start would miss its deadline"
		}
		if e.Promised {
			v.Promise = x.PromiseOf(e)
		}
	}
	if last := e.Job.Promise; last != nil && v.Broken == "" && (v.Promise == nil || v.Promise.At > last.At) {
		if v.Broken = e.Obstacle.Detail; v.Broken == "" {
			v.Broken = x.BrokenReason(e, last)
		}
	}
	return v
}

func samePromise(a, b *cluster.Promise) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.At == b.At && a.Partition == b.Partition && a.Kind == b.Kind && slices.Equal(a.Hosts, b.Hosts)
}

// shortage returns why an eligible job does not start now: not enough is free, or what is free is kept for
// jobs ahead of it.
func (x *explainer) shortage(e *plan.Entry) (cluster.Reason, string) {
	c := e.Class
	f, known := x.fits[c]
	if !known {
		free, open := x.Unallocated()
		f.fits = x.Bookings().FitsIn(c, x.OfLongLeases(c, free), open)
		f.reserved = reservedFor(x.Pass, c, f.fits)
		x.fits[c] = f
	}
	spec := e.Job.Spec
	needs := c.Needs()
	if spec.Reservation != "" {
		o, early := x.Check.Early(spec)
		switch {
		case early && f.reserved != "" && e.At == 0:
			return cluster.ReasonReqNodeNotAvail, f.reserved + ", " + o.Detail
		case early:
			return o.Reason, needs + ", " + o.Detail
		}
		needs += fmt.Sprintf(", within reservation %q", spec.Reservation)
	}
	if short := licences(x.Pass, spec); len(short) > 0 {
		return short[0].Reason, short[0].Detail
	}
	switch o := &c.Options[0]; {
	case f.fits && o.HasLocality() && e.Near() && e.At.Sub(x.Snap.Now) <= o.Wait:
		return cluster.ReasonResources, needs + fmt.Sprintf(", and waits up to %s for the requested locality", cluster.FormatElapsed(o.Wait))
	case f.reserved != "":
		return cluster.ReasonReqNodeNotAvail, f.reserved
	case f.fits:
		return cluster.ReasonPriority, fitsButDelays
	}
	return cluster.ReasonResources, needs + bounded(c)
}

// fitsButDelays is the reason of a job that fits into free resources but would delay others.
const fitsButDelays = "could start now, but would delay jobs ahead of it"

// bounded says that a search for the class was bounded; "" when none was.
func bounded(c *plan.Class) string {
	if c.Bounded() {
		return words.SearchBounded
	}
	return ""
}

// licences returns an obstacle for each licence with too few free.
func licences(p *plan.Pass, spec *cluster.JobSpec) (short []eligible.Obstacle) {
	for _, l := range spec.Request.Licences {
		if row, count := p.Resources().Licence(l.Name); !p.Bookings().Profile.HasLicences(row, p.Snap.Now, l.Count) {
			detail := fmt.Sprintf("needs %d of licence %q; the cluster has %d", l.Count, l.Name, count)
			short = append(short, eligible.Obstacle{Reason: cluster.ReasonLicenses, Detail: detail})
		}
	}
	return short
}

// unplanned says which rule of the policy keeps a job from having a planned start; "" when none does.
func (x *explainer) unplanned(e *plan.Entry) string {
	if e.At == 0 && e.Job.Spec.Burst.Mode == cluster.BurstOnly {
		return "; waits for a cloud node"
	}
	return x.unplannedAt(e.At)
}

// unplannedAt says which rule of the policy keeps a job from having a planned start, whose planned start is given.
func (x *explainer) unplannedAt(at cluster.Instant) string {
	rules := &x.Snap.Policy.Scheduling
	switch {
	case at > 0:
		return ""
	case rules.Depth == 0:
		return "; the policy plans no start ahead (depth 0)"
	case rules.Depth != cluster.Unlimited:
		return fmt.Sprintf("; the policy plans the start of at most %s (depth)", words.Count(rules.Depth, "waiting job"))
	case rules.Window > 0:
		return "; no start is planned within the policy's window of " + cluster.FormatElapsed(rules.Window)
	}
	return ""
}

// demoted says that a job is in the lowest tier since its account is over its budget; "" when it is not.
func demoted(r *plan.Resources, spec *cluster.JobSpec) string {
	if name := r.OverBudget(spec); name != "" {
		return fmt.Sprintf("; account %s is over its budget, so its jobs wait in the lowest tier", name)
	}
	return ""
}
