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
}

// Result is what became of one job.
type Result struct {
	Job           *Job
	ID            cluster.JobID // in the simulated state; 0 when it was refused
	Planned       cluster.Instant
	Promise       cluster.Instant // the first; 0 when none was made
	Start         cluster.Instant // 0: it never started
	End           cluster.Instant // 0: it never ended
	Broken        string          // why a promise was not kept
	Reason        string          // why it was refused, or did not start, or how it ended
	Nodes         []cluster.NodeAllocation
	Attempt       cluster.Attempt
	LatestPromise cluster.Instant // the latest
	Waited        bool            // it had a verdict before it started
	waits         bool            // of a saved cluster: it waits, or waits again
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

// Replayer is a workload under way.
type Replayer struct {
	*Virtual
	options  Options
	Jobs     []Job
	Next     int // of jobs, to be submitted
	Results  []Result
	ResultOf map[cluster.JobID]int // result of each job that is not over
	ends     heap.Heap[ending]
	Wake     cluster.Instant // when the scheduler wants another pass
	Done     int
	saved    bool      // it goes on from a saved cluster
	told     time.Time // when progress was
	tasks    []task    // that changed at the present instant: room used again
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
	return &Outcome{Fleet: f, Results: r.Results, Passes: r.took, Anew: r.anew, Stale: r.stale}
}

// run goes from instant to instant at which something happens.
func (r *Replayer) run() error {
	for {
		at := r.soonest()
		if at == cluster.Never {
			return r.ExplainPending()
		}
		r.Now = max(at, r.Now)
		if err := r.happen(); err != nil {
			return err
		}
		if err := r.passes(); err != nil {
			return err
		}
		r.ReportProgress()
	}
}

// soonest is the next instant at which something happens; never when nothing more can.
func (r *Replayer) soonest() cluster.Instant {
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
		if wake <= r.Now+1 { // it asks to be called again soon, not at an instant
			wake = r.Now.Add(time.Second)
		}
		at = min(at, wake)
	}
	if r.saved {
		at = min(at, max(r.State.Peek().NextDue(), r.Now))
	}
	return at
}

// happen is all events of an instant: ends, what time brings, submissions.
func (r *Replayer) happen() error {
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
	r.returns(ended)
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

// returns notes which of the jobs that left their nodes wait again.
func (r *Replayer) returns(ended []int) {
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

// MaxPasses bounds the passes of one instant; a scheduler that wants more is called
// again a second later.
const MaxPasses = 100

// passes makes passes until the scheduler has seen everything; none while nobody waits,
// as there is nothing to decide then.
func (r *Replayer) passes() error {
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
		if err := r.begin(&d, done); err != nil {
			return err
		}
		r.Wake = d.Wake
		if !d.More && len(done.Stale) == 0 {
			return nil
		}
	}
	return nil
}

// RecordVerdicts notes what the jobs that wait are told.
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

// UnnamedCause is the cause of a broken promise of which the scheduler said nothing.
const UnnamedCause = "no cause was named"

// begin lets the nodes run what was started.
func (r *Replayer) begin(d *schedule.Decision, done *command.Committed) error {
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
		res.Start, res.Nodes, res.Attempt = r.Now, j.Alloc.Nodes, s.Attempt // which may be more than was planned
		if !res.Waited {                                                    // it was never told to wait
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

// ExplainPending says of the jobs that nothing can start any more what they waited for.
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

// progressEvery is how often progress is told.
const progressEvery = 500 * time.Millisecond

// ReportProgress calls Options.Progress, at most every 500 ms.
func (r *Replayer) ReportProgress() {
	if r.options.Progress != nil && time.Since(r.told) >= progressEvery {
		r.told = time.Now()
		r.options.Progress(r.Done, len(r.Jobs), r.Now)
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
