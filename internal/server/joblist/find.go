// Package joblist chooses jobs, active and finished, and shows what a caller may see of each.
package joblist

import (
	"fmt"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/views"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// Archive holds finished jobs.
type Archive interface {
	Job(id cluster.JobID) (archive.Record, bool, error)
	List(q archive.Query) ([]archive.Record, archive.Position, bool, error)
	Answer(q archive.Question) ([]archive.Record, archive.Position, bool, error)
	Through() (seq uint64, err error)
}

// Service answers calls that list or follow jobs.
type Service struct {
	Views     *views.Source
	Archive   Archive
	Subscribe func() views.Subscription // to the changes of all jobs
}

// maxArray is larger than any array.
const maxArray = 1 << 20

// Find returns a job, active or finished; nil if it does not exist.
func Find(v *state.View, a Archive, id cluster.JobID) (*cluster.Job, error) {
	if j, ok := v.Job(id); ok {
		return j, nil
	}
	r, ok, err := a.Job(id)
	if err != nil || !ok {
		return nil, err
	}
	j, err := command.DecodeJob(r.Data)
	if err != nil {
		return nil, fmt.Errorf("archived job %d: %w", id, err)
	}
	return j, nil
}

// Resolve returns the jobs of ref, finished ones included, in the order of their IDs. O(elements of
// the array).
func Resolve(v *state.View, a Archive, ref cluster.JobRef) ([]cluster.JobID, error) {
	ids := v.Resolve(ref)
	if ref.Index != cluster.NoIndex && len(ids) > 0 {
		return ids, nil
	}
	first, err := Find(v, a, ref.ID)
	switch {
	case err != nil:
		return nil, err
	case first == nil:
		return ids, nil
	case first.Array != ref.ID && ref.Index == cluster.NoIndex:
		return []cluster.JobID{ref.ID}, nil // no array, or an element by its own ID
	case first.Array != ref.ID:
		return nil, nil
	}
	size := min(cluster.JobID(max(first.Spec.ArraySize, 0)), maxArray)
	if ref.Index == cluster.NoIndex {
		all := make([]cluster.JobID, size)
		for i := range all {
			all[i] = ref.ID + cluster.JobID(i)
		}
		return all, nil
	}
	return element(v, a, ref, size)
}

// element returns one element of an array by its index: indices ascend with IDs. O(log elements).
func element(v *state.View, a Archive, ref cluster.JobRef, size cluster.JobID) ([]cluster.JobID, error) {
	low, high := ref.ID, ref.ID+size
	for low < high {
		middle := low + (high-low)/2
		j, err := Find(v, a, middle)
		if err != nil {
			return nil, err
		}
		if j == nil || j.Index < ref.Index {
			low = middle + 1
		} else {
			high = middle
		}
	}
	j, err := Find(v, a, low)
	if err != nil || j == nil || j.Array != ref.ID || j.Index != ref.Index {
		return nil, err
	}
	return []cluster.JobID{low}, nil
}
