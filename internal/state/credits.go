package state

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/credits"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// env returns what decisions about credits depend on. Its partition index is nil after a change of
// nodes or policy.
func (s *State) env() *credits.Env {
	return &credits.Env{Index: s.index, Now: s.now, Policy: s.policy, Accounts: &s.accounts, Partitions: s.partitions}
}

// reserve sets credits aside for the first attempts of jobs that are about to be stored: for all of
// them, or for none.
func (s *State) reserve(jobs []accepted, answer *command.Submitted) *command.Refusal {
	return s.credits.Reserve(s.env(), s.jobTables.next, func(yield func(*cluster.JobSpec, int) bool) {
		for _, a := range jobs {
			if !yield(a.spec, max(1, len(a.all))) {
				return
			}
		}
	}, answer)
}

// fund sets credits aside for the next attempt of a pending job, a value that is not shared yet, or
// holds the job until there are enough. It returns the reason and the ledger's error.
func (s *State) fund(j *cluster.Job) (*command.Refusal, error) {
	if s.policy.Credits.On {
		s.rebuildPartitionIndex()
	}
	refusal, err := s.credits.Fund(s.env(), j)
	switch {
	case refusal != nil:
		j.Hold, j.Reason, j.Detail, j.Planned = cluster.HeldForCredits, cluster.ReasonCredits, refusal.Message, 0
		if j.Promise != nil { // else the hold costs no record of its own
			s.recordHold(j)
		}
	case j.Hold == cluster.HeldForCredits:
		j.Hold, j.Reason, j.Detail = cluster.NotHeld, cluster.ReasonNone, ""
		if j.Eligible > s.now {
			j.Reason = cluster.ReasonBeginTime
		}
	}
	return refusal, err
}

// Limits of what one command does for jobs that wait for credits; the next commands, and a tick
// each second, do the rest. fundAtOnce bounds the jobs, maxFailedTurns the turns without a funded
// job.
const (
	fundAtOnce     = 1000
	maxFailedTurns = 4
	maxFailedTick  = 250
)

// fundHeld gives turns to payers whose jobs wait for credits, if something became free for them
// since the command of an earlier time. O(turns log n).
func (s *State) fundHeld(before cluster.Instant, maxFailed int) {
	s.credits.UnblockFreed(s.env(), before)
	for tries, failed := 0, 0; tries < fundAtOnce && failed < maxFailed; {
		turn, found := s.credits.NextTurn(s.env())
		if !found {
			return
		}
		for _, id := range turn.Jobs {
			old, _ := s.pending.Get(id)
			j := *old
			refusal, err := s.fund(&j)
			if j.Hold != old.Hold || j.Detail != old.Detail {
				s.put(old, &j)
			}
			if turn.Over(s.env(), j.Spec, refusal, err) {
				break
			}
		}
		s.credits.EndTurn(s.env(), &turn)
		if tries += turn.Funded + turn.Failed; turn.Funded == 0 {
			failed++
		}
	}
}

// renewLien replaces a lien that does not cover the GPUs of a placement, and then returns why the
// start is refused. This happens if the type of a GPU was added after the job was submitted.
func (s *State) renewLien(p *cluster.PlannedStart) string {
	old, _ := s.pending.Get(p.Job)
	n, open := s.credits.OpenLien(old.ID, old.Attempt+1)
	if !open || !s.policy.Credits.Charges(s.partitionOf(old, p)) {
		return ""
	}
	j := *old
	j.Alloc = &cluster.Allocation{Nodes: p.Placement.Nodes}
	for _, g := range s.granted(&j) {
		if s.credits.Ledger().PaysFor(&n, g.Type) {
			continue
		}
		j.Alloc = nil
		s.credits.Withdraw(s.now, old)
		s.fund(&j)
		s.put(old, &j)
		return "the job's lien does not cover GPUs of type " + cluster.TypeOfPriced(g.Type)
	}
	return ""
}

// granted returns the GPUs that a job was given, or keeps others from, by the names under which they are charged.
func (x *nodeTables) granted(j *cluster.Job) (all []accounting.GPUs) {
	for _, a := range j.Alloc.Nodes {
		n, known := x.nodes.Get(a.Node)
		if !known {
			continue
		}
		for i := range n.GPUs {
			if slices.Contains(a.GPUs, int32(i)) || j.Spec.Request.Exclusive && n.GPUs[i].Fault == "" {
				all = withGPU(all, cluster.PricedShare(n.GPUs[i].PricedType(), x.sharers(j)))
			}
		}
	}
	slices.SortFunc(all, func(a, b accounting.GPUs) int { return cmp.Compare(a.Type, b.Type) })
	return all
}

// sharers returns the number of jobs on the GPU that a job with an allocation shares, itself included; 1 if it shares none.
func (x *nodeTables) sharers(j *cluster.Job) int32 {
	if !j.Spec.Request.Share.On() || len(j.Alloc.Nodes) != 1 || len(j.Alloc.Nodes[0].GPUs) != 1 {
		return 1
	}
	a := &j.Alloc.Nodes[0]
	n := int32(0)
	if u, used := x.uses.Get(a.Node); used {
		if g := u.SharedGPU(a.GPUs[0]); g != nil {
			n = g.Jobs
		}
	}
	if _, counted := x.onNode.Get(nodeJob{a.Node, j.ID}); !counted {
		n++
	}
	return n
}

// followSharers charges the running jobs on the GPU that a job shares for their present parts of it, after that job has
// started there or ended. The bill of a job has a bounded number of parts: its last one is for the whole GPU.
// O(jobs of the node).
func (s *State) followSharers(j *cluster.Job) {
	if !j.Spec.Request.Share.On() {
		return
	}
	at := &j.Alloc.Nodes[0]
	for k := range s.onNode.From(nodeJob{at.Node, 0}) {
		if k.node != at.Node {
			break
		}
		other, _ := s.holding.Get(k.id)
		if k.id == j.ID || other == nil || !other.Spec.Request.Share.On() || !slices.Equal(other.Alloc.Nodes[0].GPUs, at.GPUs) ||
			other.State != cluster.Running && other.State != cluster.Configuring {
			continue
		}
		s.accounts.End(s.now, other.ID)
		s.chargeUsage(other)
		left := s.credits.SegmentsLeft(other)
		on := s.granted(other)
		if left == 1 {
			on[0].Type = cluster.TypeOfPriced(on[0].Type)
		}
		if left > 0 {
			s.credits.ResizeBilling(s.env(), other, on, s.unconfirmed(other, other, false))
		}
	}
}

// unconfirmed returns how many GPUs of an elastic job whose nodes change cannot confirm that they worked until now: those
// of nodes that do not respond, and of a node that has left it and is lost.
func (s *State) unconfirmed(old, j *cluster.Job, lost bool) (gpus int64) {
	sum := func(job *cluster.Job, sign int64) {
		for _, x := range s.granted(job) {
			gpus += sign * x.Count
		}
	}
	if lost {
		sum(old, 1)
		sum(j, -1)
	}
	silent := *j
	silent.Alloc = &cluster.Allocation{}
	for _, a := range j.Alloc.Nodes {
		if n, known := s.nodes.Get(a.Node); known && n.Liveness != cluster.Alive {
			silent.Alloc.Nodes = append(silent.Alloc.Nodes, a)
		}
	}
	sum(&silent, 1)
	return gpus
}

// instances counts the MIG instances among the GPUs that a job was given, by the names under which they are charged.
func (x *nodeTables) instances(j *cluster.Job) (all []cluster.Amount) {
	if !slices.ContainsFunc(j.TRES, func(a cluster.Amount) bool {
		name, typed := cluster.GPUTypeOf(a.Resource)
		return typed && cluster.IsMIGProfile(name)
	}) {
		return nil
	}
	for _, g := range x.granted(j) {
		if g.Type != cluster.TypeOfPriced(g.Type) {
			all = append(all, cluster.Amount{Resource: g.Type, Count: g.Count})
		}
	}
	return all
}

// withGPU adds a GPU of a type.
func withGPU(all []accounting.GPUs, kind string) []accounting.GPUs {
	for i := range all {
		if all[i].Type == kind {
			all[i].Count++
			return all
		}
	}
	return append(all, accounting.GPUs{Type: kind, Count: 1})
}

// changeCredits makes one change of credits.
func (s *State) changeCredits(c *command.ChangeCredits) command.Result {
	r := s.credits.Change(s.env(), c)
	if done, is := r.(*command.Credited); is && !done.Again {
		s.effects.Changed = append(s.effects.Changed, Change{Kind: PolicyChanged})
	}
	return r
}

// maxSamples bounds the samples of one command.
const maxSamples = 100_000

// meterJobs records how long attempts have run as their nodes count. A job whose credits run out
// gets its signal, and ends when nothing is left. O(samples log n).
func (s *State) meterJobs(c *command.MeterJobs) command.Result {
	if len(c.Samples) > maxSamples {
		return command.Refusef(command.InvalidArgument, "%d samples, at most %d", len(c.Samples), maxSamples)
	}
	for i := range c.Samples {
		old, _ := s.holding.Get(c.Samples[i].Job)
		warn, end := s.credits.Meter(s.env(), &c.Samples[i], old)
		if !warn && end == nil {
			continue
		}
		j := *old
		if warn {
			s.askToSave(&j)
			j.Warned = true
		} else {
			s.end(&j, ending{outcome: cluster.TimedOut, reason: cluster.ReasonCredits, detail: command.OneLine(end)})
			s.settle(&j)
		}
		s.put(old, &j)
	}
	return &command.Done{Version: s.index}
}

// Credits returns the ledger of the view, which must not be written. O(1).
func (v *View) Credits() *accounting.Ledger { return v.credits.Ledger() }

// PaidIn returns the partitions in which a pending job is paid for, and may start; nil if those are
// all that it lists. O(log n).
func (v *View) PaidIn(j *cluster.Job) []string { return v.credits.PartitionsOf(j) }
