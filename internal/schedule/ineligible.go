package schedule

import (
	"time"

	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/pkg/cluster"
)

// ineligible is the jobs that are not eligible or never can start, by what would have to
// change first: an instant that comes, something that becomes of another job, or what
// limits leave. A pass looks again only at those for whom that may have changed; of
// those whom limits keep back for the same reason, at the first alone. What partitions
// and the fabric keep back has to wait for another policy or other nodes, with which
// all is planned anew.
type ineligible struct {
	count  int
	later  heap.Heap[*wakeup]
	causes map[dependencyKey]map[*entry]bool
	news   map[dependencyKey]bool // something became of it since the last pass looked
	lines  map[limitKey]*limitGroup
}

// blockState is where a barred entry is noted.
type blockState struct {
	wakeup     *wakeup
	causes     []dependencyKey
	limitGroup *limitGroup
}

// wakeup is the instant at which a barred entry is looked at again.
type wakeup struct {
	*entry
	at    cluster.Instant
	place int
}

// dependencyKey is a job or an array that others wait for, or the user and name of those that
// go one at a time: alone are those of them that wait for nothing else, of which a pass
// looks at the first only.
type dependencyKey struct {
	job cluster.JobID
	jobName
	alone bool
}

// limitKey is all on which it depends which limit keeps a job back.
type limitKey struct {
	class              classKey
	account, user, qos string
	array              cluster.JobID
	placed             bool          // it has a class: it had a place until it was due
	own                cluster.JobID // a job that has conditions of its own goes alone
}

// limitGroup is the entries before one gate, which find the same verdict there. Entries that
// have left stay until they come to the front, or are most of them.
type limitGroup struct {
	limitKey
	members heap.Heap[*entry] // by ID
	size    int               // of these, still there
	why     verdict
	mixed   bool            // not all were told the same
	told    cluster.Instant // when they last were
}

// newNumbers is how long a line waits for each of its entries until it is told numbers
// that changed, such as how many GPUs its account has: with each job that starts or ends
// they are others for all of them. A few are told at once.
const (
	newNumbers = 50 * time.Millisecond
	fewEntries = 16
)

// newByID returns an empty heap of entries by job ID.
func newByID() heap.Heap[*entry] {
	return heap.New(func(a, b **entry) bool { return (*a).job.ID < (*b).job.ID })
}

// newWakeups returns an empty heap of wakeups by instant.
func newWakeups() heap.Heap[*wakeup] {
	return heap.NewIndexed(func(a, b **wakeup) bool { return (*a).at < (*b).at }, func(a **wakeup, place int) { (*a).place = place })
}

func newBarred() ineligible {
	return ineligible{later: newWakeups(), causes: map[dependencyKey]map[*entry]bool{}, news: map[dependencyKey]bool{}, lines: map[limitKey]*limitGroup{}}
}

// add notes that an entry is barred, and why. O(its dependencies).
func (b *ineligible) add(r *pass, e *entry, v verdict) {
	b.remove(e)
	e.why, e.kept = v, &blockState{}
	b.count++
	at := cluster.Never
	if d := e.job.Spec.Deadline; d > 0 && v.reason != cluster.ReasonDeadline {
		at = d.Add(-e.job.Spec.TimeLimit) + 1
	}
	switch v.reason {
	case cluster.ReasonBeginTime:
		at = max(e.job.Eligible, e.job.Spec.Begin)
	case cluster.ReasonDependency:
		at = min(at, r.ripens(e.job))
	}
	if at < cluster.Never {
		b.wakeup(e, at)
	}
	switch v.reason {
	case cluster.ReasonDependency:
		for _, d := range e.job.Spec.Depends {
			b.await(r, e, d)
		}
	case cluster.ReasonBeginTime, cluster.ReasonDeadline, cluster.ReasonDependencyNeverSatisfied, cluster.ReasonInvalidQOS,
		cluster.ReasonPartitionDown, cluster.ReasonPartitionNodeLimit, cluster.ReasonPartitionTimeLimit, cluster.ReasonAccountNotAllowed:
	default:
		if e.class == nil || e.class.never.reason == cluster.ReasonNone {
			b.join(e, v)
		}
	}
}

func (b *ineligible) wakeup(e *entry, at cluster.Instant) {
	e.kept.wakeup = &wakeup{entry: e, at: at, place: -1}
	b.later.Push(e.kept.wakeup)
}

// await notes of which job a dependency tells.
func (b *ineligible) await(r *pass, e *entry, d cluster.Dependency) {
	c := dependencyKey{job: d.Job.ID}
	index := d.Job.Index
	if d.Kind == cluster.AfterCorr && index == cluster.NoIndex && e.job.Array != 0 {
		index = e.job.Index
	}
	switch {
	case d.Kind == cluster.Singleton:
		c = dependencyKey{jobName: bearerOf(e.job), alone: len(e.job.Spec.Depends) == 1}
	case index != cluster.NoIndex:
		if id, ok := r.snap.Element(d.Job.ID, index); ok {
			c.job = id
		}
	}
	if b.causes[c] == nil {
		b.causes[c] = map[*entry]bool{}
	}
	b.causes[c][e] = true
	e.kept.causes = append(e.kept.causes, c)
}

// join puts an entry before its gate.
func (b *ineligible) join(e *entry, v verdict) {
	spec := e.job.Spec
	g := limitKey{class: keyOf(spec), account: spec.Account, user: spec.Owner.User, qos: spec.QOS, placed: e.class != nil}
	if spec.ArrayLimit > 0 {
		g.array = e.job.Array
	}
	if len(spec.Depends) > 0 || spec.Deadline > 0 {
		g.own = e.job.ID
	}
	c := b.lines[g]
	if c == nil {
		c = &limitGroup{limitKey: g, why: v, members: newByID()}
		b.lines[g] = c
	}
	c.mixed = c.mixed || c.why != v
	c.size++
	c.members.Push(e)
	e.kept.limitGroup = c
}

// remove forgets an entry that is barred no more. O(its dependencies), and now and then
// what its line has.
func (b *ineligible) remove(e *entry) {
	k := e.kept
	if k == nil {
		return
	}
	e.kept = nil
	b.count--
	if k.wakeup != nil {
		b.later.Remove(k.wakeup.place)
	}
	for _, c := range k.causes {
		if delete(b.causes[c], e); len(b.causes[c]) == 0 {
			delete(b.causes, c)
		}
	}
	if c := k.limitGroup; c != nil {
		if c.size--; c.size == 0 {
			delete(b.lines, c.limitKey)
		} else if c.members.Len() > 2*c.size+16 {
			c.members.DeleteFunc(func(e *entry) bool { return !e.before(c) })
		}
	}
}

// before reports whether an entry is still one of a line.
func (e *entry) before(c *limitGroup) bool { return e.kept != nil && e.kept.limitGroup == c }

// first is the entry of a line with the lowest id; nil when it has none.
func (c *limitGroup) first() *entry {
	for c.members.Len() > 0 && !c.members.Items()[0].before(c) {
		c.members.Pop()
	}
	if c.members.Len() == 0 {
		return nil
	}
	return c.members.Items()[0]
}

// hear tells a line what its first was told: another reason at once, other numbers when it
// was not told for a while. O(1) where that is nothing new.
func (c *limitGroup) hear(r *pass, v verdict) {
	quiet := cluster.Instant(time.Duration(max(0, c.size-fewEntries)) * newNumbers)
	if c.why == v && !c.mixed || c.why.reason == v.reason && r.snap.Now-c.told < quiet {
		return
	}
	c.why, c.mixed, c.told = v, false, r.snap.Now
	for _, e := range c.members.Items() {
		if e.before(c) && e.why != v {
			e.why = v
			r.markChanged(e)
		}
	}
}

// happened notes that something became of a job.
func (b *ineligible) happened(job *cluster.Job) {
	if len(b.causes) == 0 || job == nil {
		return
	}
	for _, c := range [...]dependencyKey{{job: job.ID}, {job: job.Array}, {jobName: bearerOf(job)}, {jobName: bearerOf(job), alone: true}} {
		if b.causes[c] != nil {
			b.news[c] = true
		}
	}
}

// dueForRecheck is those for whom what keeps them back may have changed, but for all of a
// line, or of singletons of a name, behind the first. O(lines + those).
func (b *ineligible) dueForRecheck(now cluster.Instant, first func(jobName) *entry) heap.Heap[*entry] {
	roused := map[*entry]bool{}
	for b.later.Len() > 0 && b.later.Items()[0].at <= now {
		roused[b.later.Pop().entry] = true
	}
	for c := range b.news {
		if c.alone {
			if e := first(c.jobName); b.causes[c][e] {
				roused[e] = true
			}
			continue
		}
		for e := range b.causes[c] {
			roused[e] = true
		}
	}
	clear(b.news)
	for _, c := range b.lines {
		roused[c.first()] = true // who has an alarm, too, is looked at once
	}
	list := newByID()
	for e := range roused {
		list.Push(e)
	}
	return list
}
