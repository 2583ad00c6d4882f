package oracle

import (
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// queue is the pending jobs, in order of arrival, and a profile of the running jobs.
type queue struct {
	*machine
	waiting []int
}

func (q *queue) free() int32 {
	f := q.profile.Free(q.now)
	return f.CPUs
}

// begin starts a job now.
func (q *queue) begin(job int) {
	q.take(job, q.now)
	q.at(start, q.now, job)
}

// arrive appends a job.
func (q *queue) arrive(job int) {
	q.out[job].Promise = -1
	q.waiting = append(q.waiting, job)
}

// heads starts the first pending jobs while they fit.
func (q *queue) heads() {
	n := 0
	for n < len(q.waiting) && q.jobs[q.waiting[n]].Procs <= q.free() {
		q.begin(q.waiting[n])
		n++
	}
	q.waiting = q.waiting[n:]
}

func (q *queue) due(int, cluster.Instant) bool { return true }

// fcfs starts jobs in order of arrival.
type fcfs struct{ queue }

func (f *fcfs) submitted(job int) {
	f.arrive(job)
	f.heads()
}

func (f *fcfs) ended(job int) {
	f.release(job)
	f.heads()
}

// easy lets a job pass if it does not delay the first pending job.
type easy struct{ queue }

func (e *easy) submitted(job int) {
	e.arrive(job)
	e.pass()
}

func (e *easy) ended(job int) {
	e.release(job)
	e.pass()
}

// pass starts what can start. The first job's reservation is the earliest possible, and changes
// only when a job starts: it stays in the profile until then.
func (e *easy) pass() {
	e.heads()
	if len(e.waiting) < 2 {
		return
	}
	head := e.waiting[0]
	at, _ := e.earliest(head, cluster.Never)
	e.take(head, at)
	free := e.free()
	passed := 0
	for i := 1; i < len(e.waiting) && free > 0; i++ {
		j := e.waiting[i]
		if e.jobs[j].Procs > free {
			continue
		}
		if _, ok := e.earliest(j, e.now+1); !ok {
			continue
		}
		e.give(head, at)
		e.begin(j)
		e.waiting[i] = -1
		passed++
		at, _ = e.earliest(head, cluster.Never)
		e.take(head, at)
		free = e.free()
	}
	e.give(head, at)
	if passed > 0 {
		e.waiting = slices.DeleteFunc(e.waiting, func(j int) bool { return j < 0 })
	}
}
