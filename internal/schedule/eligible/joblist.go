package eligible

import (
	"cmp"
	"slices"
	"sort"

	"github.com/greylag/greylag/pkg/cluster"
)

// JobList holds the jobs of a snapshot by ID, whatever their order in the snapshot.
type JobList struct {
	Active, Pending []*cluster.Job
}

// NewJobList sorts the jobs of a snapshot. Jobs that are neighbours in the list of the last snapshot,
// which may be empty, are known to be in order.
func NewJobList(snap *cluster.Snapshot, last *JobList) JobList {
	return JobList{byID(snap.Active, last.Active), byID(snap.Pending, last.Pending)}
}

func byID(jobs, last []*cluster.Job) []*cluster.Job {
	if sorted(jobs, last) {
		return jobs
	}
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, func(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) })
	return jobs
}

// sorted reports whether jobs are sorted by ID. It does not read the IDs of jobs that are neighbours
// in the last list, as most are from one pass to the next. O(jobs).
func sorted(jobs, last []*cluster.Job) bool {
	k := -1 // index in last of the job before this one; -1 when unknown
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

// Find returns a job that has not ended. O(log n).
func (r *JobList) Find(id cluster.JobID) (*cluster.Job, bool) {
	for _, list := range [...][]*cluster.Job{r.Active, r.Pending} {
		i := sort.Search(len(list), func(i int) bool { return list[i].ID >= id })
		if i < len(list) && list[i].ID == id {
			return list[i], true
		}
	}
	return nil, false
}

// Between returns the jobs that have not ended with the count IDs from first on.
func (r *JobList) Between(first cluster.JobID, count int32) []*cluster.Job {
	var found []*cluster.Job
	for _, list := range [...][]*cluster.Job{r.Active, r.Pending} {
		i := sort.Search(len(list), func(i int) bool { return list[i].ID >= first })
		for ; i < len(list) && list[i].ID-first < cluster.JobID(count); i++ {
			found = append(found, list[i])
		}
	}
	return found
}
