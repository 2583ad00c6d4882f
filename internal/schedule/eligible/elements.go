package eligible

import "github.com/greylag/greylag/pkg/cluster"

// Elements counts the elements of arrays with a limit that run or are planned.
type Elements struct {
	planned map[cluster.JobID]cluster.JobID // array of each eligible element
	count   map[cluster.JobID]int32         // by array; nil before the first check of a pass
	changed map[cluster.JobID]bool          // arrays whose count changed since
}

// NewElements returns a count without planned elements.
func NewElements() *Elements {
	return &Elements{planned: map[cluster.JobID]cluster.JobID{}, changed: map[cluster.JobID]bool{}}
}

// Begin begins a pass: other elements run than in the last one.
func (e *Elements) Begin() {
	e.count = nil
	clear(e.changed)
}

// Reset removes all planned elements.
func (e *Elements) Reset() {
	e.count = nil
	clear(e.planned)
}

// left returns how many more elements of the job's array may run or be planned. O(1); the first time
// in a pass O(running jobs + planned elements).
func (e *Elements) left(job *cluster.Job, jobs *JobList) int32 {
	if e.count == nil {
		e.count = map[cluster.JobID]int32{}
		for _, j := range jobs.Active {
			if j.Array != 0 {
				e.count[j.Array]++
			}
		}
		for _, array := range e.planned {
			e.count[array]++
		}
	}
	return job.Spec.ArrayLimit - e.count[job.Array]
}

// Add counts an eligible job, if its array has a limit.
func (e *Elements) Add(job *cluster.Job) {
	if job.Array == 0 || job.Spec.ArrayLimit == 0 {
		return
	}
	e.planned[job.ID] = job.Array
	e.change(job.Array, 1)
}

// Remove stops counting a job.
func (e *Elements) Remove(job *cluster.Job) {
	if array, planned := e.planned[job.ID]; planned {
		delete(e.planned, job.ID)
		e.change(array, -1)
	}
}

func (e *Elements) change(array cluster.JobID, by int32) {
	if e.count != nil {
		e.count[array] += by
		e.changed[array] = true
	}
}

// Changed reports whether the count of an array changed after a check of this pass.
func (e *Elements) Changed(array cluster.JobID) bool { return e.changed[array] }

// AnyChanged reports whether the count of any array did.
func (e *Elements) AnyChanged() bool { return len(e.changed) > 0 }
