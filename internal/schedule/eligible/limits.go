package eligible

import (
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/fairshare"
)

// Limits checks jobs against the limits of accounts, users and QOS on what runs at once and on what was
// used. A cluster without limits costs nothing; with limits, the first check costs O(running jobs).
type Limits struct {
	snap   *cluster.Snapshot
	tree   *cluster.AccountTree
	qos    map[string]*cluster.QOS
	bounds map[*cluster.JobSpec][]cluster.EffectiveLimit // nil when there are no limits
	index  map[string]int                                // of limited resources, in use.amounts
	uses   map[cluster.LimitScope]*use                   // what runs; nil before the first check
	past   map[cluster.LimitScope]*past                  // what was used; nil before the first check of a limit on it
	timed  bool                                          // some limit is on minutes of run time
	byQOS  bool                                          // some QOS has limits
	spare  []int64                                       // unused memory for uses
}

// use is the running use in one scope, including the starts of this pass.
type use struct {
	jobs    int64
	amounts []int64
	minutes []int64 // amounts × minutes until the time limits
}

// past is the past use in one scope in units × minutes, by resource.
type past map[string]int64

// NewLimits reads the limits of a snapshot, which has none without accounts. It uses the fields Policy,
// Accounts, Active, Models and Now. O(QOS).
func NewLimits(snap *cluster.Snapshot) *Limits {
	l := &Limits{snap: snap}
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
			addResource(index, limit.Resource)
			l.timed = l.timed || limit.Kind == cluster.GrpTRESRunMins
		}
	}
	if tree != nil {
		for resource := range tree.Resources {
			addResource(index, resource)
		}
		l.timed = l.timed || tree.Kinds[cluster.GrpTRESRunMins] || tree.Kinds[cluster.GrpTRESMins] || tree.Kinds[cluster.GrpWall]
	}
	l.tree, l.qos, l.index = tree, qos, index
	l.bounds = map[*cluster.JobSpec][]cluster.EffectiveLimit{}
	return l
}

func addResource(index map[string]int, resource string) {
	if _, known := index[resource]; !known && resource != "" {
		index[resource] = len(index)
	}
}

// Limited reports whether there are any limits.
func (l *Limits) Limited() bool { return l.bounds != nil }

// Bounds returns the limits that apply to jobs of a specification.
func (l *Limits) Bounds(spec *cluster.JobSpec) []cluster.EffectiveLimit {
	b, known := l.bounds[spec]
	if !known {
		b = l.tree.Bounds(spec, l.qos[spec.QOS])
		l.bounds[spec] = b
	}
	return b
}

// First returns the first limit that keeps a job from starting now, if one does. O(its limits).
func (l *Limits) First(job *cluster.Job) (Obstacle, bool) {
	if l.bounds == nil {
		return Obstacle{}, false
	}
	bounds := l.Bounds(job.Spec)
	for i := range bounds {
		b := &bounds[i]
		if asked, short := b.Short(job.Spec, l.snap.Models); short {
			return Obstacle{b.Reason(), b.Exceeded(-1, asked)}, true
		}
		if used, asked := l.Against(b, job.Spec); asked > 0 && max(used, 0)+asked > b.Value {
			return Obstacle{b.Reason(), b.Exceeded(used, asked)}, true
		}
	}
	return Obstacle{}, false
}

// Against returns what is used of a bound, -1 for a bound on each job alone, and what a job adds to
// that: 0 where it cannot get the bound's resource.
func (l *Limits) Against(b *cluster.EffectiveLimit, spec *cluster.JobSpec) (used, asked int64) {
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
	return -1, 0 // the state checks bounds on submissions
}

// wall returns a job's time limit in seconds; a year without one.
func wall(spec *cluster.JobSpec) int64 {
	if spec.TimeLimit == 0 {
		return int64(UnlimitedTime / time.Second)
	}
	return int64((spec.TimeLimit + time.Second - 1) / time.Second)
}

// using returns the use of a scope.
func (l *Limits) using(scope cluster.LimitScope) *use {
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

// none returns an empty use.
func (l *Limits) none() *use {
	n := len(l.index)
	if len(l.spare) < 2*n {
		l.spare = make([]int64, 256*n)
	}
	u := &use{amounts: l.spare[:n:n], minutes: l.spare[n : 2*n : 2*n]}
	l.spare = l.spare[2*n:]
	return u
}

// group identifies jobs that count in the same scopes.
type group struct {
	cluster.AssociationKey
	qos string
}

// countRunning sums up what runs: by user and QOS, from these by account, and from those by parent
// account.
func (l *Limits) countRunning() {
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
	l.uses = make(map[cluster.LimitScope]*use, 2*len(groups))
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
			l.tree.ScopesOfQOS(k.AssociationKey, k.qos, func(scope cluster.LimitScope) { l.using(scope).add(g) })
		}
	}
	for name, a := range accounts {
		l.tree.ScopesOfAccount(name, func(scope cluster.LimitScope) { l.using(scope).add(a) })
	}
}

// minutesLeft returns how long each running job may still run; nil when no limit needs it.
func (l *Limits) minutesLeft() map[cluster.JobID]int64 {
	if !l.timed {
		return nil
	}
	left := make(map[cluster.JobID]int64, len(l.snap.Active))
	for _, job := range l.snap.Active {
		end := job.Limit()
		if end == 0 {
			end = l.snap.Now.Add(UnlimitedTime)
		}
		left[job.ID] = int64(max(0, end.Sub(l.snap.Now)+time.Minute-1) / time.Minute)
	}
	return left
}

// add adds another use.
func (u *use) add(g *use) {
	u.jobs += g.jobs
	for i := range g.amounts {
		u.amounts[i] += g.amounts[i]
		u.minutes[i] += g.minutes[i]
	}
}

// Start counts a start that was decided in this pass, as the state will count it when it is committed:
// a job that accepts several types of GPU counts for each, and an exclusive job counts the most that
// its nodes may have.
func (l *Limits) Start(job *cluster.Job) {
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
	l.tree.Scopes(job.Spec, func(scope cluster.LimitScope) { l.using(scope).add(g) })
}

// usedUp returns what was used of a resource in a scope, in units × minutes.
func (l *Limits) usedUp(scope cluster.LimitScope, resource string) int64 {
	if l.past == nil {
		l.past = map[cluster.LimitScope]*past{}
		for u := range l.snap.Accounts.Used {
			l.sumUp(u)
		}
	}
	if p := l.past[scope]; p != nil {
		return (*p)[resource]
	}
	return 0
}

// sumUp adds the usage of one user to the user's scopes.
func (l *Limits) sumUp(u *cluster.AccountUsage) {
	half := l.snap.Policy.Scheduling.FairShare.HalfLife
	spec := cluster.JobSpec{Account: u.Account, Owner: cluster.Identity{User: u.User}, Partition: u.Partition}
	own := u.User == "" // the account's own scope comes first, and once more among the account's scopes
	l.tree.Scopes(&spec, func(scope cluster.LimitScope) {
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
			(*p)[u.Raw[i].Resource] += fairshare.UsageAt(u.Raw[i].Usage, l.snap.Now, half) / 60
		}
	})
}

// All returns every limit that keeps jobs of a specification from starting now.
func (l *Limits) All(spec *cluster.JobSpec) []Obstacle {
	if l.bounds == nil {
		return nil
	}
	var all []Obstacle
	for _, b := range l.Bounds(spec) {
		if used, asked := l.Against(&b, spec); asked > 0 && max(used, 0)+asked > b.Value {
			all = append(all, Obstacle{b.Reason(), b.Exceeded(used, asked)})
		}
	}
	return all
}

// Scopes calls f for each scope whose limits apply to a specification.
func (l *Limits) Scopes(spec *cluster.JobSpec, f func(cluster.LimitScope)) { l.tree.Scopes(spec, f) }

// ExceededByGrowth returns the first limit that keeps a running job from getting more nodes than the ones that it has, if one does.
// O(its limits).
func (l *Limits) ExceededByGrowth(spec *cluster.JobSpec, has, more int32) (Obstacle, bool) {
	if l.bounds == nil {
		return Obstacle{}, false
	}
	before, after := spec.OnNodes(has), spec.OnNodes(has+more)
	for _, b := range l.Bounds(spec) {
		used, asked := l.Against(&b, after)
		_, had := l.Against(&b, before)
		if asked == had {
			continue
		}
		if used >= 0 {
			asked -= had
		}
		if max(used, 0)+asked > b.Value {
			return Obstacle{b.Reason(), b.Exceeded(used, asked)}, true
		}
	}
	return Obstacle{}, false
}

// Grow counts nodes that a running job gets in this pass.
func (l *Limits) Grow(spec *cluster.JobSpec, has, more int32) {
	if l.bounds == nil {
		return
	}
	before, after := spec.OnNodes(has), spec.OnNodes(has+more)
	g, minutes := l.none(), wall(spec)/60
	for resource, i := range l.index {
		if i > 0 && spec.MayGet(resource, l.snap.Models) {
			g.amounts[i] = after.Takes(resource, l.snap.Models) - before.Takes(resource, l.snap.Models)
			g.minutes[i] = g.amounts[i] * minutes
		}
	}
	l.tree.Scopes(spec, func(scope cluster.LimitScope) { l.using(scope).add(g) })
}
