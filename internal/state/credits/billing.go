package credits

import (
	"errors"
	"time"

	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// OpenLien returns the open lien of a job's attempt, if it has one.
func (x *Credits) OpenLien(job cluster.JobID, attempt cluster.Attempt) (accounting.Lien, bool) {
	n, found := x.ledger.Lien(accounting.LienID{Job: job, Attempt: attempt})
	return n, found && n.State == accounting.Open
}

// StartBilling begins to charge an attempt that starts now. granted returns the GPUs of its
// allocation.
func (x *Credits) StartBilling(e *Env, j *cluster.Job, granted func(*cluster.Job) []accounting.GPUs) {
	n, held := x.OpenLien(j.ID, j.Attempt)
	if !held {
		return
	}
	on := granted(j)
	if len(on) == 0 || !e.Policy.Credits.Charges(j.Partition) { // it got nodes without GPUs, or a partition without charge
		if _, err := x.ledger.Withdraw(logStamp(e.Now), n.ID); err != nil {
			x.fault("job %s: withdraw: %w", j.ID, err)
		}
		return
	}
	if _, err := x.ledger.StartBilling(logStamp(e.Now), n.ID, on...); err != nil {
		x.fault("job %s: dispatch: %w", j.ID, err)
	}
}

// ResizeBilling charges an attempt for other GPUs from now on, and for those that it had until now: without the time that
// some of these cannot confirm.
func (x *Credits) ResizeBilling(e *Env, j *cluster.Job, on []accounting.GPUs, unconfirmed int64) {
	n, held := x.OpenLien(j.ID, j.Attempt)
	last := len(n.Segments) - 1
	if !held || last < 0 || len(on) == 0 {
		return
	}
	g := &n.Segments[last]
	elapsed := e.Now.Sub(g.Since)
	confirmed := min(elapsed, time.Duration((g.Base+g.Count)/g.GPUs)*time.Millisecond) // by all nodes
	unconfirmed = min(unconfirmed, g.GPUs)
	had := accounting.Millis(g.GPUs-unconfirmed, elapsed) + accounting.Millis(unconfirmed, confirmed)
	x.ledger.Meter(e.Now, []accounting.Sample{{Lien: n.ID, Segment: last, Epoch: g.Epoch + 1, Number: 1, Count: max(0, had-g.Base-g.Count)}})
	if _, err := x.ledger.StartBilling(logStamp(e.Now), n.ID, on...); err != nil {
		x.fault("job %s: resize: %w", j.ID, err)
	}
}

// SegmentsLeft returns how often the GPUs of an attempt, or its part of one, may still change; 0 if it is not charged.
func (x *Credits) SegmentsLeft(j *cluster.Job) int {
	n, held := x.OpenLien(j.ID, j.Attempt)
	if !held || len(n.Segments) == 0 {
		return 0
	}
	return cluster.MaxResizes + 1 - len(n.Segments)
}

// Bill charges an attempt whose nodes are all clean for its interval in the log, at the quoted
// price, releases the rest of its lien, and returns the charge. The time between its end and the
// log entry of that end is not charged. Time that lost nodes cannot confirm is not charged either,
// unless they return within a day. Work that a fault of the cluster destroyed is refunded: what the
// attempt did since its last checkpoint.
func (x *Credits) Bill(e *Env, j *cluster.Job) accounting.Credits {
	n, held := x.OpenLien(j.ID, j.Attempt)
	if !held {
		return 0
	}
	ran := billableTime(j, &n)
	if limit := j.Spec.TimeLimit; limit > 0 { // what was quoted, however late the log learns of the end
		ran = min(ran, limit)
	}
	bill := accounting.Settlement{Lien: n.ID}
	var lost []string
	if last := len(n.Segments) - 1; last >= 0 {
		g := &n.Segments[last]
		ran = max(0, ran-billedBefore(j, &n)) // on the GPUs of the last segment
		bill.Total = accounting.Millis(g.GPUs, ran)
		if lost = lostNodes(j); len(lost) > 0 {
			bill.Total = min(bill.Total, g.Base+g.Count)
			bill.Provisional = !j.Returns
		}
	}
	if _, err := x.ledger.Settle(logStamp(e.Now), bill); err != nil {
		x.fault("job %s: settle: %w", j.ID, err)
		return 0
	}
	left := x.refundFault(e, j, n.ID)
	if bill.Provisional {
		x.bills.Set(n.ID, &ProvisionalBill{lost, ran, left, j.Saved(), j.Granted, j.Detail})
	}
	settled, _ := x.ledger.Lien(n.ID)
	return settled.Paid() // including hourly charges
}

// billedBefore returns for how long an attempt was charged in earlier segments of its lien: until its nodes changed last.
func billedBefore(j *cluster.Job, n *accounting.Lien) time.Duration {
	if last := len(n.Segments) - 1; last > 0 {
		return max(0, n.Segments[last].Since.Sub(j.Started))
	}
	return 0
}

// maxReportDelay is the longest delay between the end of an attempt on a node and its log entry that is
// still billed. Messages, a new leader and a restarted daemon take less.
const maxReportDelay = time.Minute

// billableTime returns how long an attempt had its GPUs: its interval in the log. If the nodes of
// its script counted less, because the report of its end was delayed, it returns their count, but
// at least the time in the log while it ran. An attempt that never began on its nodes costs
// nothing.
func billableTime(j *cluster.Job, n *accounting.Lien) time.Duration {
	interval := j.Ended.Sub(j.Started)
	if (j.Outcome == cluster.NodeFailed || j.Reason == cluster.ReasonCheckpoint || j.Reason == cluster.ReasonCredentialsRefused) && !begun(j) {
		return 0
	}
	had := nodesCounted(j)
	if had <= 0 && !declined(j) { // unknown
		return interval
	}
	if last := len(n.Segments) - 1; last >= 0 {
		g := &n.Segments[last]
		had = max(had, billedBefore(j, n)+time.Duration((g.Base+g.Count)/g.GPUs)*time.Millisecond)
	}
	if interval-had <= maxReportDelay {
		return interval
	}
	return had
}

// begun reports whether a job's script began on a node, or may have begun: for a lost task this is
// unknown. A task that only keeps its node for the script always counts as begun.
func begun(j *cluster.Job) bool {
	for i, t := range j.Tasks.All() {
		if t.Cause == cluster.TaskLost || t.Started > 0 && (i == 0 || j.Spec.EveryNode) {
			return true
		}
	}
	return false
}

// declined reports whether the nodes of a job's script were ordered to stop it before they received
// it.
func declined(j *cluster.Job) bool {
	for i, t := range j.Tasks.All() {
		if (i == 0 || j.Spec.EveryNode) && (t.Cause != cluster.Stopped || t.Started > 0) {
			return false
		}
	}
	return true
}

// nodesCounted returns how long the nodes of a job's script ran it by their own count: the maximum
// over the nodes, or zero if none counted. A restarted daemon counts from its restart, and the
// record of a task's end from the task's start, so each count may be too short.
func nodesCounted(j *cluster.Job) (longest time.Duration) {
	for i, t := range j.Tasks.All() {
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

// refundFault refunds the last part of an attempt that a fault or a preemption destroyed, since its
// last checkpoint. It returns the time that a later charge would also refund.
func (x *Credits) refundFault(e *Env, j *cluster.Job, id accounting.LienID) (left time.Duration) {
	if !isRefundable(j) {
		return 0
	}
	most := e.Policy.Credits.FaultRefund
	n, _ := x.ledger.Lien(id)
	lasted, _ := n.Latest(j.Saved(), most)
	x.refundLast(e.Now, &n, j.Saved(), most, j.Detail)
	return most - lasted
}

// refundLast refunds the charge for the last part of a bill since an instant, except what was refunded before. The note
// of the entry is the cause.
func (x *Credits) refundLast(now cluster.Instant, n *accounting.Lien, since cluster.Instant, part time.Duration, cause string) {
	_, cost := n.Latest(since, part)
	amount := min(cost, n.Paid())
	if amount <= 0 {
		return
	}
	stamp := logStamp(now)
	stamp.Note = cause
	if _, err := x.ledger.Refund(stamp, accounting.Refund{Lien: n.ID, Amount: amount}); err != nil {
		x.fault("lien %s: refund: %w", n.ID, err)
	}
}

// isRefundable reports whether the end of an attempt was not caused by its user.
func isRefundable(j *cluster.Job) bool {
	return j.Outcome == cluster.NodeFailed || j.Outcome == cluster.Preempted && j.Requester != j.Spec.Owner.User
}

// Withdraw releases the lien of a job that will not start, or not as requested.
func (x *Credits) Withdraw(now cluster.Instant, j *cluster.Job) {
	n, held := x.OpenLien(j.ID, j.Attempt+1)
	if !held {
		return
	}
	_, err := x.ledger.Withdraw(logStamp(now), n.ID)
	if errors.Is(err, accounting.ErrLien) { // charged manually: it is kept
		_, err = x.ledger.Settle(logStamp(now), accounting.Settlement{Lien: n.ID})
	}
	if err != nil {
		x.fault("job %s: withdraw: %w", j.ID, err)
	}
}
