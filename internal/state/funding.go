package state

import (
	"errors"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// fund places the lien for the next attempt of a pending job, a value that is not shared yet.
// Without enough credits the job is held until there are enough. A job that a user or operator
// holds is funded when it is released.
func (s *State) fund(j *cluster.Job) *command.Refusal {
	refusal, _ := s.funded(j)
	return refusal
}

// funded is fund that also returns the answer of the ledger.
func (s *State) funded(j *cluster.Job) (*command.Refusal, error) {
	if j.Hold == cluster.HeldByUser || j.Hold == cluster.HeldByAdmin {
		return nil, nil
	}
	if _, held := s.lienOf(j.ID, j.Attempt+1); held {
		return nil, nil
	}
	claim, refusal := s.claimOf(j.Spec)
	var err error
	if claim != nil {
		_, err = s.place(accounting.LienID{Job: j.ID, Attempt: j.Attempt + 1}, j.Spec, claim)
		refusal = s.unpaid(err)
	}
	switch {
	case refusal != nil:
		j.Hold, j.Reason, j.Detail, j.Planned = cluster.HeldForCredits, cluster.ReasonCredits, refusal.Message, 0
		s.dropPromise(j)
	case j.Hold == cluster.HeldForCredits:
		j.Hold, j.Reason, j.Detail = cluster.NotHeld, cluster.ReasonNone, ""
		if j.Eligible > s.now {
			j.Reason = cluster.ReasonBeginTime
		}
	}
	return refusal, err
}

// Limits of the work that one command does for jobs that wait for credits; the next commands, and a
// tick each second, do the rest. In one turn a payer has eachTurn jobs funded or refused.
// fundAtOnce bounds the jobs, maxFailedTurns the turns without a funded job.
const (
	eachTurn       = 4
	fundAtOnce     = 1000
	maxFailedTurns = 4
	brokeInTick    = 250
)

// fundHeld gives turns to payers whose jobs wait for credits, if something became available for
// them: the payer checked longest ago comes first. O(turns log n).
func (s *State) fundHeld(brokeMost int) {
	s.unblockFreed()
	for tries, broke := 0, 0; tries < fundAtOnce && broke < brokeMost; {
		k, _, found := s.queue.First()
		if !found {
			return
		}
		payer, found := s.nextPayer(k.blocker)
		if !found {
			continue
		}
		funded, failed := s.fundPayer(payer)
		if tries += funded + failed; funded == 0 {
			broke++
		}
	}
}

// fundPayer tries to fund a payer's oldest jobs.
func (s *State) fundPayer(payer accounting.PayerID) (funded, failed int) {
	var ids []cluster.JobID
	for k := range s.unfunded.From(waiting{payer: payer}) {
		if k.payer != payer || len(ids) == 2*eachTurn {
			break
		}
		ids = append(ids, k.job)
	}
	var lacks []blocker
	s.trying = payer
	for _, id := range ids {
		old, _ := s.pending.Get(id)
		j := *old
		refusal, err := s.funded(&j)
		if j.Hold != old.Hold || j.Detail != old.Detail {
			s.put(old, &j)
		}
		if refusal == nil {
			funded++
		} else {
			failed++
			lacks = append(lacks, s.blockersOf(err, j.Spec)...)
		}
		if funded == eachTurn || failed == eachTurn {
			break
		}
	}
	s.trying = ""
	switch {
	case funded == eachTurn:
		s.enqueuePayer(payer)
	case failed > 0:
		s.blockOn(payer, lacks)
	default:
		s.blockOn(payer, nil)
	}
	return funded, failed
}

// blockersOf returns what must become available before another try can succeed.
func (s *State) blockersOf(err error, spec *cluster.JobSpec) (lacks []blocker) {
	short, is := errors.AsType[*accounting.Shortfall](err)
	switch {
	case is && errors.Is(err, accounting.ErrCredits):
		for _, id := range s.accounts.Chain(spec.Account, spec.Owner.User) {
			lacks = append(lacks, blocker{forCredits, id})
		}
		return lacks
	case is:
		return []blocker{{forBudget, short.Node}}
	}
	return []blocker{{kind: forOther}}
}

// unblockFreed queues the payers for whom the present command freed something.
func (s *State) unblockFreed() {
	for _, f := range s.credits.Freed() {
		switch {
		case f.Node == "":
			s.retryAll = true
		case f.Credits:
			s.unblock(blocker{forCredits, f.Node})
		default:
			s.unblock(blocker{forBudget, f.Node})
		}
	}
	if s.retryAll {
		s.retryAll = false
		s.wakeAll()
	}
}

// newDay queues the payers that wait for the budget of another day or month.
func (s *State) newDay(before cluster.Instant) {
	const day = 24 * time.Hour
	if s.waits.Len() == 0 || before.Time().Truncate(day).Equal(s.now.Time().Truncate(day)) {
		return
	}
	var all []blocker
	for k := range s.members.From(member{blocker: blocker{kind: forBudget}}) {
		if k.kind != forBudget {
			break
		}
		if n := len(all); n == 0 || all[n-1] != k.blocker {
			all = append(all, k.blocker)
		}
	}
	for _, c := range all {
		if s.credits.Payer(c.node).Budget.Window != accounting.Ever {
			s.unblock(c)
		}
	}
}

// nextFundingTime returns when jobs that wait for credits may get some without a command: in a
// second if some have not had their turn, when a bucket or a price begins, or with the next day or
// month of a budget.
func (v *View) nextFundingTime() cluster.Instant {
	if v.unfunded.Len() == 0 {
		return cluster.Never
	}
	now := v.now.Time().UTC()
	if v.queue.Len() > 0 {
		return cluster.InstantOf(now.Truncate(time.Second).Add(time.Second))
	}
	return min(cluster.InstantOf(now.Truncate(24*time.Hour).Add(24*time.Hour)), v.Credits().NextDue())
}

// advanceLedger advances the ledger's time if buckets or prices begin or end by now, or if waiting
// jobs depend on it.
func (s *State) advanceLedger() {
	if s.unfunded.Len() > 0 || s.credits.NextDue() <= s.now {
		s.credits.Advance(s.now)
	}
}
