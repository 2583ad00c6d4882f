package sim

import (
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/pkg/cluster"
)

// Options say how a replay is done.
type Options struct {
	Check    bool                                       // all invariants of the state after every command: slow
	Progress func(done, total int, now cluster.Instant) // now and then, if set
	Trials   *Trials                                    // what goes wrong, and what jobs cost; nil: nothing
}

// Result is what became of one job.
type Result struct {
	Job      *Job
	ID       cluster.JobID // in the simulated state; 0 when it was refused
	Planned  cluster.Instant
	Promise  cluster.Instant // the first; 0 when none was made
	Start    cluster.Instant // 0: it never started
	End      cluster.Instant // 0: it never ended
	Broken   string          // why a promise was not kept
	Reason   string          // why it was refused, or did not start, or how it ended
	Nodes    []cluster.NodeAllocation
	attempt  cluster.Attempt
	promised cluster.Instant // the latest
	waited   bool            // it had a verdict before it started
	waits    bool            // of a saved cluster: it waits, or waits again
}

// Outcome is what became of a whole workload.
type Outcome struct {
	Fleet   *Machine
	Results []Result
	Passes  []time.Duration // what each took
	Anew    int             // of them, that planned everything
	Stale   int             // starts that did not fit the state
	Trouble *FaultSummary   // nil where nothing could go wrong
}

// Replay runs a workload, in order of submission, until nothing more can happen.
func Replay(f *Machine, policy *cluster.Policy, jobs []Job, o Options) (*Outcome, error) {
	if o.Trials != nil {
		return runWithFaults(f, policy, jobs, o)
	}
	v, err := newVirtual(f, policy, o.Check)
	if err != nil {
		return nil, err
	}
	r := newReplay(v, jobs, o)
	if err := r.run(); err != nil {
		return nil, err
	}
	return r.outcome(f), nil
}

// replay is a workload under way.
type replay struct {
	*virtual
	options Options
	jobs    []Job
	next    int // of jobs, to be submitted
	results []Result
	of      map[cluster.JobID]int // result of each job that is not over
	ends    heap.Heap[ending]
	wake    cluster.Instant // when the scheduler wants another pass
	done    int
	saved   bool      // it goes on from a saved cluster
	told    time.Time // when progress was
	tasks   []task    // that changed at the present instant: room used again
}

func newReplay(v *virtual, jobs []Job, o Options) *replay {
	r := &replay{virtual: v, options: o, jobs: jobs, wake: cluster.Never, of: map[cluster.JobID]int{}, ends: newEndings()}
	r.results = make([]Result, len(jobs))
	for i := range jobs {
		r.results[i].Job = &jobs[i]
	}
	return r
}

func (r *replay) outcome(f *Machine) *Outcome {
	return &Outcome{Fleet: f, Results: r.results, Passes: r.took, Anew: r.anew, Stale: r.stale}
}

// run goes from instant to instant at which something happens.
func (r *replay) run() error {
	for {
		at := r.soonest()
		if at == cluster.Never {
			return r.leftovers()
		}
		r.now = max(at, r.now)
		if err := r.happen(); err != nil {
			return err
		}
		if err := r.passes(); err != nil {
			return err
		}
		r.progress()
	}
}

// soonest is the next instant at which something happens; never when nothing more can.
func (r *replay) soonest() cluster.Instant {
	at := cluster.Never
	if r.next < len(r.jobs) {
		at = r.jobs[r.next].Submit
	}
	if r.ends.Len() > 0 {
		at = min(at, r.ends.Items()[0].at)
	}
	if len(r.of) == 0 {
		return at
	}
	if wake := r.wake; wake < cluster.Never {
		if wake <= r.now+1 { // it asks to be called again soon, not at an instant
			wake = r.now.Add(time.Second)
		}
		at = min(at, wake)
	}
	if r.saved {
		at = min(at, max(r.state.Peek().NextDue(), r.now))
	}
	return at
}

// happen is all events of an instant: ends, what time brings, submissions.
func (r *replay) happen() error {
	var ended []int
	over := r.tasks[:0]
	for r.ends.Len() > 0 && r.ends.Items()[0].at <= r.now {
		e := r.ends.Pop()
		res := &r.results[e.result]
		res.End, res.Reason = r.now, cluster.Completed.String()
		over = appendTasks(over, res, cluster.TaskClean)
		delete(r.of, res.ID)
		ended = append(ended, e.result)
		r.done++
	}
	r.tasks = over
	if err := r.report(over); err != nil {
		return err
	}
	r.returns(ended)
	if r.saved { // the jobs of a log end in time, and have no times of their own
		if err := r.tick(); err != nil {
			return err
		}
	}
	for ; r.next < len(r.jobs) && r.jobs[r.next].Submit <= r.now; r.next++ {
		if err := r.submit(r.next); err != nil {
			return err
		}
	}
	return nil
}

// returns notes which of the jobs that left their nodes wait again.
func (r *replay) returns(ended []int) {
	if !r.saved || len(ended) == 0 {
		return
	}
	view := r.state.View()
	for _, at := range ended {
		res := &r.results[at]
		if j, ok := view.Job(res.ID); ok && j.State == cluster.Pending {
			res.Start, res.End, res.Nodes, res.waits = 0, 0, nil, true
			r.of[res.ID] = at
			r.done--
		}
	}
}

func (r *replay) submit(i int) error {
	answer, err := r.apply(r.submission(r.jobs[i].Spec))
	if err != nil {
		return err
	}
	switch a := answer.(type) {
	case *command.Submitted:
		r.results[i].ID = a.First[0]
		r.of[a.First[0]] = i
	case *command.Refusal:
		r.results[i].Reason = "refused: " + a.Message
		r.done++
	}
	return nil
}

// morePasses bounds the passes of one instant; a scheduler that wants more is called
// again a second later.
const morePasses = 100

// passes makes passes until the scheduler has seen everything; none while nobody waits,
// as there is nothing to decide then.
func (r *replay) passes() error {
	if len(r.of) == r.ends.Len() {
		r.wake = cluster.Never
		return nil
	}
	for range morePasses {
		d, done, err := r.pass()
		if err != nil {
			return err
		}
		r.listen(&d.Plan)
		if err := r.begin(&d, done); err != nil {
			return err
		}
		r.wake = d.Wake
		if !d.More && len(done.Stale) == 0 {
			return nil
		}
	}
	return nil
}

// listen notes what the jobs that wait are told.
func (r *replay) listen(p *cluster.Plan) {
	for i := range p.Verdicts {
		v := &p.Verdicts[i]
		at, waits := r.of[v.Job]
		if !waits {
			continue
		}
		res := &r.results[at]
		res.waited, res.Reason = true, v.Reason.String()
		if v.Detail != "" {
			res.Reason += ": " + v.Detail
		}
		if res.Planned == 0 {
			res.Planned = v.Planned
		}
		if v.Broken != "" {
			res.Broken = v.Broken
		}
		if v.Promise == nil {
			continue
		}
		if res.Promise == 0 {
			res.Promise = v.Promise.At
		}
		if res.promised > 0 && v.Promise.At > res.promised && res.Broken == "" {
			res.Broken = unnamed
		}
		res.promised = v.Promise.At
	}
}

// unnamed is the cause of a broken promise of which the scheduler said nothing.
const unnamed = "no cause was named"

// begin lets the nodes run what was started.
func (r *replay) begin(d *schedule.Decision, done *command.Committed) error {
	stale := map[cluster.JobID]bool{}
	for _, s := range done.Stale {
		stale[s.Job] = true
	}
	running := r.tasks[:0]
	view := r.state.Peek()
	for i := range d.Plan.Starts {
		s := &d.Plan.Starts[i]
		if stale[s.Job] {
			continue
		}
		j, _ := view.Job(s.Job)
		at := r.of[s.Job]
		res := &r.results[at]
		res.Start, res.Nodes, res.attempt = r.now, j.Alloc.Nodes, s.Attempt // which may be more than was planned
		if !res.waited {                                                    // it was never told to wait
			res.Planned, res.Promise = r.now, r.now
		}
		if res.promised > 0 && r.now > res.promised && res.Broken == "" {
			res.Broken = unnamed
		}
		running = appendTasks(running, res, cluster.TaskStarted)
		r.ends.Push(ending{r.now.Add(res.Job.Run), at})
	}
	r.tasks = running
	return r.report(running)
}

// appendTasks adds the tasks of a job as its nodes report them.
func appendTasks(tasks []task, res *Result, phase cluster.TaskPhase) []task {
	for i := range res.Nodes {
		tasks = append(tasks, task{node: res.Nodes[i].Node, rank: i, job: res.ID, attempt: res.attempt, phase: phase, started: res.Start})
	}
	return tasks
}

// leftovers says of the jobs that nothing can start any more what they waited for.
func (r *replay) leftovers() error {
	view := r.state.View()
	for id, at := range r.of {
		if j, known := view.Job(id); known {
			r.results[at].Reason = j.State.String() + ": " + j.Reason.String()
			if j.Detail != "" {
				r.results[at].Reason += ": " + j.Detail
			}
		}
	}
	return nil
}

// progressEvery is how often progress is told.
const progressEvery = 500 * time.Millisecond

func (r *replay) progress() {
	if r.options.Progress != nil && time.Since(r.told) >= progressEvery {
		r.told = time.Now()
		r.options.Progress(r.done, len(r.jobs), r.now)
	}
}

// ending is the end of a job that runs.
type ending struct {
	at     cluster.Instant
	result int
}

// newEndings returns an empty heap of ends by instant, equal ones in the order of the workload.
func newEndings() heap.Heap[ending] {
	return heap.New(func(a, b *ending) bool { return a.at < b.at || a.at == b.at && a.result < b.result })
}
