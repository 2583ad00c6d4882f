package schedule

import (
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/fairshare"
)

// limits is what accounts, users and QOS may have at once, and what they have. A
// cluster without limits costs nothing; with them, the first job that asks pays
// O(running jobs) for the pass.
type limits struct {
	snap   *cluster.Snapshot
	tree   *cluster.AccountTree
	qos    map[string]*cluster.QOS
	bounds map[*cluster.JobSpec][]cluster.Bound
	index  map[string]int          // of resources that limits are on, in use.amounts
	uses   map[cluster.Scope]*use  // what runs; nil until a limited job asks
	past   map[cluster.Scope]*past // what was used up; nil until a limit on that is met
	timed  bool                    // some limit is on minutes
	byQOS  bool                    // some QOS has limits
	spare  []int64                 // memory for uses
}

// use is what runs in one scope, with what was decided in this pass.
type use struct {
	jobs    int64
	amounts []int64
	minutes []int64 // amounts × minutes that are left until the time limits
}

// past is what was used up in one scope in units × minutes, by resource.
type past map[string]int64

// newLimits reads the limits of a snapshot; there are none without accounts. O(QOS).
func newLimits(snap *cluster.Snapshot) *limits {
	l := &limits{snap: snap}
	if snap.Accounts == nil {
		return l
	}
	tree := snap.Accounts.Tree
	limited := tree != nil && tree.Limited
	if !limited && !slices.ContainsFunc(snap.Policy.QOS, func(q cluster.QOS) bool { return len(q.Limits) > 0 }) {
		return l
	}
	qos := make(map[string]*cluster.QOS, len(snap.Policy.QOS))
	index := map[string]int{cluster.ResourceWall: 0}
	for i := range snap.Policy.QOS {
		q := &snap.Policy.QOS[i]
		qos[q.Name] = q
		l.byQOS = l.byQOS || len(q.Limits) > 0
		for _, limit := range q.Limits {
			number(index, limit.Resource)
			l.timed = l.timed || limit.Kind == cluster.GrpTRESRunMins
		}
	}
	if tree != nil {
		for resource := range tree.Resources {
			number(index, resource)
		}
		l.timed = l.timed || tree.Kinds[cluster.GrpTRESRunMins] || tree.Kinds[cluster.GrpTRESMins] || tree.Kinds[cluster.GrpWall]
	}
	l.tree, l.qos, l.index = tree, qos, index
	l.bounds = map[*cluster.JobSpec][]cluster.Bound{}
	return l
}

func number(index map[string]int, resource string) {
	if _, known := index[resource]; !known && resource != "" {
		index[resource] = len(index)
	}
}

// of is the limits that hold for jobs of a specification.
func (l *limits) of(spec *cluster.JobSpec) []cluster.Bound {
	b, known := l.bounds[spec]
	if !known {
		b = l.tree.Bounds(spec, l.qos[spec.QOS])
		l.bounds[spec] = b
	}
	return b
}

// bar is the limit that keeps a job from starting now, if one does. O(its limits).
func (l *limits) bar(job *cluster.Job) (verdict, bool) {
	if l.bounds == nil {
		return verdict{}, false
	}
	bounds := l.of(job.Spec)
	for i := range bounds {
		b := &bounds[i]
		if asked, short := b.Short(job.Spec, l.snap.Models); short {
			return verdict{b.Reason(), b.Exceeded(-1, asked)}, true
		}
		if used, asked := l.against(b, job.Spec); asked > 0 && max(used, 0)+asked > b.Value {
			return verdict{b.Reason(), b.Exceeded(used, asked)}, true
		}
	}
	return verdict{}, false
}

// against is what is used of a bound, -1 for one on each job alone, and what a job
// adds to that: 0 where it cannot come to have what the bound is on.
func (l *limits) against(b *cluster.Bound, spec *cluster.JobSpec) (used, asked int64) {
	if !spec.MayGet(b.Resource, l.snap.Models) {
		return -1, 0
	}
	switch b.Kind {
	case cluster.GrpJobs, cluster.MaxJobs, cluster.MaxJobsPerUser, cluster.MaxJobsPerAccount:
		return l.using(b.Scope).jobs, 1
	case cluster.GrpTRES, cluster.MaxTRESPerUser, cluster.MaxTRESPerAccount:
		return l.using(b.Scope).amounts[l.index[b.Resource]], spec.Takes(b.Resource, l.snap.Models)
	case cluster.GrpTRESRunMins:
		return l.using(b.Scope).minutes[l.index[b.Resource]], b.Minutes(spec, l.snap.Models)
	case cluster.GrpTRESMins:
		return l.using(b.Scope).minutes[l.index[b.Resource]] + l.usedUp(b.Scope, b.Resource), b.Minutes(spec, l.snap.Models)
	case cluster.GrpWall:
		return 60 * (l.using(b.Scope).minutes[0] + l.usedUp(b.Scope, cluster.ResourceWall)), wall(spec)
	case cluster.MaxTRESPerJob:
		return -1, spec.Takes(b.Resource, l.snap.Models)
	case cluster.MaxTRESPerNode:
		return -1, spec.TakesOnNode(b.Resource, l.snap.Models)
	case cluster.MaxTRESMinsPerJob:
		return -1, b.Minutes(spec, l.snap.Models)
	case cluster.MaxWall:
		return -1, wall(spec)
	}
	return -1, 0 // of submissions, which the state has counted
}

// wall is a job's time limit in seconds; of none, a year.
func wall(spec *cluster.JobSpec) int64 {
	if spec.TimeLimit == 0 {
		return int64(unlimitedTime / time.Second)
	}
	return int64((spec.TimeLimit + time.Second - 1) / time.Second)
}

// using is what runs in a scope.
func (l *limits) using(scope cluster.Scope) *use {
	if l.uses == nil {
		l.countRunning()
	}
	u := l.uses[scope]
	if u == nil {
		u = l.none()
		l.uses[scope] = u
	}
	return u
}

// none is a use of nothing.
func (l *limits) none() *use {
	n := len(l.index)
	if len(l.spare) < 2*n {
		l.spare = make([]int64, 256*n)
	}
	u := &use{amounts: l.spare[:n:n], minutes: l.spare[n : 2*n : 2*n]}
	l.spare = l.spare[2*n:]
	return u
}

// group is what counts in the same scopes.
type group struct {
	cluster.AssociationKey
	qos string
}

// countRunning sums up what runs: by user and QOS, of these by account, and of those
// by account above.
func (l *limits) countRunning() {
	left := l.minutesLeft()
	groups := map[group]*use{}
	for id, c := range l.snap.Accounts.Running {
		k := group{AssociationKey: c.AssociationKey}
		if l.byQOS {
			k.qos = c.QOS
		}
		g := groups[k]
		if g == nil {
			g = l.none()
			groups[k] = g
		}
		g.jobs++
		g.amounts[0]++
		g.minutes[0] += left[id]
		for _, a := range c.Amounts {
			if i, limited := l.index[a.Resource]; limited {
				g.amounts[i] += a.Count
				g.minutes[i] += a.Count * left[id]
			}
		}
	}
	l.uses = make(map[cluster.Scope]*use, 2*len(groups))
	accounts := map[string]*use{}
	for k, g := range groups {
		l.using(cluster.ScopeOf(k.AssociationKey)).add(g)
		a := accounts[k.Account]
		if a == nil {
			a = l.none()
			accounts[k.Account] = a
		}
		a.add(g)
		if k.qos != "" {
			l.tree.ScopesOfQOS(k.AssociationKey, k.qos, func(scope cluster.Scope) { l.using(scope).add(g) })
		}
	}
	for name, a := range accounts {
		l.tree.ScopesOfAccount(name, func(scope cluster.Scope) { l.using(scope).add(a) })
	}
}

// minutesLeft is how long each job that runs may still run, when some limit asks.
func (l *limits) minutesLeft() map[cluster.JobID]int64 {
	if !l.timed {
		return nil
	}
	left := make(map[cluster.JobID]int64, len(l.snap.Active))
	for _, job := range l.snap.Active {
		end := job.Limit()
		if end == 0 {
			end = l.snap.Now.Add(unlimitedTime)
		}
		left[job.ID] = int64(max(0, end.Sub(l.snap.Now)+time.Minute-1) / time.Minute)
	}
	return left
}

// add adds what g is.
func (u *use) add(g *use) {
	u.jobs += g.jobs
	for i := range g.amounts {
		u.amounts[i] += g.amounts[i]
		u.minutes[i] += g.minutes[i]
	}
}

// start counts a start that was decided in this pass, as the state will count it when
// it is agreed; of several types of GPU that it may be given, as each of them, and of an
// exclusive one the most that its nodes may have.
func (l *limits) start(job *cluster.Job) {
	if l.bounds == nil {
		return
	}
	g := l.none()
	minutes := wall(job.Spec) / 60
	g.jobs, g.amounts[0], g.minutes[0] = 1, 1, minutes
	for resource, i := range l.index {
		if i > 0 && job.Spec.MayGet(resource, l.snap.Models) {
			g.amounts[i] = job.Spec.Takes(resource, l.snap.Models)
			g.minutes[i] = g.amounts[i] * minutes
		}
	}
	l.tree.Scopes(job.Spec, func(scope cluster.Scope) { l.using(scope).add(g) })
}

// usedUp is what was used up of a resource in a scope, in units × minutes.
func (l *limits) usedUp(scope cluster.Scope, resource string) int64 {
	if l.past == nil {
		l.past = map[cluster.Scope]*past{}
		for u := range l.snap.Accounts.Used {
			l.sumUp(u)
		}
	}
	if p := l.past[scope]; p != nil {
		return (*p)[resource]
	}
	return 0
}

// sumUp adds what one user has used to what was used in their scopes.
func (l *limits) sumUp(u *cluster.AccountUsage) {
	half := l.snap.Policy.Scheduling.FairShare.HalfLife
	spec := cluster.JobSpec{Account: u.Account, Owner: cluster.Identity{User: u.User}, Partition: u.Partition}
	own := u.User == "" // its own scope is the account's, which is met again
	l.tree.Scopes(&spec, func(scope cluster.Scope) {
		if own {
			own = false
			return
		}
		p := l.past[scope]
		if p == nil {
			p = &past{}
			l.past[scope] = p
		}
		for i := range u.Raw {
			(*p)[u.Raw[i].Resource] += fairshare.At(u.Raw[i].Usage, l.snap.Now, half) / 60
		}
	})
}

// Limits checks jobs against what accounts, users and QOS may have at once, as a pass
// does before it starts one.
type Limits struct{ of *limits }

// LimitsOf reads the limits of a snapshot, of which Policy, Accounts, Active, Models
// and Now are used, and counts what runs. O(running jobs).
func LimitsOf(snap *cluster.Snapshot) *Limits { return &Limits{newLimits(snap)} }

// Bar says which limit keeps a job from starting now; "" when none does. O(its limits).
func (l *Limits) Bar(job *cluster.Job) string {
	v, _ := l.of.bar(job)
	return v.detail
}

// Start counts a job that is about to start.
func (l *Limits) Start(job *cluster.Job) { l.of.start(job) }
