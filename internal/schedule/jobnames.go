package schedule

import (
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// jobNameIndex is who bears which name: what singletons wait for. It is made from all jobs when
// the first singleton asks, and follows what becomes of them from then on.
type jobNameIndex struct{ of map[jobName]*bearers }

// bearers is the jobs of one name.
type bearers struct {
	active  int
	waiting []cluster.JobID // in order
}

// newNamesakes counts all jobs. O(jobs).
func newNamesakes(jobs *jobList) *jobNameIndex {
	n := &jobNameIndex{map[jobName]*bearers{}}
	for _, job := range jobs.active {
		n.in(job).active++
	}
	for _, job := range jobs.pending {
		b := n.in(job)
		b.waiting = append(b.waiting, job.ID)
	}
	return n
}

func (n *jobNameIndex) in(job *cluster.Job) *bearers {
	b := n.of[bearerOf(job)]
	if b == nil {
		b = &bearers{}
		n.of[bearerOf(job)] = b
	}
	return b
}

// first is the job that may run as a singleton: that waits ahead of all others of its name,
// of which none runs. 0 when there is none.
func (n *jobNameIndex) first(b jobName) cluster.JobID {
	if who := n.of[b]; who != nil && who.active == 0 && len(who.waiting) > 0 {
		return who.waiting[0]
	}
	return 0
}

// ran notes a change among the jobs that have nodes, waited one among those that wait; a job
// that is not among them any more, or was not, is nil. For ran n may be nil: nobody has asked.
func (n *jobNameIndex) ran(old, now *cluster.Job) {
	if n == nil || sameBearer(old, now) {
		return
	}
	if old != nil {
		n.in(old).active--
		n.tidy(old)
	}
	if now != nil {
		n.in(now).active++
	}
}

func (n *jobNameIndex) waited(old, now *cluster.Job) {
	if sameBearer(old, now) {
		return
	}
	if old != nil {
		b := n.in(old)
		if i, found := slices.BinarySearch(b.waiting, old.ID); i == 0 && found {
			b.waiting = b.waiting[1:] // as most do: it costs nothing
		} else if found {
			b.waiting = slices.Delete(b.waiting, i, i+1)
		}
		n.tidy(old)
	}
	if now != nil {
		b := n.in(now)
		i, _ := slices.BinarySearch(b.waiting, now.ID)
		b.waiting = slices.Insert(b.waiting, i, now.ID)
	}
}

// tidy forgets a name that nobody bears any more.
func (n *jobNameIndex) tidy(job *cluster.Job) {
	if b := n.in(job); b.active == 0 && len(b.waiting) == 0 {
		delete(n.of, bearerOf(job))
	}
}

func sameBearer(a, b *cluster.Job) bool {
	return a != nil && b != nil && (a.Spec == b.Spec || bearerOf(a) == bearerOf(b))
}
