package schedule

import (
	"cmp"
	"slices"
	"sort"

	"github.com/greylag/greylag/pkg/cluster"
)

// roster is the jobs of a snapshot by id, whatever order they came in.
type roster struct {
	active, pending []*cluster.Job
}

func newRoster(snap *cluster.Snapshot) roster {
	return roster{byID(snap.Active), byID(snap.Pending)}
}

func byID(jobs []*cluster.Job) []*cluster.Job {
	order := func(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) }
	if slices.IsSortedFunc(jobs, order) {
		return jobs
	}
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, order)
	return jobs
}

// find returns a job that has not ended. O(log n).
func (r *roster) find(id cluster.JobID) (*cluster.Job, bool) {
	for _, list := range [...][]*cluster.Job{r.active, r.pending} {
		i := sort.Search(len(list), func(i int) bool { return list[i].ID >= id })
		if i < len(list) && list[i].ID == id {
			return list[i], true
		}
	}
	return nil, false
}

// between yields the jobs that have not ended with ids from first on, count of them.
func (r *roster) between(first cluster.JobID, count int32) []*cluster.Job {
	var found []*cluster.Job
	for _, list := range [...][]*cluster.Job{r.active, r.pending} {
		i := sort.Search(len(list), func(i int) bool { return list[i].ID >= first })
		for ; i < len(list) && list[i].ID-first < cluster.JobID(count); i++ {
			found = append(found, list[i])
		}
	}
	return found
}
