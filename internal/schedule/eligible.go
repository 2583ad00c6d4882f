package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// bar is what keeps a job from starting whatever is free, if anything does.
func (p *Planner) bar(r *pass, job *cluster.Job) (verdict, bool) {
	if after := max(job.Eligible, job.Spec.Begin); after > r.snap.Now {
		r.decision.Wake = min(r.decision.Wake, after)
		return verdict{cluster.ReasonBeginTime, failure(r, job, "")}, true
	}
	if d := job.Spec.Deadline; d > 0 && r.snap.Now > d.Add(-job.Spec.TimeLimit) {
		return verdict{cluster.ReasonDeadline, "it could not end before its deadline"}, true
	}
	if len(job.Spec.Depends) > 0 {
		if v, ok := r.unmet(job); ok {
			return v, true
		}
	}
	if v, ok := r.barredByQOS(job.Spec); ok {
		return v, true
	}
	if v, ok := p.barredByPartitions(job.Spec); ok {
		return v, true
	}
	if v, ok := p.barredByReservation(r, job.Spec); ok {
		return v, true
	}
	if limit := job.Spec.ArrayLimit; job.Array != 0 && limit > 0 && p.leftOf(r, job) <= 0 {
		return throttled(limit), true
	}
	return r.limits.bar(job)
}

// throttled is told of elements of an array beyond its limit.
func throttled(limit int32) verdict {
	return verdict{cluster.ReasonArrayTaskLimit, fmt.Sprintf("%s of its array may run at once, and as many run or are planned before it", count(limit, "element"))}
}

// failure is why the last attempt of a job that is kept back for it failed, after what joins
// it to other words; "" for others.
func failure(r *pass, job *cluster.Job, after string) string {
	if job.Restarts == 0 || job.Eligible <= r.snap.Now || job.Reason != cluster.ReasonBeginTime || job.Detail == "" {
		return ""
	}
	return after + job.Detail
}

// barredByQOS bars a job whose QOS is no longer granted.
func (r *pass) barredByQOS(spec *cluster.JobSpec) (verdict, bool) {
	if r.snap.Policy.MayUseQOS(treeOf(r.snap), spec) {
		return verdict{}, false
	}
	in := ""
	if spec.Account != "" {
		in = " in account " + spec.Account
	}
	return verdict{cluster.ReasonInvalidQOS, fmt.Sprintf("%s%s may no longer use qos %s", spec.Owner.User, in, spec.QOS)}, true
}

// treeOf returns the accounts of a snapshot; nil for none.
func treeOf(snap *cluster.Snapshot) *cluster.AccountTree {
	if snap.Accounts == nil {
		return nil
	}
	return snap.Accounts.Tree
}

// barredByPartitions bars a job if each of its partitions refuses it, and names each.
func (p *Planner) barredByPartitions(spec *cluster.JobSpec) (verdict, bool) {
	first, barred := p.barredByPartition(spec, spec.Partition)
	if !barred || len(spec.Others) == 0 {
		return first, barred
	}
	var asks, all []string
	for _, name := range partitions(spec) {
		x, refuses := p.ground.refusalBy(spec, name)
		if !refuses {
			return verdict{}, false
		}
		if x.asks != "" && !slices.Contains(asks, x.asks) {
			asks = append(asks, x.asks)
		}
		all = append(all, fmt.Sprintf("partition %q %s", name, x.says))
	}
	first.detail = strings.Join(all, ", ")
	if len(asks) > 0 {
		first.detail = "asks for " + and(asks) + "; " + first.detail
	}
	return first, true
}

// barredByPartition returns why one partition refuses a job.
func (p *Planner) barredByPartition(spec *cluster.JobSpec, name string) (verdict, bool) {
	x, refuses := p.ground.refusalBy(spec, name)
	switch {
	case !refuses:
		return verdict{}, false
	case x.asks != "":
		return verdict{x.reason, fmt.Sprintf("asks for %s; partition %q %s", x.asks, name, x.says)}, true
	case x.says == down:
		return verdict{reason: x.reason}, true
	}
	return verdict{x.reason, fmt.Sprintf("partition %q %s", name, x.says)}, true
}

// refusal is why a partition lets no job with a specification start, in words.
type refusal struct {
	reason     cluster.Reason
	asks, says string // what the job asks for; what the partition says to that
}

// down is the reason of a partition that starts no jobs.
const down = "is down"

// refusalBy reports whether a partition refuses every start of a job, regardless of free
// resources, and why. Everything it checks is part of a class's key.
func (g *resources) refusalBy(spec *cluster.JobSpec, name string) (refusal, bool) {
	part, ok := g.parts[name]
	limit := spec.TimeLimit
	switch {
	case !ok:
		return refusal{reason: cluster.ReasonPartitionDown, says: "no longer exists"}, true
	case part.Down:
		return refusal{reason: cluster.ReasonPartitionDown, says: down}, true
	case !part.Allows(spec.Account):
		return refusal{reason: cluster.ReasonAccountNotAllowed, says: disallows(spec.Account)}, true
	case part.MaxNodes > 0 && spec.Request.Nodes > part.MaxNodes:
		return refusal{cluster.ReasonPartitionNodeLimit, count(spec.Request.Nodes, "node"), "allows " + count(part.MaxNodes, "node")}, true
	case part.MaxTime > 0 && (limit == 0 || limit > part.MaxTime):
		return refusal{cluster.ReasonPartitionTimeLimit, cluster.FormatLimit(limit), "allows " + cluster.FormatLimit(part.MaxTime)}, true
	}
	return refusal{}, false
}

// disallows is what is said of a partition whose allow_accounts lacks a job's account.
func disallows(account string) string {
	if account == "" {
		return "does not allow jobs without an account any more"
	}
	return fmt.Sprintf("does not allow account %q any more", account)
}

// barredByReservation bars a job whose reservation is gone, is not for it, or has become
// too short for it. What it says stays the same from pass to pass.
func (p *Planner) barredByReservation(r *pass, spec *cluster.JobSpec) (verdict, bool) {
	if spec.Reservation == "" {
		return verdict{}, false
	}
	bar := func(format string, args ...any) (verdict, bool) {
		return verdict{cluster.ReasonReservation, fmt.Sprintf(format, args...)}, true
	}
	x, known := r.snap.Policy.Scheduling.Reservation(spec.Reservation)
	if !known {
		return bar("reservation %q no longer exists", spec.Reservation)
	}
	asks := func() string {
		return fmt.Sprintf("asks for %s, and %s to clear up", cluster.FormatLimit(spec.TimeLimit), cluster.FormatElapsed(p.ground.grace))
	}
	switch lasts := p.ground.holdTime(spec); {
	case x.End <= r.snap.Now:
		return bar("reservation %q is over", x.Name)
	case !x.Admits(spec.Owner.User, spec.Account):
		return bar("reservation %q is not for user %s or account %q", x.Name, spec.Owner.User, spec.Account)
	case lasts > x.End.Sub(x.Start):
		return bar("%s; reservation %q lasts %s", asks(), x.Name, cluster.FormatElapsed(x.End.Sub(x.Start)))
	case lasts > x.End.Sub(r.snap.Now):
		return bar("%s; reservation %q ends before that, at %s", asks(), x.Name, stamp(x.End))
	}
	return verdict{}, false
}

// early says that a job's reservation has not begun, if so.
func (r *pass) early(spec *cluster.JobSpec) (verdict, bool) {
	x, known := r.snap.Policy.Scheduling.Reservation(spec.Reservation)
	if !known || x.Start <= r.snap.Now {
		return verdict{}, false
	}
	return verdict{cluster.ReasonReservation, fmt.Sprintf("within reservation %q, which begins at %s", x.Name, stamp(x.Start))}, true
}

// stamp writes an instant for what is said to everybody, wherever they are.
func stamp(at cluster.Instant) string { return at.Time().UTC().Format("2006-01-02T15:04:05Z") }

// limitOf is the time limit of a job; one without asks for the longest there is.
func limitOf(spec *cluster.JobSpec) time.Duration {
	if spec.TimeLimit == 0 {
		return unlimitedTime
	}
	return spec.TimeLimit
}

// countArrays counts the elements that run or are planned, of each array.
func (p *Planner) countArrays(r *pass) {
	r.taken = map[cluster.JobID]int32{}
	for _, job := range r.jobs.active {
		if job.Array != 0 {
			r.taken[job.Array]++
		}
	}
	for e := range p.limited {
		r.taken[e.job.Array]++
	}
}

// leftOf is how many more elements of the job's array may be planned or run.
func (p *Planner) leftOf(r *pass, job *cluster.Job) int32 {
	if r.taken == nil {
		p.countArrays(r)
	}
	return job.Spec.ArrayLimit - r.taken[job.Array]
}

// limit counts an entry that was found eligible against the limit of its array, if that has one.
func (p *Planner) limit(r *pass, e *entry) {
	if e.job.Array == 0 || e.job.Spec.ArrayLimit == 0 {
		return
	}
	if p.limited[e] = true; r.taken != nil {
		r.taken[e.job.Array]++
		r.turned[e.job.Array] = true
	}
}

// unlimit counts it no more.
func (p *Planner) unlimit(r *pass, e *entry) {
	if p.limited[e] && r.taken != nil {
		r.taken[e.job.Array]--
		r.turned[e.job.Array] = true
	}
	delete(p.limited, e)
}

// mistold reports whether elements that are kept back were looked at before another of their
// array was planned, or lost its place, and would be told another reason after that. Such a
// change may be all that a pass does, and no other would follow. O(lines) where there is one.
func (p *Planner) mistold(r *pass) bool {
	if len(r.turned) == 0 {
		return false
	}
	for _, l := range p.barred.lines {
		if !r.turned[l.array] {
			continue
		}
		e := l.first()
		v, barred := p.bar(r, e.job)
		if !barred && e.class != nil {
			v, barred = p.promisedAway(r, e.job)
		}
		if !barred || v.reason != l.why.reason {
			return true
		}
	}
	return false
}
