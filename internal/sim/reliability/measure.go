package reliability

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Result is what a run has measured. Times are in seconds.
type Result struct {
	Seed      uint64
	Effective float64 // useful work of the large job, as a fraction of the time since its first attempt began to work
	Restarts  []float64
	Placed    []float64 // of the restarts, from the end of the attempt to the next allocation
	Waited    []float64 // likewise, from the end of the pause before it
	Repeated  []float64 // work of the large job that a failure destroyed
	GangCause map[string]int
	GangDays  []float64 // when it failed, in days

	GPUHours      float64            // allocated
	Lost          map[string]float64 // GPU-hours by cause: repeated work, and allocated time without work
	RepeatedHours map[string]float64 // GPU-hours of repeated work alone
	Sizes         map[int32]*Size    // by nodes

	NodeFailures, LeavesLost, Resumed, Checkpoints      int
	Jobs, Completed, Failed, Held, GangHeld, GangFailed int
	Preempted, MostPreempted, Preemptors, NotStarted    int
	MostDrained, Drained                                int // within the breaker's window; at the end
	Often, OftenFound, OftenFalse                       int // nodes that fail often; those that the state found; ordinary ones that it took for such
	Joined, Left                                        int // nodes that joined or left elastic jobs while these ran
	LongestWait                                         float64
	Commands                                            int
}

// Size is the jobs of one size.
type Size struct {
	Hours    float64 // of their attempts
	Failures int
}

func newResult(seed uint64) Result {
	return Result{Seed: seed, GangCause: map[string]int{}, Lost: map[string]float64{}, RepeatedHours: map[string]float64{}, Sizes: map[int32]*Size{}}
}

// lose counts lost time of GPUs.
func (r *Result) lose(cause string, gpus float64, d time.Duration) { r.Lost[cause] += gpus * d.Hours() }

// recordStart records an allocation.
func (x *simulation) recordStart(s *slot) {
	since := max(s.pending, s.eligible)
	x.r.LongestWait = max(x.r.LongestWait, x.Now.Sub(since).Seconds())
	if s.gang() && s.cause != "" {
		x.r.Placed = append(x.r.Placed, x.Now.Sub(s.verdict).Seconds())
		x.r.Waited = append(x.r.Waited, max(0, x.Now.Sub(since).Seconds()))
	}
}

// recordWork records that a job works again.
func (x *simulation) recordWork(p *program) {
	s := p.slot
	if s.firstWorked == 0 {
		s.firstWorked = x.Now
	}
	if s.cause == "" {
		return
	}
	again := max(0, s.reached-p.done)
	x.r.lose(s.cause, p.gpus(), again+x.Now.Sub(p.started))
	x.r.RepeatedHours[s.cause] += p.gpus() * again.Hours()
	if s.gang() && s.cause != causePreemption {
		x.r.Restarts = append(x.r.Restarts, x.Now.Sub(s.stalledAt).Seconds())
		x.r.Repeated = append(x.r.Repeated, again.Seconds())
	}
	s.cause = ""
}

// recordEnd records the end of an attempt. p is its program, nil if it had not begun.
func (x *simulation) recordEnd(s *slot, old *cluster.Job, p *program, e attemptEnd) {
	held := x.Now.Sub(old.Started)
	gpus := float64(s.nodes) * float64(s.gpus)
	x.r.GPUHours += gpus * held.Hours()
	size := x.r.Sizes[s.nodes]
	if size == nil {
		size = &Size{}
		x.r.Sizes[s.nodes] = size
	}
	size.Hours += held.Hours()
	if e.outcome == cluster.Completed || e.outcome == cluster.Cancelled {
		return
	}
	cause := x.causeOf(old, p, e)
	switch {
	case e.outcome == cluster.Preempted:
		x.r.Preempted++
	case !e.damaged:
		size.Failures++
		if s.gang() {
			x.r.GangCause[cause]++
			x.r.GangDays = append(x.r.GangDays, (x.Now.Sub(x.until)+x.m.Days).Hours()/24)
		}
	}
	if s.cause != "" || p == nil { // it did not work in this attempt
		x.r.lose(cause, gpus, held)
		if s.cause == "" {
			s.cause, s.reached, s.stalledAt = cause, s.saved, x.Now
		}
		return
	}
	if p.stalled == nil && !p.ending {
		s.stalledAt = x.Now
	}
	p.pause(x.Now)
	s.cause, s.reached = cause, p.done
	x.r.lose(cause, gpus, x.Now.Sub(s.stalledAt))
}

// causeOf returns the cause of an attempt's end.
func (x *simulation) causeOf(old *cluster.Job, p *program, e attemptEnd) string {
	switch {
	case e.damaged:
		return causeDamaged
	case e.outcome == cluster.Preempted:
		return causePreemption
	case p != nil && p.stalled != nil:
		return p.stalled.cause
	}
	for i := range old.Alloc.Nodes {
		h := x.named[old.Alloc.Nodes[i].Node]
		switch {
		case h.failed != nil:
			return h.failed.cause
		case x.leavesDown[h.leaf]:
			return causeLeaf
		}
	}
	return "other"
}

// findOften compares once a day the nodes that the state takes for failing often with those that do.
func (x *simulation) findOften() error {
	x.In(day, x.findOften)
	var nodes []*cluster.Node
	for n := range x.State.Peek().Nodes() {
		nodes = append(nodes, n)
	}
	for _, name := range cluster.OftenFailing(nodes, x.Now) {
		h := x.named[name]
		if h.found {
			continue
		}
		if h.found = true; h.often {
			x.r.OftenFound++
		} else {
			x.r.OftenFalse++
		}
	}
	return nil
}

// conclude measures the state at the end.
func (x *simulation) conclude() error {
	view := x.State.View()
	for _, at := range x.preemptors {
		if x.Now.Sub(at) > time.Hour {
			x.r.NotStarted++
		}
	}
	for n := range view.Nodes() {
		if n.Drain {
			x.r.Drained++
		}
	}
	for j := range view.Jobs(0) {
		s := x.slotOf[j.ID]
		if s == nil {
			continue
		}
		if j.State == cluster.Pending {
			x.r.LongestWait = max(x.r.LongestWait, x.Now.Sub(max(s.pending, s.eligible)).Seconds())
		} else if j.State.HasAllocation() {
			x.recordRunning(s, j)
		}
		if p := x.programs[j.ID]; s.gang() && s.firstWorked > 0 {
			kept := s.saved
			if p != nil && p.stalled == nil {
				kept = max(kept, p.progress(x.Now))
			}
			x.r.Effective = kept.Seconds() / x.Now.Sub(s.firstWorked).Seconds()
		}
	}
	if err := x.State.Check(); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	return nil
}

// recordRunning counts the time of an attempt that goes on.
func (x *simulation) recordRunning(s *slot, j *cluster.Job) {
	held := x.Now.Sub(j.Started).Hours()
	x.r.GPUHours += float64(s.nodes) * float64(s.gpus) * held
	if x.r.Sizes[s.nodes] == nil {
		x.r.Sizes[s.nodes] = &Size{}
	}
	x.r.Sizes[s.nodes].Hours += held
}
