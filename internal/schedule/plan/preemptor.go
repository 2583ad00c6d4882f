package plan

import (
	"time"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// minGain is how long a job has to wait at least for others to be preempted for it.
const minGain = 5 * time.Minute

// MayPreempt reports whether a job may preempt others now, waits for longer than they take to end, and is
// not kept by a limit from using what they have.
func (p *Pass) MayPreempt(e *Entry) bool {
	if len(p.res.QOS[e.Job.Spec.QOS].Preempts) == 0 || e.Job.PreemptsFrom > p.Snap.Now || p.res.OverBudget(e.Job.Spec) != "" {
		return false
	}
	waits := !e.removed && !e.Starting && p.entries[e.Job.ID] == e && e.Eligible()
	if !waits || e.At > 0 && e.At <= p.Snap.Now.Add(max(p.res.Grace, p.res.Lead, minGain)) {
		return false
	}
	if _, limited := p.Check.Limits.First(e.Job); limited {
		return false
	}
	_, exceeded := p.promises.exceeded(e.Job)
	return !exceeded || e.Promised
}

// planPreemptor plans the job for which others were preempted before any other job gets what became
// free: the trial found that this delays no promise and no job ahead of it.
func (p *Pass) planPreemptor() {
	e := p.entries[p.fullPlan.preemptor]
	soon := p.Vacated() + 1
	if e == nil || !e.Eligible() {
		return
	}
	if e.At > p.Snap.Now {
		p.moveForward(e)
	} else if s, choice, ok := p.bookings.find(e.Class, p.Snap.Now, soon, (*backfill.Profile).Earliest); e.At == 0 && ok {
		p.bookings.Book(e, s, choice)
	}
	if e.At > 0 && e.At < soon && p.promises.allow(e.Job) {
		p.promises.reserve(e)
	}
}

// waitingPreemptor returns the job for which others were preempted and that has not started; 0 for none.
func (p *Pass) waitingPreemptor() cluster.JobID {
	if e := p.entries[p.preemptor]; !p.preempting && (e == nil || e.Starting || e.At == 0 || e.At > p.Vacated().Add(Leeway)) {
		return 0
	}
	return p.preemptor
}

// Vacated returns the instant by which jobs that were preempted have left their nodes, and extra nodes could be free.
// O(running jobs).
func (p *Pass) Vacated() cluster.Instant {
	at := p.Snap.Now
	for _, j := range p.Check.Jobs.Active {
		if j.Preempting != nil && j.Preempting.By != 0 {
			at = max(at, j.Preempting.At)
		}
	}
	return max(at.Add(p.res.Grace), p.Reclaimed())
}

// Reclaimed returns the instant by which extra nodes of jobs that go on could be free; now if there are none.
// O(running jobs).
func (p *Pass) Reclaimed() cluster.Instant {
	for _, j := range p.Check.Jobs.Active {
		if j.Members != nil && j.Preempting == nil && j.State != cluster.Completing && len(j.Members.List) > int(j.Spec.Request.Nodes) {
			return p.Snap.Now.Add(p.res.Lead)
		}
	}
	return p.Snap.Now
}
