package schedule

import "github.com/greylag/greylag/pkg/cluster"

// priorities are the multifactor priorities of jobs at the instant of a snapshot.
type priorities struct{ qos map[string]int32 }

func newPriorities(snap *cluster.Snapshot) *priorities {
	p := &priorities{map[string]int32{}}
	for _, q := range snap.Policy.QOS {
		p.qos[q.Name] = q.Priority
	}
	return p
}

// of is the priority of a job. O(1).
func (p *priorities) of(job *cluster.Job) int64 {
	return int64(p.qos[job.Spec.QOS])*1_000_000 - int64(job.Spec.Nice)
}
