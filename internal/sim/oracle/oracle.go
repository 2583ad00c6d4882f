// Package oracle schedules logs of parallel jobs in the event order of the simulator that made
// published schedules, so that Greylag's profile can be compared with them job by job.
//
// It decides when each job of a log starts, from its submission, size, estimate and run time, on a
// machine of interchangeable processors. It is no production scheduler: that one handles the events
// of one instant together (see package sim). It never knows priorities, nodes or GPUs.
//
// The rules: at equal times submissions come first, then terminations, then starts, each in the
// order in which they were made. A start is decided while a submission or a termination is handled
// and takes its processors for its whole estimate at once; it happens after everything else of its
// instant. Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, describe the two kinds of backfilling.
package oracle

import (
	"cmp"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// Algorithm is the backfilling algorithm.
type Algorithm uint8

// The algorithms.
const (
	FCFS         Algorithm = iota + 1 // no backfilling
	EASY                              // a job may pass if it does not delay the first pending job
	Conservative                      // a job may pass if it delays no job
)

// Job is one job of a log, whose jobs are in order of submission.
type Job struct {
	Submit   time.Duration // from the log's origin, at least 0
	Run      time.Duration // at least 1, at most Estimate
	Estimate time.Duration
	Procs    int32 // at least 1, at most what the machine has
}

// JobStart is the start of a job.
type JobStart struct {
	Start   time.Duration
	Promise time.Duration // the promised start at submission; -1 if none
}

// Run schedules a log on a machine of procs processors. The error is about a job that is not as
// [Job] says. O(jobs × pending jobs × steps of the profile) at worst.
func Run(jobs []Job, procs int32, a Algorithm) ([]JobStart, error) {
	last := time.Duration(0)
	for i, j := range jobs {
		if j.Submit < last || j.Run < 1 || j.Run > j.Estimate || j.Procs < 1 || j.Procs > procs {
			return nil, fmt.Errorf("job %d of the log does not fit the rules: %+v", i+1, j)
		}
		last = j.Submit
	}
	m := &machine{jobs: jobs, out: make([]JobStart, len(jobs)), started: make([]bool, len(jobs)), procs: procs, events: newEvents()}
	m.profile = backfill.NewRow(0, backfill.Amount{CPUs: procs})
	var s scheduler
	switch a {
	case Conservative:
		s = &conservative{machine: m}
	case EASY:
		s = &easy{queue: queue{machine: m}}
	default:
		s = &fcfs{queue: queue{machine: m}}
	}
	m.run(s)
	return m.out, nil
}

// scheduler handles the two kinds of events that it may decide starts in.
type scheduler interface {
	submitted(job int)
	ended(job int)
	// due reports whether a start that was decided is still planned.
	due(job int, at cluster.Instant) bool
}

// machine is the profile, the clock and the future events.
type machine struct {
	jobs    []Job
	out     []JobStart
	started []bool
	procs   int32
	profile backfill.Row
	now     cluster.Instant
	events  heap.Heap[event]
	made    int // of events, for their numbers
}

// eventKind orders the events of one instant.
type eventKind uint8

const (
	submission eventKind = iota
	termination
	start
)

type event struct {
	at     cluster.Instant
	kind   eventKind
	number int
	job    int
}

func (m *machine) at(k eventKind, at cluster.Instant, job int) {
	m.events.Push(event{at, k, m.made, job})
	m.made++
}

func (m *machine) run(s scheduler) {
	next := 0
	for {
		if next < len(m.jobs) && (m.events.Len() == 0 || m.submits(next) <= m.events.Items()[0].at) {
			m.now = m.submits(next)
			m.profile.DropBefore(m.now)
			s.submitted(next)
			next++
			continue
		}
		if m.events.Len() == 0 {
			return
		}
		e := m.events.Pop()
		m.now = e.at
		m.profile.DropBefore(m.now)
		if e.kind == termination {
			s.ended(e.job)
		} else if !m.started[e.job] && s.due(e.job, e.at) {
			m.started[e.job] = true
			m.out[e.job].Start = time.Duration(e.at)
			m.at(termination, e.at.Add(m.jobs[e.job].Run), e.job)
		}
	}
}

func (m *machine) submits(job int) cluster.Instant { return cluster.Instant(m.jobs[job].Submit) }

func (m *machine) amount(job int) backfill.Amount { return backfill.Amount{CPUs: m.jobs[job].Procs} }

func (m *machine) take(job int, from cluster.Instant) {
	a := m.amount(job)
	m.profile.Take(from, from.Add(m.jobs[job].Estimate), &a)
}

func (m *machine) give(job int, from cluster.Instant) {
	a := m.amount(job)
	m.profile.Release(from, from.Add(m.jobs[job].Estimate), &a)
}

// earliest returns when a job can start, from now on and before an instant.
func (m *machine) earliest(job int, before cluster.Instant) (cluster.Instant, bool) {
	a := m.amount(job)
	return m.profile.Earliest(m.now, before, m.jobs[job].Estimate, &a)
}

// release frees what a job that ends now does not need of its estimate, and reports whether that is
// anything.
func (m *machine) release(job int) bool {
	until := cluster.Instant(m.out[job].Start).Add(m.jobs[job].Estimate)
	if until <= m.now {
		return false
	}
	a := m.amount(job)
	m.profile.Release(m.now, until, &a)
	return true
}

// newEvents returns an empty heap of events by time, kind and number.
func newEvents() heap.Heap[event] {
	return heap.New(func(a, b *event) bool {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.number, b.number)) < 0
	})
}
