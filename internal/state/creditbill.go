package state

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// lienOf is the lien of a job's attempt, if it is open.
func (s *State) lienOf(job cluster.JobID, attempt cluster.Attempt) (accounting.Lien, bool) {
	if s.credits == nil {
		return accounting.Lien{}, false
	}
	n, found := s.credits.Lien(accounting.LienID{Job: job, Attempt: attempt})
	return n, found && n.State == accounting.Open
}

// dispatch begins to charge an attempt that starts now.
func (s *State) dispatch(j *cluster.Job) {
	n, held := s.lienOf(j.ID, j.Attempt)
	if !held {
		return
	}
	on := s.granted(j)
	if len(on) == 0 || !s.policy.Credits.Charges(j.Partition) { // it got nodes without GPUs, or a partition that is for free
		if _, err := s.credits.Withdraw(s.natural(), n.ID); err != nil {
			s.fault("job %s: withdraw: %w", j.ID, err)
		}
		return
	}
	_, err := s.credits.Dispatch(s.natural(), n.ID, on...)
	if err != nil {
		s.fault("job %s: dispatch: %w", j.ID, err)
	}
}

// granted is the GPUs that a job was given, or keeps others from, by type.
func (s *State) granted(j *cluster.Job) (all []accounting.GPUs) {
	for _, a := range j.Alloc.Nodes {
		n, known := s.nodes.Get(a.Node)
		if !known {
			continue
		}
		for i := range n.GPUs {
			if j.Spec.Request.Exclusive || slices.Contains(a.GPUs, int32(i)) {
				all = withGPU(all, n.GPUs[i].Type)
			}
		}
	}
	slices.SortFunc(all, func(a, b accounting.GPUs) int { return cmp.Compare(a.Type, b.Type) })
	return all
}

// unpaidType says why a placement is on GPUs that are not paid for: of a type that came
// after the job, of which buckets know nothing. Credits are set aside anew then.
func (s *State) unpaidType(p *cluster.PlannedStart) string {
	old, _ := s.pending.Get(p.Job)
	n, held := s.lienOf(old.ID, old.Attempt+1)
	if !held || !s.policy.Credits.Charges(s.partitionOf(old, p)) {
		return ""
	}
	j := *old
	j.Alloc = &cluster.Allocation{Nodes: p.Placement.Nodes}
	for _, g := range s.granted(&j) {
		if s.credits.PaysFor(&n, g.Type) {
			continue
		}
		j.Alloc = nil
		s.unreserve(old)
		s.fund(&j)
		s.put(old, &j)
		return "what was set aside for the job does not pay for GPUs of type " + g.Type
	}
	return ""
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

// bill charges an attempt whose nodes are all clean: its interval in the log at the
// price that was quoted, and gives back the rest. What nodes that were lost cannot
// vouch for is not charged, unless they come back within a day; what a fault of the
// cluster destroyed is given back.
func (s *State) bill(j *cluster.Job) {
	n, held := s.lienOf(j.ID, j.Attempt)
	if !held {
		return
	}
	ran := payable(j, j.Ended.Sub(j.Started))
	x := accounting.Settlement{Lien: n.ID}
	var lost []string
	if last := len(n.Segments) - 1; last >= 0 {
		g := &n.Segments[last]
		x.Total = accounting.Millis(g.GPUs, ran)
		if lost = lostNodes(j); len(lost) > 0 {
			x.Total = min(x.Total, g.Base+g.Count)
			x.Provisional = !j.Returns
		}
	}
	if _, err := s.credits.Settle(s.natural(), x); err != nil {
		s.fault("job %s: settle: %w", j.ID, err)
		return
	}
	left := s.forgiveFault(j, n.ID)
	settled, _ := s.credits.Lien(n.ID)
	j.Charged += int64(settled.Paid()) // with what was charged by the hour
	if x.Provisional {
		s.putUnproven(n.ID, &unproven{lost, ran, left})
	}
}

// payable is how long an attempt is paid for: not beyond its limit, which is what was
// quoted, however late the log hears of its end.
func payable(j *cluster.Job, ran time.Duration) time.Duration {
	if limit := j.Spec.TimeLimit; limit > 0 {
		return min(ran, limit)
	}
	return ran
}

// forgiveFault gives back what a fault or a preemption destroyed of the work: what was
// charged for the last of it. It answers for how much more of it it would give back if more
// had been charged.
func (s *State) forgiveFault(j *cluster.Job, id accounting.LienID) (left time.Duration) {
	if !s.excused(j) {
		return 0
	}
	most := s.policy.Credits.FaultRefund
	n, _ := s.credits.Lien(id)
	lasted, _ := n.Latest(most)
	s.giveBackLast(&n, most)
	return most - lasted
}

// giveBackLast refunds what the last part of a bill was charged, as far as it was not
// given back before.
func (s *State) giveBackLast(n *accounting.Lien, part time.Duration) {
	_, cost := n.Latest(part)
	amount := min(cost, n.Paid())
	if amount <= 0 {
		return
	}
	if _, err := s.credits.Refund(s.natural(), accounting.Refund{Lien: n.ID, Amount: amount}); err != nil {
		s.fault("lien %s: refund: %w", n.ID, err)
	}
}

// excused reports whether the end of an attempt was none of its user's doing.
func (s *State) excused(j *cluster.Job) bool {
	return j.Outcome == cluster.NodeFailed || j.Outcome == cluster.Preempted && j.Requester != j.Spec.Owner.User
}

// unreserve gives back what was set aside for a job that will not start, or not as it
// was asked for.
func (s *State) unreserve(j *cluster.Job) {
	n, held := s.lienOf(j.ID, j.Attempt+1)
	if !held {
		return
	}
	_, err := s.credits.Withdraw(s.natural(), n.ID)
	if errors.Is(err, accounting.ErrLien) { // charged by hand: it stays on record
		_, err = s.credits.Settle(s.natural(), accounting.Settlement{Lien: n.ID})
	}
	if err != nil {
		s.fault("job %s: withdraw: %w", j.ID, err)
	}
}
