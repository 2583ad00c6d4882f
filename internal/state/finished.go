package state

import "github.com/greylag/greylag/pkg/cluster"

// The tail is the newest finished jobs, limits.tail of them, and older ones that an
// active job depends on: what became of those must not be forgotten before.

// finish moves a job that has ended to the tail, under the next sequence number.
func (x *jobTables) finish(j *cluster.Job, most int) {
	x.finished++
	x.users.Delete(userJob{j.Spec.Owner.User, j.ID})
	x.tail.Set(x.finished, j)
	x.ended.Set(j.ID, x.finished)
	x.digest ^= x.hashes.tail(x.finished, j)
	if x.finished > uint64(most) {
		x.drop(x.finished - uint64(most))
	}
	x.removeDependents(j, most)
}

// drop removes a finished job from the tail unless an active one depends on it.
func (x *jobTables) drop(seq uint64) {
	j, found := x.tail.Get(seq)
	if !found || x.pinned(j) {
		return
	}
	x.tail.Delete(seq)
	x.ended.Delete(j.ID)
	x.digest ^= x.hashes.tail(seq, j) ^ x.hashes.spec(j)
	x.keepArray(j.Array, -1, 0)
}

// pinned reports whether an active job depends on j or on its array.
func (x *jobTables) pinned(j *cluster.Job) bool {
	return x.dependents[j.ID] > 0 || j.Array != 0 && x.dependents[j.Array] > 0
}

// depend notes what an active job depends on.
func (x *jobTables) depend(j *cluster.Job) {
	for _, d := range j.Spec.Depends {
		if d.Kind != cluster.Singleton {
			x.dependents[d.Job.ID]++
		}
	}
}

// removeDependents forgets what a job depended on, and what nobody depends on any more if
// it is old enough. O(dependencies × elements of their arrays).
func (x *jobTables) removeDependents(j *cluster.Job, most int) {
	for _, d := range j.Spec.Depends {
		if d.Kind == cluster.Singleton {
			continue
		}
		if x.dependents[d.Job.ID]--; x.dependents[d.Job.ID] > 0 {
			continue
		}
		delete(x.dependents, d.Job.ID)
		for _, id := range x.resolve(cluster.JobRef{ID: d.Job.ID, Index: cluster.NoIndex}) {
			if seq, ended := x.ended.Get(id); ended && seq+uint64(most) <= x.finished {
				x.drop(seq)
			}
		}
	}
}
