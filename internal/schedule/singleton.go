package schedule

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// A singleton waits while any job of its name and user runs, whether that is one as well
// or not, and while one with a lower id waits (sbatch(1), --dependency=singleton). Of all
// dependencies it is the only one that can cease to hold, so those that have a place in
// the plan are looked at again when something becomes of their namesakes.

// jobName is a user's job name.
type jobName struct{ user, name string }

func bearerOf(job *cluster.Job) jobName { return jobName{job.Spec.Owner.User, job.Spec.Name} }

func isSingleton(spec *cluster.JobSpec) bool {
	return slices.ContainsFunc(spec.Depends, func(d cluster.Dependency) bool { return d.Kind == cluster.Singleton })
}

// singletons is the entries of singletons that are eligible, by the name they bear, and
// the names of which something became since the last pass looked.
type singletons struct {
	of   map[jobName]map[*entry]bool
	news map[jobName]bool
}

func newSingletons() singletons {
	return singletons{map[jobName]map[*entry]bool{}, map[jobName]bool{}}
}

// add notes an entry that was found eligible.
func (s *singletons) add(e *entry) {
	if !isSingleton(e.job.Spec) {
		return
	}
	b := bearerOf(e.job)
	if s.of[b] == nil {
		s.of[b] = map[*entry]bool{}
	}
	s.of[b][e] = true
}

// remove forgets an entry that is not any more.
func (s *singletons) remove(e *entry) {
	b := bearerOf(e.job)
	if delete(s.of[b], e); len(s.of[b]) == 0 {
		delete(s.of, b)
	}
}

// happened notes that something became of a job.
func (s *singletons) happened(job *cluster.Job) {
	if len(s.of) > 0 && job != nil && s.of[bearerOf(job)] != nil {
		s.news[bearerOf(job)] = true
	}
}

// doubted is those of whose namesakes something became, by id.
func (s *singletons) doubted() []*entry {
	var list []*entry
	for b := range s.news {
		for e := range s.of[b] {
			list = append(list, e)
		}
	}
	clear(s.news)
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Compare(a.job.ID, b.job.ID) })
	return list
}

// unplanSingletons takes the places of singletons that may not start any more.
func (s *incrementalPass) unplanSingletons() {
	for _, e := range s.singles.doubted() {
		v, waits := s.r.unmet(e.job)
		if !waits {
			continue
		}
		if !e.starts {
			for _, share := range e.shares {
				s.hosts[share.Host] = true
			}
		}
		s.withhold(s.r, e, v)
	}
}

// singleton is met when no job of the same name and user runs or is ahead.
func (r *pass) singleton(job *cluster.Job) dependencyState {
	if r.firstOf(bearerOf(job)) == job.ID {
		return met
	}
	return open
}

// firstOf is the job for which that is met; 0 for none.
func (r *pass) firstOf(b jobName) cluster.JobID {
	if r.namesakes == nil {
		r.namesakes = newNamesakes(&r.jobs)
	}
	return r.namesakes.first(b)
}
