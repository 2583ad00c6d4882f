package plan

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/cluster"
)

// singletons holds the eligible singletons by name, and the names whose jobs changed since the last
// check. Of all dependencies only singleton can cease to hold.
type singletons struct {
	byName  map[eligible.JobName]map[*Entry]bool
	changed map[eligible.JobName]bool
}

func newSingletons() singletons {
	return singletons{map[eligible.JobName]map[*Entry]bool{}, map[eligible.JobName]bool{}}
}

// add records an eligible entry.
func (s *singletons) add(e *Entry) {
	if !eligible.IsSingleton(e.Job.Spec) {
		return
	}
	name := eligible.JobNameOf(e.Job)
	if s.byName[name] == nil {
		s.byName[name] = map[*Entry]bool{}
	}
	s.byName[name][e] = true
}

// remove removes an entry that is not eligible any more.
func (s *singletons) remove(e *Entry) {
	name := eligible.JobNameOf(e.Job)
	if delete(s.byName[name], e); len(s.byName[name]) == 0 {
		delete(s.byName, name)
	}
}

// jobChanged records that a job changed; nil is no job.
func (s *singletons) jobChanged(job *cluster.Job) {
	if len(s.byName) > 0 && job != nil && s.byName[eligible.JobNameOf(job)] != nil {
		s.changed[eligible.JobNameOf(job)] = true
	}
}

// dueForRecheck returns the entries of names whose jobs changed, by ID.
func (s *singletons) dueForRecheck() []*Entry {
	var list []*Entry
	for name := range s.changed {
		for e := range s.byName[name] {
			list = append(list, e)
		}
	}
	clear(s.changed)
	slices.SortFunc(list, func(a, b *Entry) int { return cmp.Compare(a.Job.ID, b.Job.ID) })
	return list
}
