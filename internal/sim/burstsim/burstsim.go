package burstsim

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/cloud"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrViolation is wrapped by the error of a run in which an invariant was violated. With the same seed it occurs again.
var ErrViolation = errors.New("violation")

// Result is what happened in a run.
type Result struct {
	Seed                                         uint64
	Jobs, Instances, Joined, Reclaims, Elections int
	OnCloud                                      int   // tasks that began on leased nodes
	Spent                                        int64 // in millionths of the currency
	Commands                                     int
	Refused, LostAnswers, NeverJoined            int
	Waves                                        int // reclaims of a fifth of all nodes at once
	Resumed                                      int // attempts that began with a checkpoint
	Joins, WentOn                                int // nodes that elastic jobs got; those they lost to a reclaim, and went on
	Shares                                       int // spot nodes of a QOS that must have some on demand
}

// The shape of a run.
const (
	siteNodes  = 16
	siteGPUs   = 2 // of each node
	maxLeased  = 16
	runFor     = 12 * time.Hour // jobs are submitted
	drainFor   = 36 * time.Hour // then everything ends
	monthly    = 600_000_000    // most that may be spent
	stepsMax   = 2_000_000
	checkEvery = 8 // commands
)

// simulation is one run.
type simulation struct {
	*sim.Virtual
	streams  *faults.Streams
	cloud    *cloud.Cloud
	leader   leader
	machines map[string]*machine // by node
	nodes    map[string]*machine // by instance
	runtimes map[cluster.JobID]time.Duration
	saved    map[cluster.JobID]time.Duration // what the newest checkpoint of a job has saved
	wake     cluster.Instant
	seen     uint64
	elect    int // number of the command after which another controller leads
	r        Result
}

// Run makes one run under a seed, with a check of the state after each checkEvery commands.
func Run(seed uint64) (*Result, error) {
	x, err := newSimulation(seed)
	if err == nil {
		err = x.run()
	}
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w", seed, err)
	}
	result := x.r
	return &result, nil
}

func newSimulation(seed uint64) (*simulation, error) {
	x := &simulation{
		Virtual: sim.NewVirtual(state.New(), sim.Epoch, false), streams: faults.NewStreams(seed), machines: map[string]*machine{}, nodes: map[string]*machine{},
		runtimes: map[cluster.JobID]time.Duration{}, saved: map[cluster.JobID]time.Duration{}, wake: sim.Epoch,
	}
	x.r.Seed = seed
	r := x.streams.Of(faults.Nodes)
	x.cloud = newCloud(seed, r, sim.Epoch)
	x.cloud.Created = x.live
	f, err := sim.Uniform(siteNodes, siteGPUs)
	if err != nil {
		return nil, err
	}
	x.Witness = x
	if err := x.Assemble(f, policy(r)); err != nil {
		return nil, err
	}
	for i := range f.Nodes {
		n := f.Nodes[i]
		x.machines[n.Name] = &machine{node: n, epoch: x.Epochs[n.Name], tasks: map[sim.TaskID]*machineTask{}}
	}
	x.leader.forget()
	x.elect = 50 + r.IntN(400)
	return x, x.prepare()
}

// mixedQOS has some of its leased nodes on demand.
const mixedQOS = "batch"

// policy returns a policy under which jobs may burst.
func policy(r *rand.Rand) *cluster.Policy {
	p := cluster.DefaultPolicy()
	p.Partitions = append(p.Partitions, cluster.Partition{Name: "cloud", Nodes: []string{cluster.LeasedNodes}, DefaultTime: time.Hour})
	p.Burst.On, p.Burst.MonthlyLimit, p.Burst.MaxNodes = true, monthly, maxLeased
	for i := range p.QOS {
		p.QOS[i].BurstValue, p.QOS[i].BurstMaxWait, p.QOS[i].Open = 2_000_000, 4*time.Hour, true
		if p.QOS[i].Name == mixedQOS {
			p.QOS[i].MinOnDemand = 1 + r.Int32N(99)
		}
	}
	return &p
}

// prepare schedules the jobs, the changes of prices and the rounds of the leader.
func (x *simulation) prepare() error {
	users := x.streams.Of(faults.Users)
	for at := time.Duration(0); at < runFor; at += faults.Within(users, 6*time.Minute) {
		x.In(at, x.submit)
	}
	for at := waveEvery; at < runFor; at += faults.Within(users, waveEvery) {
		x.In(at, x.wave)
	}
	x.every(priceEvery, func() error {
		list, _ := x.cloud.Offers(x.Now)
		return x.Must(&command.SetOffers{Offers: list})
	})
	x.every(2*time.Second, x.leaderRound)
	return nil
}

// every repeats an action until the end.
func (x *simulation) every(d time.Duration, do func() error) {
	x.In(d, func() error {
		x.every(d, do)
		return do()
	})
}

// submit submits a random job.
func (x *simulation) submit() error {
	r := x.streams.Of(faults.Users)
	spec := cluster.JobSpec{
		Name: "sim", Owner: cluster.Identity{User: "ann", UID: 1000, GID: 1000}, WorkDir: "/", Image: "example.org/image:1", Requeue: true,
		TimeLimit: time.Duration(1+r.IntN(16)) * 15 * time.Minute, QOS: []string{"standard", mixedQOS, "production"}[r.IntN(3)],
		Request: cluster.Request{Nodes: 1, GPUsPerNode: 1 + r.Int32N(siteGPUs), TasksPerNode: 1, CPUsPerTask: 1},
		Burst:   cluster.Burst{Mode: []cluster.BurstMode{cluster.BurstAllow, cluster.BurstAllow, cluster.BurstNever, cluster.BurstOnly}[r.IntN(4)]},
	}
	switch r.IntN(10) {
	case 0, 1:
		spec.Request.Nodes, spec.Request.GPUsPerNode = 2+r.Int32N(7), siteGPUs
	case 2, 3:
		spec.Request.Nodes, spec.Request.MaxNodes, spec.Request.GPUsPerNode, spec.Elastic = 4, 16, siteGPUs, cluster.Elastic{Step: 1}
	}
	if r.IntN(3) == 0 {
		spec.CheckpointDir, spec.CheckpointSignal = "/checkpoints/%j", cluster.WarnSignal{Number: userSignal, Before: 2 * time.Minute}
	}
	if r.IntN(6) == 0 {
		spec.Burst.MaxCost = 20_000_000
	}
	result, err := x.Apply(&command.SubmitJobs{Actor: command.Actor{Identity: spec.Owner}, Jobs: []command.Submission{{Spec: spec}}})
	if err != nil {
		return err
	}
	done, ok := result.(*command.Submitted)
	if !ok {
		return sim.RefusalError(result)
	}
	x.r.Jobs++
	x.runtimes[done.First[0]] = time.Duration(1+r.Int64N(int64(spec.TimeLimit/time.Second))) * time.Second
	return nil
}

// run advances from one instant with an event to the next.
func (x *simulation) run() error {
	until := sim.Epoch.Add(runFor + drainFor)
	for range stepsMax {
		at := x.nextInstant()
		if at > until {
			x.Now = until
			return x.conclude()
		}
		x.Now = max(at, x.Now)
		if err := x.Act(nil); err != nil {
			return err
		}
		if x.State.Peek().NextDue() <= x.Now {
			if err := x.Must(&command.Tick{}); err != nil {
				return err
			}
		}
		if err := x.passes(); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: more than %d steps", ErrViolation, stepsMax)
}

// nextInstant returns the next instant with an event.
func (x *simulation) nextInstant() cluster.Instant {
	at := x.NextAction()
	if x.wake < cluster.Never {
		at = min(at, max(x.wake, x.Now.Add(time.Second)))
	}
	if due := x.State.Peek().NextDue(); due < cluster.Never {
		at = min(at, max(due, x.Now.Add(time.Millisecond)))
	}
	return at
}

// passes makes passes until the scheduler has nothing left to do; none if nothing has changed.
func (x *simulation) passes() error {
	if x.Index == x.seen && x.wake > x.Now {
		return nil
	}
	defer func() { x.seen = x.Index }()
	for range sim.MaxPasses {
		d, done, err := x.Pass()
		if err != nil {
			return err
		}
		if x.wake = d.Wake; !d.More && len(done.Stale) == 0 {
			return nil
		}
	}
	return nil
}

// Before counts a command.
func (x *simulation) Before(uint64, cluster.Instant, command.Command) { x.r.Commands++ }

// After sends changes to the nodes, and checks promises and budgets.
func (x *simulation) After(c command.Command, r command.Result, e *state.Effects) error {
	for i := range e.Changed {
		ch := &e.Changed[i]
		if ch.Kind != state.JobChanged {
			continue
		}
		if ch.Old != nil && ch.New != nil {
			x.follow(ch.Old, ch.New)
		}
		for _, j := range []*cluster.Job{ch.Old, ch.New} {
			if j == nil || j.Alloc == nil {
				continue
			}
			for k := range j.Alloc.Nodes {
				if m := x.machines[j.Alloc.Nodes[k].Node]; m != nil {
					x.In(time.Second, func() error { return x.sync(m) })
				}
			}
		}
		if err := checkPromise(ch.New); err != nil {
			return err
		}
	}
	if err := errors.Join(x.checkBudget(), x.checkLaunches(c, r)); err != nil {
		return err
	}
	if x.r.Commands%checkEvery == 0 {
		if err := x.State.Check(); err != nil {
			return err
		}
	}
	if x.r.Commands == x.elect {
		x.elect += 50 + x.streams.Of(faults.Leaders).IntN(400)
		return x.changeLeader()
	}
	return nil
}

// checkPromise: no node of the site fails, so nothing may break a promise.
func checkPromise(j *cluster.Job) error {
	if j == nil || len(j.History) == 0 {
		return nil
	}
	if n := &j.History[len(j.History)-1]; n.Broken != "" {
		return fmt.Errorf("%w: the promise of job %d is broken: %s", ErrViolation, j.ID, n.Broken)
	}
	return nil
}

// checkBudget checks what is spent and committed against the limit, and that no lease has two instances.
func (x *simulation) checkBudget() error {
	var sum int64
	owner := map[string]cluster.LeaseID{}
	for l := range x.State.Peek().Leases() {
		sum += l.Reserved + l.Cost
		if l.Instance == "" {
			continue
		}
		if other, owned := owner[l.Instance]; owned {
			return fmt.Errorf("%w: leases %d and %d have instance %s", ErrViolation, other, l.ID, l.Instance)
		}
		owner[l.Instance] = l.ID
	}
	if sum > monthly {
		return fmt.Errorf("%w: %d are spent and committed, at most %d may be", ErrViolation, sum, int64(monthly))
	}
	return nil
}

// changeLeader makes another controller lead: it has the state, and nothing else.
func (x *simulation) changeLeader() error {
	var b bytes.Buffer
	if err := x.State.View().Encode(&b); err != nil {
		return err
	}
	s, err := state.Decode(&b)
	if err != nil {
		return err
	}
	x.State, x.Planner, x.wake = s, schedule.NewPlanner(), x.Now
	x.leader.forget()
	x.r.Elections++
	return nil
}

// conclude checks that every instance has ended, or belongs to a lease with a deadline to come, and counts what they cost.
func (x *simulation) conclude() error {
	known := map[string]bool{}
	for l := range x.State.View().Leases() {
		x.r.Spent += l.Cost
		switch {
		case l.State <= cluster.LeaseRunning && l.Deadline > x.Now:
			known[l.Instance] = true
		case l.Live() || l.Reserved != 0:
			return fmt.Errorf("%w: lease %d is still %s", ErrViolation, l.ID, l.State)
		}
	}
	var real int64
	perLaunch := map[cluster.LeaseID]map[uint32]bool{}
	for _, i := range x.cloud.All() {
		if i.Ended == 0 && !known[i.ID] {
			return fmt.Errorf("%w: instance %s still exists", ErrViolation, i.ID)
		}
		if perLaunch[i.Launch] == nil {
			perLaunch[i.Launch] = map[uint32]bool{}
		}
		perLaunch[i.Launch][i.Try] = true
		if hours := i.Hours(x.Now); !i.Interrupted || hours >= 1 { // else the cloud does not bill it
			real += int64(float64(i.Price) * hours)
		}
	}
	for launch, tries := range perLaunch {
		if len(tries) > 1 {
			return fmt.Errorf("%w: launch %d was rented by %d requests", ErrViolation, launch, len(tries))
		}
	}
	if real > monthly {
		return fmt.Errorf("%w: the cloud bills %d, at most %d may be spent", ErrViolation, real, int64(monthly))
	}
	x.r.Instances = len(x.cloud.All())
	return nil
}
