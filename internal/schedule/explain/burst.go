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
	e, notes := p.Entry(job.ID), &burst.Notes{}
	if e == nil {
		rank := p.Rank(job)
		return burst.Candidate{Job: job, Rank: &rank, Demand: t.Demand(job.Spec), Closed: true, Notes: &burst.Notes{Obstacle: "it is held"}}
	}
	c := burst.NewCandidate(e, t.Demand(job.Spec))
	c.Notes = notes
	notes.Unplanned = strings.TrimPrefix((&explainer{Pass: p}).unplannedAt(e.At), "; ")
	switch {
	case e.Starting:
		notes.Obstacle = "it starts now"
	case c.Closed:
		notes.Obstacle = e.Obstacle.String()
	default:
		notes.Obstacle = alsoThere(p, job)
	}
	c.Closed = notes.Obstacle != ""
	return c
}

// alsoThere returns the licence or the limit that keeps a job from starting on leased nodes too; "" for none.
func alsoThere(p *plan.Pass, job *cluster.Job) string {
	if name, short := p.ShortOfLicences(job, nil); short {
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
	rank := p.Rank(job)
	notes := &burst.Notes{Unplanned: strings.TrimPrefix((&explainer{Pass: p}).unplannedAt(job.Planned), "; ")}
	c := burst.Candidate{Job: job, At: job.Planned, Rank: &rank, Demand: t.Demand(job.Spec), Notes: notes}
	v := t.View(p.Snap, &p.Check.Jobs)
	switch {
	case len(v.Leases(job.ID)) > 0:
	case !p.Snap.Policy.Burst.On:
		return []string{"not sent to the cloud: cloud burst is disabled in the policy (burst.enabled = false)"}
	case job.Hold != cluster.NotHeld:
		notes.Obstacle = "it is held"
	case len(obstacles) > 0:
		notes.Obstacle = obstacles[0].String()
	default:
		for _, l := range job.Spec.Request.Licences {
			if shortOf(p.Snap, job)[l.Name] {
				notes.Obstacle = "it waits for licence " + l.Name
			}
		}
	}
	c.Closed = notes.Obstacle != ""
	x := v.Choose(&c)
	if x.Commit {
		return []string{"sent to the cloud next: " + x.Why}
	}
	return []string{x.Why}
}
