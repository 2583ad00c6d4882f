package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrNotPending says that the job to be explained is not pending.
var ErrNotPending = errors.New("the job is not pending")

const (
	// maxAhead is the number of jobs ahead up to which other requests are tried: a trial plans all of
	// them.
	maxAhead = 2000
	// maxListed and maxFirst are how many holders, and how many jobs ahead, an explanation names.
	maxListed, maxFirst = 10, 3
)

// Explanation says why one job is pending: every obstacle, not the first alone.
type Explanation struct {
	// Reason and Detail are those of its last verdict, unless other jobs have started or ended since.
	Reason cluster.Reason
	Detail string
	Causes []string // further obstacles
	Needs  string   // the request in words
	// Unmet are the first ten jobs that its dependencies wait for, and UnmetMore how many more there are.
	Unmet     []Unmet
	UnmetMore int
	// Nodes is how many nodes its partitions have, Suitable how many of them suit it, Free how many could
	// serve it now. Exclusions say how many nodes each condition excludes; several may exclude one node.
	Nodes, Suitable, Free int
	Exclusions            []Exclusion
	// Holders are at most ten jobs on nodes that suit it, by expected end.
	Holders []Holder
	// Later are the reservations that will keep nodes that suit it, before its planned start.
	Later []ReservedNodes
	// CleanUp is planned after the end of each job until its nodes are free.
	CleanUp time.Duration
	// Ahead counts the competing jobs of its partitions that come first; First are the first three.
	Ahead int
	First []AheadJob
	// Alone is when it could start if no other job was pending, and Delays are the jobs whose planned starts
	// that would delay. 0 when it would delay none, or is not eligible.
	Alone  cluster.Instant
	Delays []AheadJob
	// Changes are options of gsubmit. Each was tried: with it the job would start now without delaying a job
	// ahead of it. None when more than maxAhead jobs are ahead.
	Changes []string
	Notes   []string // hints, and what was not tried
}

// Unmet is an unsatisfied dependency.
type Unmet struct {
	Job *cluster.Job // active, or ended such that the dependency can never hold
	By  cluster.Dependency
}

// Exclusion is a condition with the number of nodes that it excludes.
type Exclusion struct {
	Condition string
	Nodes     int
}

// AheadJob is a pending job ahead of another one in the order.
type AheadJob struct {
	Job *cluster.Job
	Why string // what puts it ahead, with both numbers
}

// ReservedNodes is a reservation with the number of nodes that it keeps from a job.
type ReservedNodes struct {
	By    *cluster.Reservation
	Nodes int
}

// Holder is a running job that uses resources another one waits for.
type Holder struct {
	Job      *cluster.Job
	Nodes    int               // that suit the other job except for what this one has
	Licences []cluster.Licence // the other job needs more than are left
	Ends     cluster.Instant   // at the latest; 0 without a time limit
}

// Why explains why a job is pending, from a snapshot of any replica. O(nodes + jobs log jobs), and up to a
// pass over maxAhead jobs with some fifty searches for other requests.
func Why(snap *cluster.Snapshot, id cluster.JobID) (Explanation, error) {
	p := plan.Read(snap)
	job, found := p.Check.Jobs.Find(id)
	if !found || job.State != cluster.Pending {
		return Explanation{}, fmt.Errorf("job %d: %w", id, ErrNotPending)
	}
	ahead := p.Ahead(job)
	s := newNodeSurvey(p.Resources(), snap, job)
	x := Explanation{
		Reason: job.Reason, Detail: job.Detail,
		Needs: s.needs, Nodes: s.members, Suitable: s.suitable, Free: len(s.free), Exclusions: s.exclusions(), Holders: s.holders(p.Resources(), snap),
		Later: s.later, CleanUp: p.Resources().Grace,
	}
	first, competing := competitors(job, ahead)
	x.First, x.Ahead = aheadJobs(p, job, first), competing
	x.addUnmet(p.Check, job)
	obstacles := p.Check.All(job)
	x.add(obstacles, job.Detail)
	x.Notes = append(notes(p, job, len(obstacles) == 0), burstNotes(p, job, obstacles)...)
	switch {
	case job.Hold != cluster.NotHeld:
		return x, nil
	case len(ahead) > maxAhead:
		x.note("more than %d jobs are ahead of it: no changes were tried", maxAhead)
		return x, nil
	}
	if over := p.Resources().OverBudget(job.Spec); over != "" {
		x.Causes = append(x.Causes, fmt.Sprintf("account %s is over its budget: its jobs are in the lowest tier until it is within budget again", over))
	}
	w := &whatIf{plan.NewTrial(snap, job, ahead, false)}
	if len(obstacles) == 0 {
		x.add(w.lacks(s), strings.TrimSuffix(job.Detail, demoted(p.Resources(), job.Spec)))
	}
	x.Changes = w.changes()
	at, others := w.Delayed()
	if at = plan.Shown(snap.Now, at); len(obstacles) == 0 && len(others) > 0 && (job.Planned == 0 || at < job.Planned) {
		x.Alone, x.Delays = at, aheadJobs(p, job, others)
		if len(ahead) > plan.MaxDelayed {
			x.note("only the last %d of the jobs ahead were checked for delays", plan.MaxDelayed)
		}
	}
	return x, nil
}

func (x *Explanation) note(format string, args ...any) {
	x.Notes = append(x.Notes, fmt.Sprintf(format, args...))
}

// add adds the present obstacles to the detail of the last verdict, which may say more after the same words.
// When none of them has the reason of the verdict, the first one replaces it.
func (x *Explanation) add(now []eligible.Obstacle, detail string) {
	if len(now) > 0 && !slices.ContainsFunc(now, func(o eligible.Obstacle) bool { return o.Reason == x.Reason }) {
		x.Reason, x.Detail, detail = now[0].Reason, now[0].Detail, now[0].Detail
	}
	for _, o := range now {
		if o.Reason != x.Reason || detail != "" && !strings.HasPrefix(detail, o.Detail) {
			x.Causes = append(x.Causes, o.String())
		}
	}
}

// addUnmet adds the jobs that dependencies of a job wait for. O(jobs depended on).
func (x *Explanation) addUnmet(c *eligible.Checker, job *cluster.Job) {
	if _, unmet := c.Dependencies(job); !unmet {
		return
	}
	for _, d := range job.Spec.Depends {
		if !c.Unmet(job, d) {
			continue
		}
		for _, other := range c.Awaited(job, d) {
			if len(x.Unmet) < maxListed {
				x.Unmet = append(x.Unmet, Unmet{other, d})
			} else {
				x.UnmetMore++
			}
		}
	}
}

// notes returns hints what to do about the obstacles of a job.
func notes(p *plan.Pass, job *cluster.Job, mayStart bool) (list []string) {
	if mayStart && job.Reason == cluster.ReasonNone {
		list = append(list, "not scheduled yet; the next pass will consider it")
	}
	if _, refused := p.Check.QOS(job.Spec); refused {
		list = append(list, qosNote(p.Snap, job))
	}
	if accounts := allowedAccounts(p.Resources(), job.Spec); accounts != nil {
		list = append(list, fmt.Sprintf("gctl update job %s account=NAME charges one of %s; partition=NAME moves it", job.Ref(), strings.Join(accounts, ", ")))
	}
	if job.Hold != cluster.NotHeld && job.Reason == cluster.ReasonRequeueLimit {
		list = append(list, fmt.Sprintf("restarts so far: %s; an operator releases it with gctl release %s; the limit is max_restarts of the policy", job.Causes.Words(), job.Ref()))
	}
	if job.Hold != cluster.NotHeld && job.Reason == cluster.ReasonCheckpoint {
		list = append(list, fmt.Sprintf("gctl checkpoint list %[1]s lists them; gctl checkpoint verify %[1]s NUMBER verifies one again; gctl release %[1]s starts the job from the beginning", job.Ref()))
	}
	if from := job.PreemptsFrom; from > p.Snap.Now && len(p.Resources().QOS[job.Spec.QOS].Preempts) > 0 {
		list = append(list, fmt.Sprintf("preempts no other job for another %s, since it failed within 10 minutes of a start for which others were preempted", cluster.FormatElapsed(from.Sub(p.Snap.Now))))
	}
	return append(append(list, fenceNotes(p, job)...), avoidNotes(p, job)...)
}

// fenceNotes says how far the fencing of the nodes is that a job waits for.
func fenceNotes(p *plan.Pass, job *cluster.Job) (list []string) {
	for _, name := range job.Unfenced[:min(len(job.Unfenced), maxFirst)] {
		at, found := slices.BinarySearchFunc(p.Snap.Nodes, name, func(n *cluster.Node, name string) int { return strings.Compare(n.Name, name) })
		if !found {
			continue
		}
		n := p.Snap.Nodes[at]
		text := "fence.program has not succeeded yet"
		switch f := &n.Fence; {
		case n.Liveness == cluster.Alive:
			text = "it has returned, and ends the tasks of that attempt"
		case n.Liveness == cluster.Silent:
			text = "it is fenced when it is DOWN"
		case f.Tries > 0:
			text = fmt.Sprintf("fence.program failed %s, last at %s: %s; it runs again at %s", words.Count(int32(f.Tries), "time"), words.Instant(f.Tried), f.Failure, words.Instant(f.Due()))
		}
		list = append(list, fmt.Sprintf("node %s: %s; if it is off: gctl node fenced %s", name, text, name))
	}
	return list
}

// avoidNotes names the nodes that a job avoids.
func avoidNotes(p *plan.Pass, job *cluster.Job) (list []string) {
	more := 0
	for _, a := range job.Avoided {
		switch {
		case a.Until <= p.Snap.Now:
		case len(list) < maxFirst:
			list = append(list, fmt.Sprintf("avoids node %s, since attempt %d failed there: starts there only if it cannot start as early elsewhere", a.Node, a.Attempt))
		default:
			more++
		}
	}
	if more > 0 {
		list = append(list, fmt.Sprintf("avoids %d more nodes on which an attempt failed", more))
	}
	if failing := p.Resources().Failing; len(failing) > 0 && job.Spec.Request.AvoidsFailing() {
		list = append(list, fmt.Sprintf("avoids nodes that fail often unless they allow an earlier start: %s", hostlist.Compress(failing)))
	}
	return list
}

// allowedAccounts returns the accounts of the first of a job's partitions that does not allow the job's,
// where each of its partitions refuses it; else nil.
func allowedAccounts(r *plan.Resources, spec *cluster.JobSpec) []string {
	if _, everywhere := r.Partitions(spec); !everywhere {
		return nil
	}
	for _, name := range spec.AllPartitions() {
		if x, _ := r.Refusal(spec, name); x.Reason == cluster.ReasonAccountNotAllowed {
			return r.AllowAccounts(name)
		}
	}
	return nil
}

// qosNote returns the hint for a job that may no longer use its QOS.
func qosNote(snap *cluster.Snapshot, job *cluster.Job) string {
	tree := eligible.TreeOf(snap)
	note := snap.Policy.GrantCommand(tree, job.Spec)
	if usable := snap.Policy.UsableQOS(tree, job.Spec.Association()); len(usable) > 0 {
		note = fmt.Sprintf("gctl update job %s qos=NAME moves it to one of %s; %s", job.Ref(), strings.Join(usable, ", "), note)
	}
	return note
}

// competitors returns the first of the jobs ahead that compete with a job, and how many there are: those of
// its partitions that are eligible and name no other nodes.
func competitors(job *cluster.Job, ahead []*cluster.Job) (first []*cluster.Job, count int) {
	own := job.Spec.AllPartitions()
	only := cluster.ParseNodeNames(job.Spec.Request.OnlyNodes())
	for _, j := range ahead {
		competes := j.Planned > 0 || j.Reason == cluster.ReasonNone || j.Reason == cluster.ReasonPriority || j.Reason == cluster.ReasonResources
		if !competes || !slices.ContainsFunc(j.Spec.AllPartitions(), func(name string) bool { return slices.Contains(own, name) }) {
			continue
		}
		if theirs := cluster.ParseNodeNames(j.Spec.Request.OnlyNodes()); only.Disjoint(&theirs) {
			continue
		}
		if count++; len(first) < maxFirst {
			first = append(first, j)
		}
	}
	return first, count
}

// aheadJobs returns what puts each of some jobs ahead of another.
func aheadJobs(p *plan.Pass, job *cluster.Job, others []*cluster.Job) []AheadJob {
	list := make([]AheadJob, len(others))
	for i, j := range others {
		list[i] = AheadJob{j, whyAhead(p, j, job)}
	}
	return list
}

// whyAhead returns what puts one job ahead of another.
func whyAhead(p *plan.Pass, j, job *cluster.Job) string {
	a, b := p.Rank(j), p.Rank(job)
	switch {
	case a.Compare(&b) > 0:
		return "its start is promised"
	case a.Tier != b.Tier:
		return fmt.Sprintf("tier %d of its QOS, not %d", a.Tier, b.Tier)
	case a.Partition != b.Partition:
		return fmt.Sprintf("priority %d of its partition, not %d", a.Partition, b.Partition)
	case a.Priority != b.Priority:
		return fmt.Sprintf("priority %d, not %d", a.Priority, b.Priority)
	}
	return fmt.Sprintf("submitted earlier, same priority %d", a.Priority)
}
