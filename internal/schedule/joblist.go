package schedule

import (
	"cmp"
	"slices"
	"sort"

	"github.com/greylag/greylag/pkg/cluster"
)

// jobList is the jobs of a snapshot by id, whatever order they came in.
type jobList struct {
	active, pending []*cluster.Job
}

// newRoster sorts the jobs of a snapshot. The last roster, which may be empty, saves
// looking at those that stand in it side by side.
func newRoster(snap *cluster.Snapshot, last jobList) jobList {
	return jobList{byID(snap.Active, last.active), byID(snap.Pending, last.pending)}
}

func byID(jobs, last []*cluster.Job) []*cluster.Job {
	if sorted(jobs, last) {
		return jobs
	}
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, func(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) })
	return jobs
}

// sorted reports whether jobs are by id. Of those that stand side by side in a list
// that is, as most do from one pass to the next, it need not read the ids. O(jobs).
func sorted(jobs, last []*cluster.Job) bool {
	k := -1 // of last: where the job before this one is; -1 when it is not known
	for i, job := range jobs {
		if k+1 < len(last) && last[k+1] == job && (k >= 0 || i == 0) {
			k++
			continue
		}
		if i > 0 && job.ID <= jobs[i-1].ID {
			return false
		}
		if k++; k == len(last) || last[k].ID != job.ID {
			k = sort.Search(len(last), func(n int) bool { return last[n].ID >= job.ID })
		}
		if k == len(last) || last[k].ID != job.ID {
			k = -1
		}
	}
	return true
}

// find returns a job that has not ended. O(log n).
func (r *jobList) find(id cluster.JobID) (*cluster.Job, bool) {
	for _, list := range [...][]*cluster.Job{r.active, r.pending} {
		i := sort.Search(len(list), func(i int) bool { return list[i].ID >= id })
		if i < len(list) && list[i].ID == id {
			return list[i], true
		}
	}
	return nil, false
}

// between yields the jobs that have not ended with ids from first on, count of them.
func (r *jobList) between(first cluster.JobID, count int32) []*cluster.Job {
	var found []*cluster.Job
	for _, list := range [...][]*cluster.Job{r.active, r.pending} {
		i := sort.Search(len(list), func(i int) bool { return list[i].ID >= first })
		for ; i < len(list) && list[i].ID-first < cluster.JobID(count); i++ {
			found = append(found, list[i])
		}
	}
	return found
}
