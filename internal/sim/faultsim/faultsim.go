// Package faultsim replays a workload with injected faults: lost nodes, failed GPUs, new leaders,
// wrong clocks, late, lost and repeated messages, and changes by users and administrators.
//
// The audit recomputes the journal of credits and every invariant after each command, and ends
// the replay at the first violation. The same input and seed give the same history. Package faults
// draws the faults, and journalcheck recomputes the journal.
package faultsim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrViolation is wrapped by the error of a replay in which an invariant was violated. Its message
// names the command. With the same input and seed the violation occurs again.
var ErrViolation = errors.New("violation")

// Options are the faults of a replay and the prices of its jobs.
type Options struct {
	Faults faults.Mix
	Seed   uint64
	// Every is the number of commands after which the whole state is recomputed: the state's own
	// invariants, and all balances from the journal. What a single command changes is checked after
	// each.
	Every int
	// Prices are those of a GPU-hour by type of GPU, "" for all others; empty if jobs cost nothing.
	// Grant is the initial credits of each account.
	Prices map[string]accounting.Credits
	Grant  accounting.Credits
}

// faultSim replays a workload with injected faults. The state knows of machines and their tasks
// only what messages report, which are late, lost or repeated.
type faultSim struct {
	*sim.Replayer
	*Options
	streams      *faults.Streams
	hosts        map[string]*host
	names        []string           // of hosts, in order
	begun        map[attemptOn]bool // each attempt begins on a node once
	specs        map[specKey]*cluster.JobSpec
	accounts     []string
	leader       leader
	audit        *audit
	summary      sim.FaultSummary
	requests     uint64   // the number of requests
	repeating    bool     // the present command is a repetition
	last         *request // the last request
	lastProgress cluster.Instant
	rates        []string // GPU types that have a price
}

// Replay replays a workload with injected faults.
func Replay(f *sim.Machine, policy *cluster.Policy, jobs []sim.Job, t *Options, o sim.Options) (*sim.Outcome, error) {
	x, err := newFaultSim(f, policy, jobs, t, o)
	if err == nil {
		err = x.run()
	}
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w", t.Seed, err)
	}
	out := x.Outcome(f)
	out.Faults = &x.summary
	return out, nil
}

// newFaultSim returns a simulation at its first instant.
func newFaultSim(f *sim.Machine, policy *cluster.Policy, jobs []sim.Job, t *Options, o sim.Options) (*faultSim, error) {
	p := *policy
	p.Credits.On = len(t.Prices) > 0
	if err := preempting(&p, t.Faults.Preempt); err != nil {
		return nil, err
	}
	v := sim.NewVirtual(state.New(), sim.Epoch, false) // the audit checks
	if err := v.Assemble(f, &p); err != nil {
		return nil, err
	}
	r := sim.NewReplayer(v, jobs, o)
	x := &faultSim{
		Replayer: r, Options: t, streams: faults.NewStreams(t.Seed), hosts: map[string]*host{},
		begun: map[attemptOn]bool{}, specs: map[specKey]*cluster.JobSpec{}, summary: sim.FaultSummary{Seed: t.Seed, Mix: t.Faults.String(), Faults: map[string]int{}},
	}
	for i := range f.Nodes {
		n := f.Nodes[i]
		x.names = append(x.names, n.Name)
		x.hosts[n.Name] = &host{node: n, epoch: v.Epochs[n.Name], on: true, reachable: true, tasks: map[sim.TaskID]*hostTask{}}
	}
	return x, x.prepare(f)
}

// preempting lets the QOS with the highest tier preempt the default one.
func preempting(p *cluster.Policy, part float64) error {
	if part == 0 || slices.ContainsFunc(p.QOS, func(q cluster.QOS) bool { return slices.Contains(q.Preempts, p.DefaultQOS) }) {
		return nil
	}
	p.QOS = slices.Clone(p.QOS)
	top := slices.MaxFunc(p.QOS, func(a, b cluster.QOS) int { return cmp.Compare(a.Tier, b.Tier) }).Name
	for i := range p.QOS {
		switch q := &p.QOS[i]; q.Name {
		case p.DefaultQOS:
			if q.Name == top {
				return fmt.Errorf("%w: no qos is above %s, whose jobs could be preempted", sim.ErrRefused, top)
			}
			q.PreemptMode = max(q.PreemptMode, cluster.PreemptRequeue)
		case top:
			q.Preempts, q.Open = append(slices.Clone(q.Preempts), p.DefaultQOS), true
		}
	}
	return nil
}

// prepare adds accounts, prices and grants, and schedules the first faults.
func (x *faultSim) prepare(f *sim.Machine) error {
	x.leader.term = 1
	if err := x.leader.save(x.State); err != nil {
		return err
	}
	x.audit = newAudit(x)
	x.Witness = x
	if err := x.open(f); err != nil {
		return err
	}
	x.scheduleFaults()
	return nil
}

// patience is the time without a start, an end or a submission after which the remaining jobs are
// considered unable to start.
const patience = 14 * 24 * time.Hour

// run advances from one instant with an event to the next, until all jobs have ended and no bill
// can change.
func (x *faultSim) run() error {
	x.lastProgress = x.Now
	for {
		at := x.nextInstant()
		if at == cluster.Never {
			break
		}
		x.Now = max(at, x.Now)
		if err := x.processInstant(); err != nil {
			return err
		}
		if err := x.runPasses(); err != nil {
			return err
		}
		x.ReportProgress()
	}
	if err := x.elect(); err != nil {
		return err
	}
	x.total()
	for j := range x.State.View().Jobs(0) {
		if j.State.HasAllocation() {
			return violation("job %d never ends: %s", j.ID, j.State)
		}
	}
	return errors.Join(x.audit.everything(), x.ExplainPending())
}

// nextInstant returns the next instant with an event; cluster.Never at the end.
func (x *faultSim) nextInstant() cluster.Instant {
	at := cluster.Never
	if x.Next < len(x.Jobs) {
		at = max(x.Jobs[x.Next].Submit, x.Now)
	}
	view := x.State.Peek()
	if at == cluster.Never && (len(x.ResultOf) == 0 || x.Now.Sub(x.lastProgress) > patience) && x.settled() {
		return at
	}
	at = min(at, x.NextAction())
	if len(x.ResultOf) > 0 && x.Wake < cluster.Never {
		at = min(at, max(x.Wake.Add(-x.Skew), x.Now.Add(time.Second)))
	}
	if due := view.NextDue(); due < cluster.Never {
		at = min(at, max(due.Add(-x.Skew), x.Now.Add(time.Millisecond)))
	}
	return at
}

// settled reports whether no bill waits for nodes that may come back.
func (x *faultSim) settled() bool {
	_, _, waits := x.State.Peek().Credits().OldestProvisional()
	return !waits
}

// processInstant handles all events of an instant.
func (x *faultSim) processInstant() error {
	if err := x.Act(nil); err != nil {
		return err
	}
	if due := x.State.Peek().NextDue(); due <= max(x.Now.Add(x.Skew), x.State.Peek().Now()) {
		if err := x.Must(&command.Tick{}); err != nil {
			return err
		}
	}
	for ; x.Next < len(x.Jobs) && x.Jobs[x.Next].Submit <= x.Now; x.Next++ {
		if err := x.submit(x.Next); err != nil {
			return err
		}
	}
	return nil
}

// runPasses makes passes until the scheduler has nothing left to do; none if no job is pending.
func (x *faultSim) runPasses() error {
	for range sim.MaxPasses {
		if x.State.Peek().Counts().ByState[cluster.Pending] == 0 && x.Faults.Elastic == 0 {
			x.Wake = cluster.Never
			return nil
		}
		d, done, err := x.Pass()
		if err != nil {
			return err
		}
		x.RecordVerdicts(&d.Plan)
		x.leader.plan = &d.Plan
		if err := x.checkPromises(&d.Plan, done); err != nil {
			return err
		}
		x.Wake = d.Wake
		if !d.More && len(done.Stale) == 0 && len(d.Plan.Evictions) == 0 {
			return nil
		}
	}
	return nil
}

// checkPromises compares a plan with earlier promises: no promise is broken without a cause.
func (x *faultSim) checkPromises(p *cluster.Plan, done *command.Committed) error {
	stale := map[cluster.JobID]bool{}
	for _, s := range done.Stale {
		stale[s.Job] = true
	}
	late := time.Second + plan.Leeway // a controller wakes up in time by its own clock
	if x.Faults.Clock > 0 {
		late += 2 * maxSkew
	}
	now := x.State.Peek().Now().Add(-late)
	for i := range p.Starts {
		at, known := x.ResultOf[p.Starts[i].Job]
		if !known || stale[p.Starts[i].Job] {
			continue
		}
		res := &x.Results[at]
		if !res.Waited {
			res.Planned, res.Promise = x.Now, x.Now
		}
		if res.LatestPromise > 0 && now > res.LatestPromise && res.Broken == "" {
			return violation("job %d starts more than %s after its promise, %s, without a cause", res.ID, late, res.LatestPromise.Time())
		}
	}
	for i := range p.Verdicts {
		if at, known := x.ResultOf[p.Verdicts[i].Job]; known && x.Results[at].Broken == sim.UnnamedCause {
			return violation("the promise to job %d was delayed to %s without a cause", p.Verdicts[i].Job, x.Results[at].LatestPromise.Time())
		}
	}
	return nil
}

// Before appends a command to the log of the leader.
func (x *faultSim) Before(index uint64, at cluster.Instant, c command.Command) {
	x.leader.log = append(x.leader.log, logged{index, at, command.Encode(c)})
}

// After audits a command, and sends the changes to the nodes.
func (x *faultSim) After(c command.Command, r command.Result, e *state.Effects) error {
	if err := x.audit.after(c, r, e); err != nil {
		return err
	}
	for i := range e.Changed {
		if ch := &e.Changed[i]; ch.Kind == state.JobChanged && ch.New != nil {
			x.record(c, ch.Old, ch.New)
		}
	}
	return nil
}

// total sums up the books at the end.
func (x *faultSim) total() {
	if len(x.Prices) == 0 {
		return
	}
	var granted, charged, refunded, held, debt, expired, voided int64
	for _, p := range x.audit.book.Buckets {
		granted, held, expired, voided = granted+p.Amount, held+p.Held, expired+p.Expired, voided+p.Void
	}
	for _, b := range x.audit.book.Bills {
		charged, refunded = charged+b.Captured+b.Overshot, refunded+b.Returned
	}
	for _, s := range x.audit.book.Payers {
		debt += s.Debt
	}
	text := func(amount int64) string { return accounting.Credits(amount).String() }
	x.summary.Credits = &sim.Money{
		Granted: text(granted), Charged: text(charged), Refunded: text(refunded), Held: text(held), Debt: text(debt), Expired: text(expired), Voided: text(voided),
	}
}
