package explain

import (
	"strings"

	"github.com/greylag/greylag/internal/schedule/burst"
	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// Candidate returns a pending job of a pass as a candidate for leased nodes, with all that keeps them from being leased.
func Candidate(p *plan.Pass, job *cluster.Job, t *burst.Tables) burst.Candidate {
	e := p.Entry(job.ID)
	if e == nil {
		return burst.Candidate{Job: job, Rank: p.Rank(job), Demand: t.Demand(job.Spec), Obstacle: "it is held"}
	}
	c := burst.NewCandidate(e, t.Demand(job.Spec))
	x := &explainer{Pass: p}
	c.Unplanned = strings.TrimPrefix(x.unplanned(e), "; ")
	switch {
	case e.Starting:
		c.Obstacle = "it starts now"
	case !e.MayLease():
		c.Obstacle = e.Obstacle.String()
	default:
		c.Obstacle = alsoThere(p, job)
	}
	return c
}

// alsoThere returns the licence or the limit that keeps a job from starting on leased nodes too; "" for none.
func alsoThere(p *plan.Pass, job *cluster.Job) string {
	if name, short := p.ShortOfLicences(job); short {
		return "it waits for licence " + name
	}
	if o, limited := p.Check.Limits.First(job); limited {
		return o.String()
	}
	return ""
}

// burstNotes says whether cloud nodes are leased for a job, or why not; nothing for a job that does not want them.
func burstNotes(p *plan.Pass, job *cluster.Job, obstacles []eligible.Obstacle) []string {
	if !job.Spec.Burst.On() {
		return nil
	}
	t := burst.NewTables()
	c := burst.Candidate{Job: job, At: job.Planned, Rank: p.Rank(job), Demand: t.Demand(job.Spec)}
	x := &explainer{Pass: p}
	c.Unplanned = strings.TrimPrefix(x.unplannedAt(job.Planned), "; ")
	v := t.View(p.Snap, &p.Check.Jobs)
	switch {
	case len(v.Leases(job.ID)) > 0:
	case !p.Snap.Policy.Burst.On:
		return []string{"not sent to the cloud: the policy leases no nodes (burst.enabled)"}
	case job.Hold != cluster.NotHeld:
		c.Obstacle = "it is held"
	case len(obstacles) > 0:
		c.Obstacle = obstacles[0].String()
	}
	return []string{v.Choose(&c).Why}
}
