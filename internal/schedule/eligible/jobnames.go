package eligible

import (
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// JobName is a job name of one user.
type JobName struct{ User, Name string }

// JobNameOf returns the name of a job.
func JobNameOf(job *cluster.Job) JobName { return JobName{job.Spec.Owner.User, job.Spec.Name} }

// IsSingleton reports whether a job waits for the other jobs of its name (sbatch(1),
// --dependency=singleton).
func IsSingleton(spec *cluster.JobSpec) bool {
	return slices.ContainsFunc(spec.Depends, func(d cluster.Dependency) bool { return d.Kind == cluster.Singleton })
}

// JobNames counts jobs by user and name, for singletons. It is made from all jobs when the first
// singleton is checked, and updated from then on.
type JobNames struct{ of map[JobName]*nameCount }

// nameCount counts the jobs of one name.
type nameCount struct {
	active  int
	pending []cluster.JobID // ascending
}

// newJobNames counts all jobs. O(jobs).
func newJobNames(jobs *JobList) *JobNames {
	n := &JobNames{map[JobName]*nameCount{}}
	for _, job := range jobs.Active {
		n.in(job).active++
	}
	for _, job := range jobs.Pending {
		c := n.in(job)
		c.pending = append(c.pending, job.ID)
	}
	return n
}

func (n *JobNames) in(job *cluster.Job) *nameCount {
	name := JobNameOf(job)
	c := n.of[name]
	if c == nil {
		c = &nameCount{}
		n.of[name] = c
	}
	return c
}

// first returns the job of a name that may run as a singleton: the first pending one while none is
// active; else 0.
func (n *JobNames) first(name JobName) cluster.JobID {
	if c := n.of[name]; c != nil && c.active == 0 && len(c.pending) > 0 {
		return c.pending[0]
	}
	return 0
}

// UpdateActive replaces an active job by another version of it; nil where it was not or is not active.
// n may be nil.
func (n *JobNames) UpdateActive(old, now *cluster.Job) {
	if n == nil || sameName(old, now) {
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

// UpdatePending replaces a pending job by another version of it; nil where it was not or is not
// pending. n may be nil.
func (n *JobNames) UpdatePending(old, now *cluster.Job) {
	if n == nil || sameName(old, now) {
		return
	}
	if old != nil {
		c := n.in(old)
		if i, found := slices.BinarySearch(c.pending, old.ID); i == 0 && found {
			c.pending = c.pending[1:] // the usual case, in O(1)
		} else if found {
			c.pending = slices.Delete(c.pending, i, i+1)
		}
		n.tidy(old)
	}
	if now != nil {
		c := n.in(now)
		i, _ := slices.BinarySearch(c.pending, now.ID)
		c.pending = slices.Insert(c.pending, i, now.ID)
	}
}

// tidy removes the name of a job when no job has it.
func (n *JobNames) tidy(job *cluster.Job) {
	if c := n.in(job); c.active == 0 && len(c.pending) == 0 {
		delete(n.of, JobNameOf(job))
	}
}

func sameName(a, b *cluster.Job) bool {
	return a != nil && b != nil && (a.Spec == b.Spec || JobNameOf(a) == JobNameOf(b))
}
