package sim

import (
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/pkg/cluster"
)

// Options configure a replay.
type Options struct {
	Check    bool                                       // check all invariants of the state after every command: slow
	Progress func(done, total int, now cluster.Instant) // called from time to time; may be nil
}

// Result is the outcome of one job.
type Result struct {
	Job           *Job
	ID            cluster.JobID // in the simulated state; 0 if it was refused
	Planned       cluster.Instant
	Promise       cluster.Instant // the first; 0 if none was made
	Start         cluster.Instant // 0: it never started
	End           cluster.Instant // 0: it never ended
	Broken        string          // why a promise was broken
	Reason        string          // why it was refused, did not start, or ended
	Nodes         []cluster.NodeAllocation
	Attempt       cluster.Attempt
	LatestPromise cluster.Instant // the latest; 0 if none
	Waited        bool            // a pass left it pending
	waits         bool            // of a saved cluster: it is pending, or pending again
}

// Outcome is the outcome of a workload.
type Outcome struct {
	Machine   *Machine
	Results   []Result
	Passes    []time.Duration // the duration of each
	Replanned int             // passes that planned all jobs again
	Stale     int             // starts that no longer fitted the state
	Faults    *FaultSummary   // nil without injected faults
	Cloud     *CloudSummary   // nil without a cloud
}

// Replay runs a workload, in order of submission, until nothing more can happen.
func Replay(f *Machine, policy *cluster.Policy, jobs []Job, o Options) (*Outcome, error) {
	v, err := assembled(f, policy, o.Check)
	if err != nil {
		return nil, err
	}
	r := NewReplayer(v, jobs, o)
	if err := r.run(); err != nil {
		return nil, err
	}
	return r.Outcome(f), nil
}

// Replayer runs a workload on a virtual cluster.
type Replayer struct {
	*Virtual
	options      Options
	Jobs         []Job
	Next         int // index of the next job to submit
	Results      []Result
	ResultOf     map[cluster.JobID]int // index of the result of each job that has not ended
	ends         heap.Heap[ending]
	Wake         cluster.Instant // when the scheduler requests the next pass
	Done         int
	saved        bool      // the replay began with a saved cluster
	lastProgress time.Time // the last call of Options.Progress
	tasks        []task    // changed at the present instant: memory that is used again
}

// NewReplayer returns the replay of jobs on a cluster, at its first instant.
func NewReplayer(v *Virtual, jobs []Job, o Options) *Replayer {
	r := &Replayer{Virtual: v, options: o, Jobs: jobs, Wake: cluster.Never, ResultOf: map[cluster.JobID]int{}, ends: newEndings()}
	r.Results = make([]Result, len(jobs))
	for i := range jobs {
		r.Results[i].Job = &jobs[i]
	}
	return r
}

// Outcome returns what the replay has measured.
func (r *Replayer) Outcome(f *Machine) *Outcome {
	return &Outcome{Machine: f, Results: r.Results, Passes: r.passTimes, Replanned: r.replanned, Stale: r.stale}
}

// run advances from one instant with an event to the next.
func (r *Replayer) run() error {
	for {
		at := r.nextInstant()
		if at == cluster.Never {
			return r.ExplainPending()
		}
		r.Now = max(at, r.Now)
		if err := r.processInstant(); err != nil {
			return err
		}
		if err := r.runPasses(); err != nil {
			return err
		}
		r.ReportProgress()
	}
}

// nextInstant returns the next instant with an event; or cluster.Never.
func (r *Replayer) nextInstant() cluster.Instant {
	at := cluster.Never
	if r.Next < len(r.Jobs) {
		at = r.Jobs[r.Next].Submit
	}
	if r.ends.Len() > 0 {
		at = min(at, r.ends.Items()[0].at)
	}
	if len(r.ResultOf) == 0 {
		return at
	}
	if wake := r.Wake; wake < cluster.Never {
		if wake <= r.Now+1 { // soon, not at an instant
			wake = r.Now.Add(time.Second)
		}
		at = min(at, wake)
	}
	if r.saved {
		at = min(at, max(r.State.Peek().NextDue(), r.Now))
	}
	return at
}

// processInstant handles all events of an instant: ends, due ticks, submissions.
func (r *Replayer) processInstant() error {
	var ended []int
	over := r.tasks[:0]
	for r.ends.Len() > 0 && r.ends.Items()[0].at <= r.Now {
		e := r.ends.Pop()
		res := &r.Results[e.result]
		res.End, res.Reason = r.Now, cluster.Completed.String()
		over = appendTasks(over, res, cluster.TaskClean)
		delete(r.ResultOf, res.ID)
		ended = append(ended, e.result)
		r.Done++
	}
	r.tasks = over
	if err := r.report(over); err != nil {
		return err
	}
	r.recordRequeued(ended)
	if r.saved { // the jobs of a log end in time, and have no times of their own
		if err := r.tick(); err != nil {
			return err
		}
	}
	for ; r.Next < len(r.Jobs) && r.Jobs[r.Next].Submit <= r.Now; r.Next++ {
		if err := r.submit(r.Next); err != nil {
			return err
		}
	}
	return nil
}

// recordRequeued finds the jobs that left their nodes and are pending again.
func (r *Replayer) recordRequeued(ended []int) {
	if !r.saved || len(ended) == 0 {
		return
	}
	view := r.State.View()
	for _, at := range ended {
		res := &r.Results[at]
		if j, ok := view.Job(res.ID); ok && j.State == cluster.Pending {
			res.Start, res.End, res.Nodes, res.waits = 0, 0, nil, true
			r.ResultOf[res.ID] = at
			r.Done--
		}
	}
}

func (r *Replayer) submit(i int) error {
	answer, err := r.Apply(r.submission(r.Jobs[i].Spec))
	if err != nil {
		return err
	}
	switch a := answer.(type) {
	case *command.Submitted:
		r.Results[i].ID = a.First[0]
		r.ResultOf[a.First[0]] = i
	case *command.Refusal:
		r.Results[i].Reason = "refused: " + a.Message
		r.Done++
	}
	return nil
}

// MaxPasses is the most passes of one instant. A scheduler that requests more is called again a
// second later.
const MaxPasses = 100

// runPasses makes passes until the scheduler has nothing left to do; none if no job is pending.
func (r *Replayer) runPasses() error {
	if len(r.ResultOf) == r.ends.Len() {
		r.Wake = cluster.Never
		return nil
	}
	for range MaxPasses {
		d, done, err := r.Pass()
		if err != nil {
			return err
		}
		r.RecordVerdicts(&d.Plan)
		if err := r.startJobs(&d, done); err != nil {
			return err
		}
		r.Wake = d.Wake
		if !d.More && len(done.Stale) == 0 {
			return nil
		}
	}
	return nil
}

// RecordVerdicts stores the verdicts on pending jobs in their results.
func (r *Replayer) RecordVerdicts(p *cluster.Plan) {
	for i := range p.Verdicts {
		v := &p.Verdicts[i]
		at, waits := r.ResultOf[v.Job]
		if !waits {
			continue
		}
		res := &r.Results[at]
		res.Waited, res.Reason = true, v.Reason.String()
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
		if res.LatestPromise > 0 && v.Promise.At > res.LatestPromise && res.Broken == "" {
			res.Broken = UnnamedCause
		}
		res.LatestPromise = v.Promise.At
	}
}

// UnnamedCause is the cause of a broken promise for which the scheduler gave none.
const UnnamedCause = "no cause was named"

// startJobs has the nodes run the jobs that a plan started.
func (r *Replayer) startJobs(d *schedule.Decision, done *command.Committed) error {
	stale := map[cluster.JobID]bool{}
	for _, s := range done.Stale {
		stale[s.Job] = true
	}
	running := r.tasks[:0]
	view := r.State.Peek()
	for i := range d.Plan.Starts {
		s := &d.Plan.Starts[i]
		if stale[s.Job] {
			continue
		}
		j, _ := view.Job(s.Job)
		at := r.ResultOf[s.Job]
		res := &r.Results[at]
		res.Start, res.Nodes, res.Attempt = r.Now, j.Alloc.Nodes, s.Attempt // possibly more than was planned
		if !res.Waited {                                                    // it started in its first pass
			res.Planned, res.Promise = r.Now, r.Now
		}
		if res.LatestPromise > 0 && r.Now > res.LatestPromise && res.Broken == "" {
			res.Broken = UnnamedCause
		}
		running = appendTasks(running, res, cluster.TaskStarted)
		r.ends.Push(ending{r.Now.Add(res.Job.Run), at})
	}
	r.tasks = running
	return r.report(running)
}

// appendTasks adds the tasks of a job as its nodes report them.
func appendTasks(tasks []task, res *Result, phase cluster.TaskPhase) []task {
	for i := range res.Nodes {
		tasks = append(tasks, task{node: res.Nodes[i].Node, rank: i, job: res.ID, attempt: res.Attempt, phase: phase, started: res.Start})
	}
	return tasks
}

// ExplainPending stores why the remaining jobs are pending in their results.
func (r *Replayer) ExplainPending() error {
	view := r.State.View()
	for id, at := range r.ResultOf {
		if j, known := view.Job(id); known {
			r.Results[at].Reason = j.State.String() + ": " + j.Reason.String()
			if j.Detail != "" {
				r.Results[at].Reason += ": " + j.Detail
			}
		}
	}
	return nil
}

// progressEvery is the least time between two calls of Options.Progress.
const progressEvery = 500 * time.Millisecond

// ReportProgress calls Options.Progress, at most every 500 ms.
func (r *Replayer) ReportProgress() {
	if r.options.Progress != nil && time.Since(r.lastProgress) >= progressEvery {
		r.lastProgress = time.Now()
		r.options.Progress(r.Done, len(r.Jobs), r.Now)
	}
}

// ending is the end of a running job.
type ending struct {
	at     cluster.Instant
	result int
}

// newEndings returns an empty heap of ends by instant, equal ones in the order of the workload.
func newEndings() heap.Heap[ending] {
	return heap.New(func(a, b *ending) bool { return a.at < b.at || a.at == b.at && a.result < b.result })
}
