package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// ErrNotWaiting says that a job to be explained does not wait.
var ErrNotWaiting = errors.New("the job does not wait")

const (
	// maxAhead is behind how many jobs changes of a request are still tried: a trial
	// plans all of them.
	maxAhead = 2000
	// How many holders, and how many jobs ahead, an explanation names.
	maxListed, maxFirst = 10, 3
)

// Explanation is why one job waits: everything that keeps it, not the first alone.
type Explanation struct {
	// Reason and Detail are what keeps it now: what it was told when its place in the plan
	// last changed, unless others have started or ended since.
	Reason cluster.Reason
	Detail string
	// Causes is what keeps it beyond its reason: whatever is free, or of what is free.
	// Needs is its request in words.
	Causes []string
	Needs  string
	// Unmet is the first jobs for which dependencies of it do not hold, and UnmetMore how
	// many there are beyond those ten.
	Unmet     []Unmet
	UnmetMore int
	// Nodes is how many nodes its partitions have, Could how many of them could ever be
	// one of its nodes, Free how many could now. Ruled is how many nodes each condition
	// rules out; one node may be ruled out by several.
	Nodes, Could, Free int
	Exclusion          []Exclusion
	// Holders are the jobs on nodes that could serve it, those first that are expected
	// to end first; no more than ten.
	Holders []Holder
	// Later are the reservations that will keep nodes that could serve it, before it is
	// planned to start.
	Later []ReservedNodes
	// ClearUp is what is planned after the end of each job until its nodes are free.
	ClearUp time.Duration
	// Ahead counts the jobs of its partitions that compete with it and are served
	// first; First names the first three.
	Ahead int
	First []AheadJob
	// Alone is when it could start if no other job waited, and Delays the jobs with planned
	// starts that it would delay if it did: they are why it does not. 0 when nothing else
	// keeps it from that, or when it may not start.
	Alone  cluster.Instant
	Delays []AheadJob
	// Changes are requests of gsubmit, each tried, with any of which it would start now
	// without delaying anybody ahead of it. None when more than maxAhead jobs are ahead.
	Changes []string
	// Notes is what was not looked at, since that is bounded.
	Notes []string
}

// Unmet is a job for which a dependency of another does not hold.
type Unmet struct {
	Job *cluster.Job // active, or ended such that the dependency never will hold
	By  cluster.Dependency
}

// Exclusion is how many nodes one condition rules out.
type Exclusion struct {
	Says  string
	Nodes int
}

// AheadJob is a job that waits and is served before another.
type AheadJob struct {
	Job *cluster.Job
	Why string // what puts it ahead, with the numbers of both
}

// ReservedNodes is a reservation, and how many nodes it keeps that could serve a job.
type ReservedNodes struct {
	By    *cluster.Reservation
	Nodes int
}

// Holder is a job that has what another waits for.
type Holder struct {
	Job      *cluster.Job
	Nodes    int               // of those that the other could have and that lack what it has
	Licences []cluster.Licence // of those of which too few are left for the other
	Ends     cluster.Instant   // at the latest; 0 when it has no time limit
}

// Why explains why a job waits, from a snapshot of any replica. It changes nothing.
// O(nodes + jobs log jobs), and up to a pass over maxAhead jobs with some fifty
// searches for the changes.
func Why(snap *cluster.Snapshot, id cluster.JobID) (Explanation, error) {
	r := newRound(snap)
	job, found := r.jobs.find(id)
	if !found || job.State != cluster.Pending {
		return Explanation{}, fmt.Errorf("job %d: %w", id, ErrNotWaiting)
	}
	p := &Planner{ground: newGround(snap)}
	before := p.before(r, job)
	s := survey(p.ground, snap, job)
	x := Explanation{
		Reason: job.Reason, Detail: job.Detail,
		Needs: s.needs, Nodes: s.members, Could: s.could, Free: len(s.fit), Exclusion: s.ruled(), Holders: s.holders(p.ground, snap),
		Later: s.later, ClearUp: p.ground.grace,
	}
	first, ahead := rivals(job, before)
	x.First, x.Ahead = p.rivals(r, job, first), ahead
	x.unmet(r, job)
	bars := p.bars(r, job)
	if len(bars) == 0 && job.Reason == cluster.ReasonNone {
		x.Notes = append(x.Notes, "no pass has told anything of it yet: one looks at a bounded number of jobs, and the next follows at once")
	}
	x.keptBy(bars, job.Detail)
	if _, barred := r.barredByQOS(job.Spec); barred {
		x.Notes = append(x.Notes, usableNote(snap, job))
	}
	if accounts := p.allowedAccounts(job.Spec); accounts != nil {
		x.Notes = append(x.Notes, fmt.Sprintf("gctl update job %s account=NAME charges one of %s; partition=NAME moves it", job.Ref(), strings.Join(accounts, ", ")))
	}
	if job.Hold != cluster.NotHeld {
		if job.Reason == cluster.ReasonRequeueLimit {
			x.Notes = append(x.Notes, fmt.Sprintf("restarts so far: %s; an operator releases it with gctl release %s; the limit is max_restarts of the policy", job.Causes.Words(), job.Ref()))
		}
		return x, nil
	}
	if len(before) > maxAhead {
		x.Notes = append(x.Notes, fmt.Sprintf("more than %d jobs are ahead of it: what would let it start now was not tried", maxAhead))
		return x, nil
	}
	t := newTrial(snap, job, before, false)
	if over := p.ground.lowered.by(job.Spec); over != "" {
		x.Causes = append(x.Causes, fmt.Sprintf("account %s is over its budget: its jobs wait in the lowest tier until it is back within it", over))
	}
	if len(bars) == 0 {
		lacks := t.lacks(s)
		x.keptBy(lacks, strings.TrimSuffix(job.Detail, p.ground.lowered.says(job.Spec)))
	}
	x.Changes = t.changes()
	at, others := t.delayed()
	if at = shown(snap.Now, at); len(bars) == 0 && len(others) > 0 && (job.Planned == 0 || at < job.Planned) {
		x.Alone, x.Delays = at, p.rivals(r, job, others)
		if len(before) > maxDelayed {
			x.Notes = append(x.Notes, fmt.Sprintf("of the jobs ahead that it would delay only the last %d were looked at", maxDelayed))
		}
	}
	return x, nil
}

// allowedAccounts returns the accounts of the first of a job's partitions that does not allow the
// job's, where each of its partitions refuses it; else nil.
func (p *Planner) allowedAccounts(spec *cluster.JobSpec) []string {
	if _, nowhere := p.barredByPartitions(spec); !nowhere {
		return nil
	}
	for _, name := range partitions(spec) {
		if x, _ := p.ground.refusalBy(spec, name); x.reason == cluster.ReasonAccountNotAllowed {
			return p.ground.parts[name].AllowAccounts
		}
	}
	return nil
}

// usableNote returns the note for a job that may no longer use its QOS.
func usableNote(snap *cluster.Snapshot, job *cluster.Job) string {
	tree := treeOf(snap)
	note := snap.Policy.GrantCommand(tree, job.Spec)
	if usable := snap.Policy.UsableQOS(tree, job.Spec.Association()); len(usable) > 0 {
		note = fmt.Sprintf("gctl update job %s qos=NAME moves it to one of %s; %s", job.Ref(), strings.Join(usable, ", "), note)
	}
	return note
}

// unmet adds the jobs that dependencies of one wait for. O(jobs depended on).
func (x *Explanation) unmet(r *pass, job *cluster.Job) {
	for _, d := range job.Spec.Depends {
		if r.fulfilled(job, d) == met {
			continue
		}
		for _, other := range r.awaited(job, d) {
			if len(x.Unmet) < maxListed {
				x.Unmet = append(x.Unmet, Unmet{other, d})
			} else {
				x.UnmetMore++
			}
		}
	}
}

// keptBy adds what keeps a job now beside what it was told, which may have more to say after
// the same words. What it was told is no more its reason when nothing keeps it for that.
func (x *Explanation) keptBy(now []verdict, told string) {
	if len(now) > 0 && !slices.ContainsFunc(now, func(v verdict) bool { return v.reason == x.Reason }) {
		x.Reason, x.Detail, told = now[0].reason, now[0].detail, now[0].detail
	}
	for _, v := range now {
		if v.reason != x.Reason || told != "" && !strings.HasPrefix(told, v.detail) {
			x.Causes = append(x.Causes, v.String())
		}
	}
}

// String is the reason and what more there is to say.
func (v verdict) String() string {
	if v.detail == "" {
		return v.reason.String()
	}
	return v.reason.String() + ": " + v.detail
}

// before is the waiting jobs that are served before one, in order.
func (p *Planner) before(r *pass, job *cluster.Job) []*cluster.Job {
	type ranked struct {
		rank
		job *cluster.Job
	}
	own := p.rankOf(r, job)
	var list []ranked
	for _, j := range r.jobs.pending {
		if j.Hold != cluster.NotHeld || j.ID == job.ID {
			continue
		}
		if of := p.rankOf(r, j); of.compare(&own) < 0 {
			list = append(list, ranked{of, j})
		}
	}
	slices.SortFunc(list, func(a, b ranked) int { return a.rank.compare(&b.rank) })
	jobs := make([]*cluster.Job, len(list))
	for i := range list {
		jobs[i] = list[i].job
	}
	return jobs
}

// rivals is the jobs before one that compete with it: of its partitions, not kept back by
// something else, and not pinned to other nodes.
func rivals(job *cluster.Job, before []*cluster.Job) (first []*cluster.Job, count int) {
	own := partitions(job.Spec)
	only := cluster.ParseNodeNames(job.Spec.Request.NodeList)
	for _, j := range before {
		competes := j.Planned > 0 || j.Reason == cluster.ReasonNone || j.Reason == cluster.ReasonPriority || j.Reason == cluster.ReasonResources
		if !competes || !slices.ContainsFunc(partitions(j.Spec), func(name string) bool { return slices.Contains(own, name) }) {
			continue
		}
		if theirs := cluster.ParseNodeNames(j.Spec.Request.NodeList); only.Disjoint(&theirs) {
			continue
		}
		if count++; len(first) < maxFirst {
			first = append(first, j)
		}
	}
	return first, count
}

// rivals says of jobs what puts each before one.
func (p *Planner) rivals(r *pass, job *cluster.Job, others []*cluster.Job) []AheadJob {
	list := make([]AheadJob, len(others))
	for i, j := range others {
		list[i] = AheadJob{j, p.ahead(r, j, job)}
	}
	return list
}

// ahead is what puts a job before one.
func (p *Planner) ahead(r *pass, j, job *cluster.Job) string {
	a, b := p.rankOf(r, j), p.rankOf(r, job)
	switch {
	case a.compare(&b) > 0:
		return "its start is promised"
	case a.tier != b.tier:
		return fmt.Sprintf("tier %d of its QOS, not %d", a.tier, b.tier)
	case a.part != b.part:
		return fmt.Sprintf("priority %d of its partition, not %d", a.part, b.part)
	case a.priority != b.priority:
		return fmt.Sprintf("priority %d, not %d", a.priority, b.priority)
	}
	return fmt.Sprintf("submitted first, of the same priority %d", a.priority)
}

func partitions(spec *cluster.JobSpec) []string {
	return append([]string{spec.Partition}, spec.Others...)
}

// bars is all that keeps a job whatever is free.
func (p *Planner) bars(r *pass, job *cluster.Job) []verdict {
	var all []verdict
	note := func(v verdict, barred bool) {
		if barred {
			all = append(all, v)
		}
	}
	switch job.Hold {
	case cluster.HeldByUser:
		note(verdict{cluster.ReasonHeldUser, job.Detail}, true)
	case cluster.HeldByAdmin:
		if job.Reason == cluster.ReasonRequeueLimit {
			note(verdict{job.Reason, job.Detail}, true)
			break
		}
		note(verdict{cluster.ReasonHeldAdmin, job.Detail}, true)
	case cluster.HeldForCredits:
		note(verdict{cluster.ReasonCredits, job.Detail}, true)
	}
	spec := job.Spec
	if after := max(job.Eligible, spec.Begin); after > r.snap.Now {
		note(verdict{cluster.ReasonBeginTime, "the time before which it is not to start has not come" + failure(r, job, "; ")}, true)
	}
	if d := spec.Deadline; d > 0 && r.snap.Now > d.Add(-spec.TimeLimit) {
		note(verdict{cluster.ReasonDeadline, "it could not end before its deadline"}, true)
	}
	for _, d := range spec.Depends {
		alone, one := *job, *spec
		one.Depends = []cluster.Dependency{d}
		alone.Spec = &one
		note(r.unmet(&alone))
	}
	note(r.barredByQOS(spec))
	if _, nowhere := p.barredByPartitions(spec); nowhere {
		for _, name := range partitions(spec) {
			v, barred := p.barredByPartition(spec, name)
			if barred && v.detail == "" {
				v.detail = fmt.Sprintf("partition %q is down", name)
			}
			note(v, barred)
		}
	}
	note(p.barredByReservation(r, spec))
	if limit := spec.ArrayLimit; job.Array != 0 && limit > 0 && r.ahead(job) >= limit {
		note(throttled(limit), true)
	}
	return append(all, r.limits.all(spec)...)
}

// ahead is how many other elements of a job's array run, or have a planned start while it has
// none. O(jobs).
func (r *pass) ahead(job *cluster.Job) (n int32) {
	for _, j := range r.jobs.active {
		if j.Array == job.Array {
			n++
		}
	}
	for _, j := range r.jobs.pending {
		if j.Array == job.Array && j.Planned > 0 && job.Planned == 0 {
			n++
		}
	}
	return n
}

// all is every limit that keeps jobs of a specification from starting now.
func (l *limits) all(spec *cluster.JobSpec) []verdict {
	if l.bounds == nil {
		return nil
	}
	var met []verdict
	for _, b := range l.of(spec) {
		if used, asked := l.against(&b, spec); asked > 0 && max(used, 0)+asked > b.Value {
			met = append(met, verdict{b.Reason(), b.Exceeded(used, asked)})
		}
	}
	return met
}
