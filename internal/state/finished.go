package state

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// The tail is the newest finished jobs, limits.tail of them, and older ones that an
// active job depends on: what became of those must not be forgotten before.

// finish moves a job that has ended to the tail, under the next sequence number.
func (s *State) finish(j *cluster.Job) {
	s.finished++
	s.users.Delete(userJob{j.Spec.Owner.User, j.ID})
	s.useBlobs(j.Spec, -1, nil)
	s.tail.Set(s.finished, j)
	s.ended.Set(j.ID, s.finished)
	s.digest ^= s.hashTail(s.finished, j)
	if !s.unwatched {
		s.effects.Finished = append(s.effects.Finished, Finished{Seq: s.finished, Job: j, Record: command.EncodeJob(j)})
	}
	if s.finished > uint64(s.limits.tail) {
		s.drop(s.finished - uint64(s.limits.tail))
	}
	s.removeDependents(j)
}

// drop removes a finished job from the tail unless an active one depends on it.
func (s *State) drop(seq uint64) {
	j, found := s.tail.Get(seq)
	if !found || s.pinned(j) {
		return
	}
	s.tail.Delete(seq)
	s.ended.Delete(j.ID)
	s.digest ^= s.hashTail(seq, j) ^ s.hashSpecOf(j)
	s.keepArray(j.Array, -1, 0)
}

// pinned reports whether an active job depends on j or on its array.
func (s *State) pinned(j *cluster.Job) bool {
	return s.dependents[j.ID] > 0 || j.Array != 0 && s.dependents[j.Array] > 0
}

// depend notes what an active job depends on.
func (s *State) depend(j *cluster.Job) {
	for _, d := range j.Spec.Depends {
		if d.Kind != cluster.Singleton {
			s.dependents[d.Job.ID]++
		}
	}
}

// removeDependents forgets what a job depended on, and what nobody depends on any more if
// it is old enough. O(dependencies × elements of their arrays).
func (s *State) removeDependents(j *cluster.Job) {
	for _, d := range j.Spec.Depends {
		if d.Kind == cluster.Singleton {
			continue
		}
		if s.dependents[d.Job.ID]--; s.dependents[d.Job.ID] > 0 {
			continue
		}
		delete(s.dependents, d.Job.ID)
		for _, id := range s.resolve(cluster.JobRef{ID: d.Job.ID, Index: cluster.NoIndex}) {
			if seq, ended := s.ended.Get(id); ended && seq+uint64(s.limits.tail) <= s.finished {
				s.drop(seq)
			}
		}
	}
}
