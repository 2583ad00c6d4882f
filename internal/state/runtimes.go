package state

import (
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// lastRuns is how many of the newest runs of a kind of job count.
const lastRuns = 8

// kind is what jobs have in common that are thought to last as long as each other.
type kind struct {
	user, name  string
	script      cluster.Digest
	nodes, gpus int32
}

func kindOf(spec *cluster.JobSpec) kind {
	q := &spec.Request
	return kind{spec.Owner.User, spec.Name, spec.Script, q.Nodes, q.TotalGPUs()}
}

// RunTimes answers how long jobs of a specification last as a rule: the upper median
// of the newest eight that completed, of the same user, name, script and size; false
// when none did. What has left the state's tail of finished jobs is forgotten. The
// answer is for what users are told, never for a plan. O(finished jobs of the tail).
func (v *View) RunTimes() func(*cluster.JobSpec) (time.Duration, bool) {
	runs := map[kind][]time.Duration{}
	for _, j := range v.tail.All() {
		if j.State != cluster.Completed || j.Started == 0 || j.Ended < j.Started {
			continue
		}
		k := kindOf(j.Spec)
		list := append(runs[k], j.Ended.Sub(j.Started))
		runs[k] = list[max(0, len(list)-lastRuns):]
	}
	return func(spec *cluster.JobSpec) (time.Duration, bool) {
		list := slices.Sorted(slices.Values(runs[kindOf(spec)]))
		if len(list) == 0 {
			return 0, false
		}
		return list[len(list)/2], true
	}
}
