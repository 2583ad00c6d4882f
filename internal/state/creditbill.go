package state

import (
	"cmp"
	"errors"
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
	kind, gpus := s.granted(j)
	if gpus == 0 {
		return
	}
	if !s.policy.Credits.Charges(j.Partition) { // of its partitions it got one that is for free
		if _, err := s.credits.Withdraw(s.natural(), n.ID); err != nil {
			s.fault("job %s: withdraw: %w", j.ID, err)
		}
		s.released = true
		return
	}
	_, err := s.credits.Dispatch(s.natural(), n.ID, kind, gpus)
	if errors.Is(err, accounting.ErrNoPrice) && len(n.Rates) > 0 { // a type that came since, and has no price yet
		_, err = s.credits.Dispatch(s.natural(), n.ID, n.Rates[0].GPUType, gpus)
	}
	if err != nil {
		s.fault("job %s: dispatch: %w", j.ID, err)
	}
}

// granted is the type and the number of the GPUs that a job was given, or keeps others
// from. Of several types it is the one of the first GPU: the lien covers the dearest.
func (s *State) granted(j *cluster.Job) (kind string, gpus int64) {
	for _, a := range j.Alloc.Nodes {
		had := len(a.GPUs)
		n, known := s.nodes.Get(a.Node)
		switch {
		case !known || len(n.GPUs) == 0:
		case j.Spec.Request.Exclusive:
			had = len(n.GPUs)
			kind = cmp.Or(kind, n.GPUs[0].Type)
		case had > 0 && int(a.GPUs[0]) < len(n.GPUs):
			kind = cmp.Or(kind, n.GPUs[a.GPUs[0]].Type)
		}
		gpus += int64(had)
	}
	return kind, gpus
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
	left := s.forgiveFault(j, n, ran)
	settled, _ := s.credits.Lien(n.ID)
	j.Charged += int64(settled.Paid()) // with what was charged by the hour
	if x.Provisional {
		s.putUnproven(n.ID, &unproven{lost, ran, left})
	}
	s.released = true
}

// payable is how long an attempt is paid for: not beyond its limit, which is what was
// quoted, however late the log hears of its end.
func payable(j *cluster.Job, ran time.Duration) time.Duration {
	if limit := j.Spec.TimeLimit; limit > 0 {
		return min(ran, limit)
	}
	return ran
}

// forgiveFault gives back what a fault or a preemption destroyed of the work. It answers
// how much more it would give back if more had been charged.
func (s *State) forgiveFault(j *cluster.Job, n accounting.Lien, ran time.Duration) (left accounting.Credits) {
	if !s.excused(j) || len(n.Segments) == 0 {
		return 0
	}
	settled, _ := s.credits.Lien(n.ID)
	g := &settled.Segments[len(settled.Segments)-1]
	most := accounting.FaultRefund(g.Price, g.GPUs, ran, s.policy.Credits.FaultRefund)
	amount := min(most, settled.Paid())
	if amount <= 0 {
		return most
	}
	r, err := s.credits.Refund(s.natural(), accounting.Refund{Lien: n.ID, Amount: amount})
	if err != nil {
		s.fault("job %s: refund: %w", j.ID, err)
		return 0
	}
	return most - r.Returned
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
	s.released = true
}
