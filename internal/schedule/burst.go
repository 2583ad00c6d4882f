package schedule

import (
	"slices"
	"time"

	"github.com/greylag/greylag/internal/schedule/burst"
	"github.com/greylag/greylag/internal/schedule/explain"
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// A launch that became no leases is decided again after relaunch, and then after twice the time each, up to maxRelaunch: the
// state may refuse it for something that no snapshot has.
const (
	relaunch    = time.Minute
	maxRelaunch = burst.MaxRelaunch
)

// proposal is a launch of an earlier pass.
type proposal struct {
	at   cluster.Instant
	wait time.Duration // until the next one for the job
}

// leasing is the state of the burst step between passes.
type leasing struct {
	tables     *burst.Tables
	entries    []*plan.Entry     // jobs that may run on leased nodes
	candidates []burst.Candidate // at the same indices
	launched   map[cluster.JobID]proposal

	// What the jobs that wait for leased nodes in this pass need.
	elements map[cluster.JobID]int32 // elements that are neither planned nor running, by array
	licences map[string]int32        // by name
}

func newLeasing() leasing {
	return leasing{
		tables: burst.NewTables(), launched: map[cluster.JobID]proposal{},
		elements: map[cluster.JobID]int32{}, licences: map[string]int32{},
	}
}

// decide returns the launch that a pass decides, if it decides one, and when a pass has to decide again. A pass that leaves
// something to the next one leases nothing, since that may start the job. O(jobs that may run on leased nodes).
func (l *leasing) decide(c *plan.Pass, ready bool) ([]cluster.Launch, cluster.Instant) {
	l.update(c)
	snap := c.Snap
	if !ready || !snap.Policy.Burst.On || snap.Burst == nil || len(l.entries) == 0 || !c.Settled() {
		return nil, cluster.Never
	}
	v, again := l.tables.View(snap, &c.Check.Jobs), cluster.Never
	for id, x := range l.launched {
		if next := x.at.Add(x.wait); len(v.Leases(id)) > 0 || next.Add(maxRelaunch) <= snap.Now {
			delete(l.launched, id)
		} else if next > snap.Now {
			again = min(again, next)
		}
	}
	l.countLeased(c, v)
	launch, wake, found := v.Best(l.candidates, func(x *burst.Candidate) bool { return l.admits(c, x) })
	if again = min(again, wake); !found {
		return nil, again
	}
	l.launched[launch.Job] = proposal{snap.Now, min(max(relaunch, 2*l.launched[launch.Job].wait), maxRelaunch)}
	return []cluster.Launch{launch}, again
}

// update brings the candidates up to date.
func (l *leasing) update(c *plan.Pass) {
	if c.Full() {
		l.entries, l.candidates = l.entries[:0], l.candidates[:0]
	}
	n := 0
	for i, e := range l.entries {
		if !e.Removed() {
			if n != i {
				l.entries[n], l.candidates[n] = e, l.candidates[i]
			}
			l.candidates[n].Update(e)
			n++
		}
	}
	l.entries, l.candidates = l.entries[:n], l.candidates[:n]
	if l.tables.Known() > 2*len(l.entries)+len(c.Opted())+1000 {
		l.tables.Forget()
	}
	for _, e := range c.Opted() {
		if !e.Removed() {
			l.entries = append(l.entries, e)
			l.candidates = append(l.candidates, burst.NewCandidate(e, l.tables.Demand(e.Job.Spec)))
		}
	}
}

// admits reports whether only nodes keep a candidate from starting: no licence and no limit, that of its array included, with
// the jobs that wait for their leased nodes.
func (l *leasing) admits(c *plan.Pass, x *burst.Candidate) bool {
	if last, known := l.launched[x.Job.ID]; known && last.at.Add(last.wait) > c.Snap.Now {
		return false
	}
	if _, short := c.ShortOfLicences(x.Job, l.licences); short || c.Check.ArrayFull(x.Job, l.elements[x.Job.Array]) {
		return false
	}
	_, limited := c.Check.Limits.First(x.Job)
	return !limited
}

// countLeased counts the jobs that wait for leased nodes against the limits, their arrays and the licences, as if they ran.
// O(such jobs).
func (l *leasing) countLeased(c *plan.Pass, v *burst.View) {
	clear(l.elements)
	clear(l.licences)
	for id := range v.Waiting() {
		e := c.Entry(id)
		if e == nil || e.Starting {
			continue
		}
		if c.Check.Limits.Limited() {
			c.Check.Limits.Start(e.Job)
		}
		if !c.Check.PlannedElement(id) {
			l.elements[e.Job.Array]++
		}
		for _, x := range e.Job.Spec.Request.Licences {
			l.licences[x.Name] += x.Count
		}
	}
}

// BurstReport returns what would be decided for each pending job that may run on leased nodes, best first, as if cloud burst
// was on: in a pass that plans all jobs again. Each choice is made as if those before it were committed. It costs a pass,
// and O(commits × jobs).
func BurstReport(snap *cluster.Snapshot) []burst.Choice {
	c := plan.FromScratch(snap)
	var list []burst.Candidate
	tables := burst.NewTables()
	for _, j := range snap.Pending {
		if !j.Spec.Burst.On() {
			continue
		}
		list = append(list, explain.Candidate(c, j, tables))
	}
	slices.SortFunc(list, func(a, b burst.Candidate) int { return a.Rank.Compare(b.Rank) })
	return burst.Report(tables, snap, &c.Check.Jobs, list)
}
