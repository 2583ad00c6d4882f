package state

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// lienOf returns the open lien of a job's attempt, if it has one.
func (s *State) lienOf(job cluster.JobID, attempt cluster.Attempt) (accounting.Lien, bool) {
	n, found := s.credits.Lien(accounting.LienID{Job: job, Attempt: attempt})
	return n, found && n.State == accounting.Open
}

// startBilling begins to charge an attempt that starts now.
func (s *State) startBilling(j *cluster.Job) {
	n, held := s.lienOf(j.ID, j.Attempt)
	if !held {
		return
	}
	on := s.granted(j)
	if len(on) == 0 || !s.policy.Credits.Charges(j.Partition) { // it got nodes without GPUs, or a partition without charge
		if _, err := s.credits.Withdraw(s.logStamp(), n.ID); err != nil {
			s.fault("job %s: withdraw: %w", j.ID, err)
		}
		return
	}
	_, err := s.credits.Dispatch(s.logStamp(), n.ID, on...)
	if err != nil {
		s.fault("job %s: dispatch: %w", j.ID, err)
	}
}

// granted returns the number of GPUs by type that a job was given, or keeps from other jobs.
func (s *State) granted(j *cluster.Job) (all []accounting.GPUs) {
	for _, a := range j.Alloc.Nodes {
		n, known := s.nodes.Get(a.Node)
		if !known {
			continue
		}
		for i := range n.GPUs {
			if slices.Contains(a.GPUs, int32(i)) || j.Spec.Request.Exclusive && n.GPUs[i].Fault == "" {
				all = withGPU(all, n.GPUs[i].Type)
			}
		}
	}
	slices.SortFunc(all, func(a, b accounting.GPUs) int { return cmp.Compare(a.Type, b.Type) })
	return all
}

// unpaidType returns why a placement uses GPUs that the lien does not cover: their type was added
// after the job, so no bucket was checked for it. A new lien is placed then.
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
		s.withdrawLien(old)
		s.fund(&j)
		s.put(old, &j)
		return "the job's lien does not cover GPUs of type " + g.Type
	}
	return ""
}

// withGPU adds one GPU of a type.
func withGPU(all []accounting.GPUs, kind string) []accounting.GPUs {
	for i := range all {
		if all[i].Type == kind {
			all[i].Count++
			return all
		}
	}
	return append(all, accounting.GPUs{Type: kind, Count: 1})
}

// bill charges an attempt whose nodes are all clean for its interval in the log, at the quoted
// price, and releases the rest of its lien. The time between its end and the log entry of that end
// is not charged. Time that lost nodes cannot confirm is not charged either, unless they return
// within a day. Work that a fault of the cluster destroyed is refunded.
func (s *State) bill(j *cluster.Job) {
	n, held := s.lienOf(j.ID, j.Attempt)
	if !held {
		return
	}
	ran := payable(j, s.billableTime(j, &n))
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
	if _, err := s.credits.Settle(s.logStamp(), x); err != nil {
		s.fault("job %s: settle: %w", j.ID, err)
		return
	}
	left := s.forgiveFault(j, n.ID)
	settled, _ := s.credits.Lien(n.ID)
	j.Charged += int64(settled.Paid()) // including hourly charges
	if x.Provisional {
		s.unproven.Set(n.ID, &provisionalBill{lost, ran, left, j.Granted})
	}
}

// tardy is the longest delay between the end of an attempt on a node and its log entry that is
// still billed. Messages, a new leader and a restarted daemon take less.
const tardy = time.Minute

// billableTime returns how long an attempt had its GPUs: its interval in the log. If the nodes of
// its script counted less, because the report of its end was delayed, it returns their count, but
// at least the time in the log while it ran. An attempt that never began on its nodes costs
// nothing.
func (s *State) billableTime(j *cluster.Job, n *accounting.Lien) time.Duration {
	interval := j.Ended.Sub(j.Started)
	if j.Outcome == cluster.NodeFailed && !begun(j) {
		return 0
	}
	had := nodesCounted(j)
	if had <= 0 && !declined(j) { // unknown
		return interval
	}
	if last := len(n.Segments) - 1; last >= 0 {
		g := &n.Segments[last]
		had = max(had, time.Duration((g.Base+g.Count)/g.GPUs)*time.Millisecond)
	}
	if interval-had <= tardy {
		return interval
	}
	return had
}

// begun reports whether a job's script began on a node, or may have begun: for a lost task this is
// unknown. A task that only keeps its node for the script always counts as begun.
func begun(j *cluster.Job) bool {
	for i := range j.Tasks {
		t := &j.Tasks[i]
		if t.Cause == cluster.TaskLost || t.Started > 0 && (i == 0 || j.Spec.EveryNode) {
			return true
		}
	}
	return false
}

// declined reports whether the nodes of a job's script were ordered to stop it before they received
// it.
func declined(j *cluster.Job) bool {
	for i := range j.Tasks {
		if t := &j.Tasks[i]; (i == 0 || j.Spec.EveryNode) && (t.Cause != cluster.Stopped || t.Started > 0) {
			return false
		}
	}
	return true
}

// nodesCounted returns how long the nodes of a job's script ran it by their own count: the maximum
// over the nodes, or zero if none counted. A restarted daemon counts from its restart, and the
// record of a task's end from the task's start, so each count may be too short.
func nodesCounted(j *cluster.Job) (longest time.Duration) {
	for i := range j.Tasks {
		t := &j.Tasks[i]
		if t.Cause == cluster.TaskLost || i > 0 && !j.Spec.EveryNode {
			continue
		}
		longest = max(longest, t.Ran)
		if t.Started > 0 {
			longest = max(longest, t.Ended.Sub(t.Started))
		}
	}
	return longest
}

// payable returns the billable part of an attempt: never more than its limit, which was quoted,
// however late the log records its end.
func payable(j *cluster.Job, ran time.Duration) time.Duration {
	if limit := j.Spec.TimeLimit; limit > 0 {
		return min(ran, limit)
	}
	return ran
}

// forgiveFault refunds the last part of an attempt that a fault or a preemption destroyed. It
// returns the time that a later charge would also refund.
func (s *State) forgiveFault(j *cluster.Job, id accounting.LienID) (left time.Duration) {
	if !s.isRefundable(j) {
		return 0
	}
	most := s.policy.Credits.FaultRefund
	n, _ := s.credits.Lien(id)
	lasted, _ := n.Latest(most)
	s.giveBackLast(&n, most)
	return most - lasted
}

// giveBackLast refunds the charge for the last part of a bill, except what was refunded before.
func (s *State) giveBackLast(n *accounting.Lien, part time.Duration) {
	_, cost := n.Latest(part)
	amount := min(cost, n.Paid())
	if amount <= 0 {
		return
	}
	if _, err := s.credits.Refund(s.logStamp(), accounting.Refund{Lien: n.ID, Amount: amount}); err != nil {
		s.fault("lien %s: refund: %w", n.ID, err)
	}
}

// isRefundable reports whether the end of an attempt was not caused by its user.
func (s *State) isRefundable(j *cluster.Job) bool {
	return j.Outcome == cluster.NodeFailed || j.Outcome == cluster.Preempted && j.Requester != j.Spec.Owner.User
}

// withdrawLien releases the lien of a job that will not start, or not as requested.
func (s *State) withdrawLien(j *cluster.Job) {
	n, held := s.lienOf(j.ID, j.Attempt+1)
	if !held {
		return
	}
	_, err := s.credits.Withdraw(s.logStamp(), n.ID)
	if errors.Is(err, accounting.ErrLien) { // charged manually: it is kept
		_, err = s.credits.Settle(s.logStamp(), accounting.Settlement{Lien: n.ID})
	}
	if err != nil {
		s.fault("job %s: withdraw: %w", j.ID, err)
	}
}
