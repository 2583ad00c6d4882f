package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrViolation is wrapped by the error of a replay in which something did not hold that
// always must. What it says names the command, and with the same input and seed it happens
// again.
var ErrViolation = errors.New("violation")

// Trials is what a workload goes through beside its own ends.
type Trials struct {
	Faults faults.Mix
	Seed   uint64
	// Every is after how many commands everything is recomputed: the state's own
	// invariants, and all balances from the journal. What one command changes is looked at
	// after each.
	Every int
	// Prices of a GPU-hour by type of GPU, "" for all others; empty where jobs cost nothing.
	// Grant is what each account of the workload begins with.
	Prices map[string]accounting.Credits
	Grant  accounting.Credits
}

// faultSim is a workload under way on a cluster in which things go wrong. The machines and
// what runs on them are as real as the simulation gets; the state knows of them only what
// messages say, which are late, lost, or come twice.
type faultSim struct {
	*replay
	*Trials
	dice      *faults.Streams
	hosts     map[string]*host
	names     []string // of hosts, in order
	agenda    heap.Heap[event]
	turn      uint64
	begun     map[attemptOn]bool // each attempt begins on a node once
	specs     map[specKey]*cluster.JobSpec
	accounts  []string
	leader    leader
	audit     *audit
	told      FaultSummary
	keys      uint64 // of requests
	repeating bool   // the present command comes a second time
	last      *asked // the last one
	quiet     cluster.Instant
	rates     []string // GPU types that have a price
}

// runWithFaults is Replay with trials.
func runWithFaults(f *Machine, policy *cluster.Policy, jobs []Job, o Options) (*Outcome, error) {
	x, err := newOrdeal(f, policy, jobs, o)
	if err == nil {
		err = x.run()
	}
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w", o.Trials.Seed, err)
	}
	out := x.outcome(f)
	out.Trouble = &x.told
	return out, nil
}

// newOrdeal is a workload before it begins.
func newOrdeal(f *Machine, policy *cluster.Policy, jobs []Job, o Options) (*faultSim, error) {
	p := *policy
	p.Credits.On = len(o.Trials.Prices) > 0
	if err := preempting(&p, o.Trials.Faults.Preempt); err != nil {
		return nil, err
	}
	v := over(state.New(), epoch, false) // the audit checks
	if err := v.assemble(f, &p); err != nil {
		return nil, err
	}
	r := newReplay(v, jobs, o)
	x := &faultSim{
		agenda: newAgenda(),
		replay: r, Trials: o.Trials, dice: faults.NewDice(o.Trials.Seed), hosts: map[string]*host{},
		begun: map[attemptOn]bool{}, specs: map[specKey]*cluster.JobSpec{}, told: FaultSummary{Seed: o.Trials.Seed, Mix: o.Trials.Faults.String(), Faults: map[string]int{}},
	}
	for i := range f.Nodes {
		n := f.Nodes[i]
		x.names = append(x.names, n.Name)
		x.hosts[n.Name] = &host{node: n, epoch: v.epochs[n.Name], runs: true, heard: true, tasks: map[attemptID]*onHost{}}
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
				return fmt.Errorf("%w: no qos is above %s, whose jobs could be preempted", ErrRefused, top)
			}
			q.PreemptMode = max(q.PreemptMode, cluster.PreemptRequeue)
		case top:
			q.Preempts, q.Open = append(slices.Clone(q.Preempts), p.DefaultQOS), true
		}
	}
	return nil
}

// prepare makes accounts, prices and grants, and says when the first faults happen.
func (x *faultSim) prepare(f *Machine) error {
	x.leader.term = 1
	if err := x.leader.save(x.state); err != nil {
		return err
	}
	x.audit = newAudit(x)
	x.witness = x
	if err := x.open(f); err != nil {
		return err
	}
	x.forecast()
	return nil
}

// event is something that will happen.
type event struct {
	at   cluster.Instant
	turn uint64
	do   func() error
}

// newAgenda returns an empty heap of events by instant, equal ones in the order of their creation.
func newAgenda() heap.Heap[event] {
	return heap.New(func(a, b *event) bool { return a.at < b.at || a.at == b.at && a.turn < b.turn })
}

// in puts something on the agenda.
func (x *faultSim) in(d time.Duration, do func() error) {
	x.turn++
	x.agenda.Push(event{x.now.Add(d), x.turn, do})
}

// patience is how long nothing starts, ends or is submitted before those that still wait
// are taken to wait for ever.
const patience = 14 * 24 * time.Hour

// run goes from instant to instant at which something happens, until all jobs are over and
// no bill can change any more.
func (x *faultSim) run() error {
	x.quiet = x.now
	for {
		at := x.soonest()
		if at == cluster.Never {
			break
		}
		x.now = max(at, x.now)
		if err := x.happen(); err != nil {
			return err
		}
		if err := x.passes(); err != nil {
			return err
		}
		x.progress()
	}
	if err := x.elect(); err != nil {
		return err
	}
	x.total()
	for j := range x.state.View().Jobs(0) {
		if j.State.Holds() {
			return violation("job %d is %s for ever", j.ID, j.State)
		}
	}
	return errors.Join(x.audit.everything(), x.leftovers())
}

// soonest is the next instant at which something happens; never when all is over.
func (x *faultSim) soonest() cluster.Instant {
	at := cluster.Never
	if x.next < len(x.jobs) {
		at = max(x.jobs[x.next].Submit, x.now)
	}
	view := x.state.Peek()
	if at == cluster.Never && (len(x.of) == 0 || x.now.Sub(x.quiet) > patience) && x.settled() {
		return at
	}
	if x.agenda.Len() > 0 {
		at = min(at, x.agenda.Items()[0].at)
	}
	if len(x.of) > 0 && x.wake < cluster.Never {
		at = min(at, max(x.wake.Add(-x.skew), x.now.Add(time.Second)))
	}
	if due := view.NextDue(); due < cluster.Never {
		at = min(at, max(due.Add(-x.skew), x.now.Add(time.Millisecond)))
	}
	return at
}

// settled reports whether no bill waits for nodes that may come back.
func (x *faultSim) settled() bool {
	_, _, waits := x.state.Peek().Credits().OldestProvisional()
	return !waits
}

// happen is all that happens at an instant.
func (x *faultSim) happen() error {
	for x.agenda.Len() > 0 && x.agenda.Items()[0].at <= x.now {
		if err := x.agenda.Pop().do(); err != nil {
			return err
		}
	}
	if due := x.state.Peek().NextDue(); due <= max(x.now.Add(x.skew), x.state.Peek().Now()) {
		if err := x.must(&command.Tick{}); err != nil {
			return err
		}
	}
	for ; x.next < len(x.jobs) && x.jobs[x.next].Submit <= x.now; x.next++ {
		if err := x.submit(x.next); err != nil {
			return err
		}
	}
	return nil
}

// passes makes passes until the scheduler has seen everything; none while nobody waits.
func (x *faultSim) passes() error {
	for range morePasses {
		if x.state.Peek().Counts().ByState[cluster.Pending] == 0 {
			x.wake = cluster.Never
			return nil
		}
		d, done, err := x.pass()
		if err != nil {
			return err
		}
		x.listen(&d.Plan)
		x.leader.plan = &d.Plan
		if err := x.kept(&d.Plan, done); err != nil {
			return err
		}
		x.wake = d.Wake
		if !d.More && len(done.Stale) == 0 && len(d.Plan.Evictions) == 0 {
			return nil
		}
	}
	return nil
}

// kept compares a plan with what was promised before: no promise is broken without a cause.
func (x *faultSim) kept(p *cluster.Plan, done *command.Committed) error {
	stale := map[cluster.JobID]bool{}
	for _, s := range done.Stale {
		stale[s.Job] = true
	}
	late := time.Second + plan.Leeway // a controller wakes up in time, as far as its clock says
	if x.Faults.Clock > 0 {
		late += 2 * mostSkew
	}
	now := x.state.Peek().Now().Add(-late)
	for i := range p.Starts {
		at, known := x.of[p.Starts[i].Job]
		if !known || stale[p.Starts[i].Job] {
			continue
		}
		res := &x.results[at]
		if !res.waited {
			res.Planned, res.Promise = x.now, x.now
		}
		if res.promised > 0 && now > res.promised && res.Broken == "" {
			return violation("job %d starts more than %s after %s, which was promised, and no cause was named", res.ID, late, res.promised.Time())
		}
	}
	for i := range p.Verdicts {
		if at, known := x.of[p.Verdicts[i].Job]; known && x.results[at].Broken == unnamed {
			return violation("the promise to job %d was put off to %s, and no cause was named", p.Verdicts[i].Job, x.results[at].promised.Time())
		}
	}
	return nil
}

// before keeps each command as the log would.
func (x *faultSim) before(index uint64, at cluster.Instant, c command.Command) {
	x.leader.log = append(x.leader.log, logged{index, at, command.Encode(c)})
}

// after audits a command, and lets the nodes hear of it.
func (x *faultSim) after(c command.Command, r command.Result, e *state.Effects) error {
	if err := x.audit.after(c, r, e); err != nil {
		return err
	}
	for i := range e.Changed {
		if ch := &e.Changed[i]; ch.Kind == state.JobChanged && ch.New != nil {
			x.see(c, ch.Old, ch.New)
		}
	}
	return nil
}
