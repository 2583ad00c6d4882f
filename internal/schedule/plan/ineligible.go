package plan

import (
	"time"

	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/cluster"
)

// ineligible holds the jobs that are not eligible, or can never start, by what has to change first: an
// instant that comes, another job, or what limits leave. A pass checks only those again for which that
// may have changed; of those that the same limits keep back, only the first. What partitions and the
// fabric keep back waits for another policy or other nodes, with which all jobs are checked again.
type ineligible struct {
	count      int
	wakeups    heap.Heap[*wakeup]
	dependents map[dependencyKey]map[*Entry]bool
	changed    map[dependencyKey]bool // since the last check
	groups     map[limitKey]*limitGroup
}

// block is where the index has an ineligible entry.
type block struct {
	wakeup *wakeup
	keys   []dependencyKey
	group  *limitGroup
}

// wakeup is the instant at which an ineligible entry is checked again.
type wakeup struct {
	*Entry
	at    cluster.Instant
	place int
}

// dependencyKey is a job or an array on which others depend, or a job name for singletons: alone marks
// those without another dependency. Only the first of these is checked.
type dependencyKey struct {
	job   cluster.JobID
	name  eligible.JobName
	alone bool
}

// limitKey is all that decides which limit keeps a job back.
type limitKey struct {
	class              classKey
	account, user, qos string
	array              cluster.JobID
	planned            bool          // the job had a planned start until it was due
	own                cluster.JobID // a job with dependencies or a deadline is in a group of its own
}

// limitGroup is the entries with one limit key, which have the same obstacle. Removed entries stay until
// they are the first, or the majority.
type limitGroup struct {
	limitKey
	members  heap.Heap[*Entry] // by ID
	size     int               // members that were not removed
	obstacle eligible.Obstacle
	mixed    bool            // not all members have it
	updated  cluster.Instant // when all members last got it
}

// A changed number in an obstacle, such as the GPUs of an account in use, reaches the members of a group
// once in updateDelay for each member: every start or end changes it for all of them. A group of
// smallGroup members gets it at once.
const (
	updateDelay = 50 * time.Millisecond
	smallGroup  = 16
)

// newByID returns an empty heap of entries by job ID.
func newByID() heap.Heap[*Entry] {
	return heap.New(func(a, b **Entry) bool { return (*a).Job.ID < (*b).Job.ID })
}

func newIneligible() ineligible {
	return ineligible{
		wakeups: heap.NewIndexed(
			func(a, b **wakeup) bool { return (*a).at < (*b).at }, func(w **wakeup, place int) { (*w).place = place }),
		dependents: map[dependencyKey]map[*Entry]bool{}, changed: map[dependencyKey]bool{}, groups: map[limitKey]*limitGroup{},
	}
}

// add records an ineligible entry. O(its dependencies).
func (x *ineligible) add(p *Pass, e *Entry, o eligible.Obstacle) {
	x.remove(e)
	e.Obstacle, e.blocked = o, &block{}
	x.count++
	at := cluster.Never
	if d := e.Job.Spec.Deadline; d > 0 && o.Reason != cluster.ReasonDeadline {
		at = d.Add(-e.Job.Spec.TimeLimit) + 1
	}
	switch o.Reason {
	case cluster.ReasonBeginTime:
		at = max(e.Job.Eligible, e.Job.Spec.Begin)
	case cluster.ReasonDependency:
		at = min(at, p.Check.DelaysEnd(e.Job))
	}
	if at < cluster.Never {
		e.blocked.wakeup = &wakeup{Entry: e, at: at, place: -1}
		x.wakeups.Push(e.blocked.wakeup)
	}
	switch o.Reason {
	case cluster.ReasonDependency:
		for _, d := range e.Job.Spec.Depends {
			x.addDependency(p.Snap, e, d)
		}
	case cluster.ReasonFencing, cluster.ReasonBeginTime, cluster.ReasonDeadline, cluster.ReasonDependencyNeverSatisfied, cluster.ReasonInvalidQOS,
		cluster.ReasonPartitionDown, cluster.ReasonPartitionNodeLimit, cluster.ReasonPartitionTimeLimit, cluster.ReasonAccountNotAllowed,
		cluster.ReasonBadConstraints:
	default:
		if e.Class == nil || !e.Class.never() {
			x.addToGroup(e, o)
		}
	}
}

// addDependency records the job, array or name that a dependency is on.
func (x *ineligible) addDependency(snap *cluster.Snapshot, e *Entry, d cluster.Dependency) {
	k := dependencyKey{job: d.Job.ID}
	index := d.Job.Index
	if d.Kind == cluster.AfterCorr && index == cluster.NoIndex && e.Job.Array != 0 {
		index = e.Job.Index
	}
	switch {
	case d.Kind == cluster.Singleton:
		k = dependencyKey{name: eligible.JobNameOf(e.Job), alone: len(e.Job.Spec.Depends) == 1}
	case index != cluster.NoIndex:
		if id, ok := snap.Element(d.Job.ID, index); ok {
			k.job = id
		}
	}
	if x.dependents[k] == nil {
		x.dependents[k] = map[*Entry]bool{}
	}
	x.dependents[k][e] = true
	e.blocked.keys = append(e.blocked.keys, k)
}

// addToGroup adds an entry to the group of its limit key.
func (x *ineligible) addToGroup(e *Entry, o eligible.Obstacle) {
	spec := e.Job.Spec
	k := limitKey{class: keyOf(spec), account: spec.Account, user: spec.Owner.User, qos: spec.QOS, planned: e.Class != nil}
	if spec.ArrayLimit > 0 {
		k.array = e.Job.Array
	}
	if len(spec.Depends) > 0 || spec.Deadline > 0 {
		k.own = e.Job.ID
	}
	g := x.groups[k]
	if g == nil {
		g = &limitGroup{limitKey: k, obstacle: o, members: newByID()}
		x.groups[k] = g
	}
	g.mixed = g.mixed || g.obstacle != o
	g.size++
	g.members.Push(e)
	e.blocked.group = g
}

// remove removes an entry that is ineligible no more. O(its dependencies), amortized.
func (x *ineligible) remove(e *Entry) {
	b := e.blocked
	if b == nil {
		return
	}
	e.blocked = nil
	x.count--
	if b.wakeup != nil {
		x.wakeups.Remove(b.wakeup.place)
	}
	for _, k := range b.keys {
		if delete(x.dependents[k], e); len(x.dependents[k]) == 0 {
			delete(x.dependents, k)
		}
	}
	if g := b.group; g != nil {
		if g.size--; g.size == 0 {
			delete(x.groups, g.limitKey)
		} else if g.members.Len() > 2*g.size+16 {
			g.members.DeleteFunc(func(e *Entry) bool { return !g.has(e) })
		}
	}
}

// has reports whether an entry was not removed from the group.
func (g *limitGroup) has(e *Entry) bool { return e.blocked != nil && e.blocked.group == g }

// first returns the member with the lowest job ID; nil when the group is empty.
func (g *limitGroup) first() *Entry {
	for g.members.Len() > 0 && !g.has(g.members.Items()[0]) {
		g.members.Pop()
	}
	if g.members.Len() == 0 {
		return nil
	}
	return g.members.Items()[0]
}

// update gives all members the obstacle of the first: another reason at once, another detail after some
// time. O(1) where that is nothing new.
func (g *limitGroup) update(p *Pass, o eligible.Obstacle) {
	delay := cluster.Instant(time.Duration(max(0, g.size-smallGroup)) * updateDelay)
	if g.obstacle == o && !g.mixed || g.obstacle.Reason == o.Reason && p.Snap.Now-g.updated < delay {
		return
	}
	g.obstacle, g.mixed, g.updated = o, false, p.Snap.Now
	for _, e := range g.members.Items() {
		if g.has(e) && e.Obstacle != o {
			e.Obstacle = o
			p.markChanged(e)
		}
	}
}

// jobChanged records that a job changed; nil is no job.
func (x *ineligible) jobChanged(job *cluster.Job) {
	if len(x.dependents) == 0 || job == nil {
		return
	}
	name := eligible.JobNameOf(job)
	for _, k := range [...]dependencyKey{{job: job.ID}, {job: job.Array}, {name: name}, {name: name, alone: true}} {
		if x.dependents[k] != nil {
			x.changed[k] = true
		}
	}
}

// dueForRecheck returns the entries whose obstacle may have changed; of a limit group, and of singletons
// of one name, only the first. O(groups + those).
func (x *ineligible) dueForRecheck(now cluster.Instant, first func(eligible.JobName) *Entry) heap.Heap[*Entry] {
	due := map[*Entry]bool{}
	for x.wakeups.Len() > 0 && x.wakeups.Items()[0].at <= now {
		due[x.wakeups.Pop().Entry] = true
	}
	for k := range x.changed {
		if k.alone {
			if e := first(k.name); x.dependents[k][e] {
				due[e] = true
			}
			continue
		}
		for e := range x.dependents[k] {
			due[e] = true
		}
	}
	clear(x.changed)
	for _, g := range x.groups {
		due[g.first()] = true // it may have a wakeup too
	}
	list := newByID()
	for e := range due {
		list.Push(e)
	}
	return list
}
