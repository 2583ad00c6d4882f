package cloudsim

import (
	"cmp"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/cloud"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// Options are the cloud of a replay, and the rule that leases its nodes.
type Options struct {
	Kinds []cloud.Kind
	Seed  uint64
	Rule  Rule // nil: production's
}

// CloudPartition is the name of the partition of leased nodes, where a policy has none.
const CloudPartition = "cloud"

// replay is a replay in progress.
type replay struct {
	*sim.Replayer
	*Options
	cloud   *cloud.Cloud
	began   cluster.Instant
	waited  []int                    // results of the jobs that waited when it began, of a saved cluster
	absent  map[string]time.Duration // see instances.Sets
	seen    uint64                   // the number of commands before the last passes
	changed cluster.Instant          // when a job last did
	moved   cluster.Instant          // when the state of a job last changed
	// launches is how many launches were committed since then.
	launches int
	leases   bool // there are some that are not GONE
	pausing  map[cluster.JobID]cluster.Instant
	plain    []sim.Job // as the workload has them: those that no offer suits run on the site alone
	reports  []task    // to be sent once the present command is over
	summary  sim.CloudSummary
}

// task is a task whose node reports a new phase.
type task struct {
	node    string
	job     cluster.JobID
	attempt cluster.Attempt
	task    cluster.Task
}

// Replay replays a workload, all of whose jobs may burst, until all jobs and leases have ended.
func Replay(f *sim.Machine, policy *cluster.Policy, jobs []sim.Job, t *Options, o sim.Options) (*sim.Outcome, error) {
	p := WithCloud(policy)
	v := sim.NewVirtual(state.New(), sim.Epoch, o.Check)
	if err := v.Assemble(f, p); err != nil {
		return nil, err
	}
	x := newReplay(v, bursting(jobs, p), t, o)
	x.plain = jobs
	if err := x.run(); err != nil {
		return nil, fmt.Errorf("seed %d: %w", t.Seed, err)
	}
	return x.outcome(f), nil
}

func newReplay(v *sim.Virtual, jobs []sim.Job, t *Options, o sim.Options) *replay {
	x := &replay{
		Replayer: sim.NewReplayer(v, jobs, o), Options: t, cloud: cloud.New(t.Kinds, t.Seed, v.Now), began: v.Now, absent: map[string]time.Duration{},
		pausing: map[cluster.JobID]cluster.Instant{},
	}
	x.Witness = x
	x.cloud.Created = func(i *cloud.Instance) {
		x.live(i)
		x.At(i.Joins, func() error { return x.join(i) })
	}
	x.summary.Currency = v.State.Peek().Policy().Burst.Currency
	x.In(0, x.offer)
	return x
}

// WithCloud returns a policy that leases nodes: with a partition of leased nodes, and a limit that is out of reach where it
// has none.
func WithCloud(policy *cluster.Policy) *cluster.Policy {
	p := *policy
	p.Burst.On = true
	if p.Burst.MonthlyLimit == 0 {
		p.Burst.MonthlyLimit = cluster.MaxMoney
	}
	if _, found := p.Cloud(); !found {
		part := cluster.Partition{Name: CloudPartition, Nodes: []string{cluster.LeasedNodes}}
		p.Partitions = append(p.Partitions[:len(p.Partitions):len(p.Partitions)], part)
	}
	return &p
}

// anyImage is the image of jobs that may burst: without one they may not.
const anyImage = "example.org/image:1"

// bursting returns jobs that may burst, and that run again after a reclaim.
func bursting(jobs []sim.Job, p *cluster.Policy) []sim.Job {
	part, _ := p.Cloud()
	specs := map[*cluster.JobSpec]*cluster.JobSpec{}
	all := make([]sim.Job, len(jobs))
	for i := range jobs {
		all[i] = jobs[i]
		spec, known := specs[jobs[i].Spec]
		if !known {
			s := *jobs[i].Spec
			first, _ := p.Partition(s.Partition)
			s.Partition, s.Requeue, s.Burst.Mode = first.Name, true, cluster.BurstAllow
			s.Image = cmp.Or(s.Image, anyImage)
			s.OtherPartitions = append(s.OtherPartitions[:len(s.OtherPartitions):len(s.OtherPartitions)], part.Name)
			spec = &s
			specs[jobs[i].Spec] = spec
		}
		all[i].Spec = spec
	}
	return all
}

// offerEvery is how often the cloud is asked for its offers while no price changes.
const offerEvery = time.Hour

// offer records the present offers.
func (x *replay) offer() error {
	list, change := x.cloud.Offers(x.Now)
	if x.working() {
		x.At(min(change, x.Now.Add(offerEvery)), x.offer)
	}
	return x.Must(&command.SetOffers{Offers: list})
}

// working reports whether jobs are still to be submitted, to start or to end, or nodes are leased.
func (x *replay) working() bool { return x.Next < len(x.Jobs) || len(x.ResultOf) > 0 || x.leases }

// run advances from one instant with an event to the next.
func (x *replay) run() error {
	for {
		at := x.nextInstant()
		if at == cluster.Never {
			return x.ExplainPending()
		}
		x.Now = max(at, x.Now)
		if err := x.processInstant(); err != nil {
			return err
		}
		if err := x.passes(); err != nil {
			return err
		}
		x.ReportProgress()
	}
}

// patience is after what time without a change of a job the pending ones are considered unable to start, if only the prices of
// the cloud can still change.
const patience = 14 * 24 * time.Hour

// manyLaunches is the number of launches without effect after which the jobs are considered unable to start.
const manyLaunches = 100

// stuck reports whether the pending jobs never start: nothing can change for them, or their nodes never join.
func (x *replay) stuck() bool {
	view := x.State.Peek()
	if x.Next < len(x.Jobs) || int(view.Counts().ByState[cluster.Pending]) < len(x.ResultOf) {
		return false
	}
	if x.launches >= manyLaunches && x.Now.Sub(x.moved) > patience {
		return true
	}
	return !x.leases && x.Wake == cluster.Never && view.NextDue() == cluster.Never && x.Now.Sub(x.changed) > patience
}

// nextInstant returns the next instant with an event; or cluster.Never.
func (x *replay) nextInstant() cluster.Instant {
	at := cluster.Never
	if !x.working() || x.stuck() {
		return at
	}
	if x.Next < len(x.Jobs) {
		at = x.Jobs[x.Next].Submit
	}
	at = min(at, x.NextAction())
	if x.Wake < cluster.Never {
		at = min(at, max(x.Wake, x.Now.Add(time.Second)))
	}
	if due := x.State.Peek().NextDue(); due < cluster.Never {
		at = min(at, max(due, x.Now.Add(time.Millisecond)))
	}
	return at
}

// processInstant handles all events of an instant: ends, due ticks, submissions.
func (x *replay) processInstant() error {
	if err := x.Act(x.flush); err != nil {
		return err
	}
	if x.State.Peek().NextDue() <= x.Now {
		if err := x.Must(&command.Tick{}); err != nil {
			return err
		}
	}
	for ; x.Next < len(x.Jobs) && x.Jobs[x.Next].Submit <= x.Now; x.Next++ {
		if err := x.submit(x.Next); err != nil {
			return err
		}
	}
	if err := x.flush(); err != nil {
		return err
	}
	return x.lead()
}

// submit submits a job. One that may not burst runs on the site alone.
func (x *replay) submit(i int) error {
	answer, err := x.send(x.Jobs[i].Spec)
	if _, refused := answer.(*command.Refusal); refused && err == nil && i < len(x.plain) {
		answer, err = x.send(x.plain[i].Spec)
	}
	if err != nil {
		return err
	}
	switch a := answer.(type) {
	case *command.Submitted:
		x.Results[i].ID = a.First[0]
		x.ResultOf[a.First[0]] = i
	case *command.Refusal:
		x.Results[i].Reason = "refused: " + a.Message
		x.Done++
	}
	return nil
}

func (x *replay) send(spec *cluster.JobSpec) (command.Result, error) {
	return x.Apply(&command.SubmitJobs{Actor: command.Actor{Identity: spec.Owner, Source: "simulation"}, Jobs: []command.Submission{{Spec: *spec}}})
}

// passes makes passes until the scheduler and the rule have nothing left to do; none if nothing has changed.
func (x *replay) passes() error {
	if x.Index == x.seen && x.Wake > x.Now {
		return nil
	}
	defer func() { x.seen = x.Index }()
	for range sim.MaxPasses {
		if x.State.Peek().Counts().ByState[cluster.Pending] == 0 {
			x.Wake = cluster.Never
			return nil
		}
		d, done, err := x.Pass()
		if err != nil {
			return err
		}
		x.RecordVerdicts(&d.Plan)
		x.starting(d.Plan.Starts)
		x.Wake = d.Wake
		if err := x.flush(); err != nil {
			return err
		}
		if err := x.lead(); err != nil {
			return err
		}
		if d.More || len(done.Stale) > 0 {
			continue
		}
		return x.rule()
	}
	return nil
}

// starting records what is known of jobs that start in their first pass.
func (x *replay) starting(starts []cluster.PlannedStart) {
	for i := range starts {
		if at, known := x.ResultOf[starts[i].Job]; known {
			if res := &x.Results[at]; !res.Waited {
				res.Planned, res.Promise = x.Now, x.Now
			}
		}
	}
}

// outcome returns what the replay has measured.
func (x *replay) outcome(f *sim.Machine) *sim.Outcome {
	out := x.Outcome(f)
	x.summary.Hours += x.liveHours()
	out.Cloud = &x.summary
	return out
}
