package state

import (
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
)

// licences counts what the jobs with an allocation hold of each licence. It counts when
// it is first asked, since most jobs want none: O(jobs with an allocation).
type licences struct {
	s    *State
	held map[string]int64 // nil until it was asked
}

// short says which of the job's licences are not there; "" when all are.
func (l *licences) short(j *cluster.Job) string {
	if len(j.Spec.Request.Licences) == 0 {
		return ""
	}
	if l.held == nil {
		l.held = map[string]int64{}
		for _, other := range l.s.holding.All() {
			l.take(other)
		}
	}
	for _, want := range j.Spec.Request.Licences {
		have, _ := l.s.policy.Scheduling.Licence(want.Name)
		if l.held[want.Name]+int64(want.Count) > int64(have) {
			return fmt.Sprintf("%d of %d licences %s are taken", l.held[want.Name], have, want.Name)
		}
	}
	return ""
}

// take counts a job that was started.
func (l *licences) take(j *cluster.Job) {
	if l.held == nil {
		return
	}
	for _, x := range j.Spec.Request.Licences {
		l.held[x.Name] += int64(x.Count)
	}
}
