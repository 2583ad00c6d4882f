package credits

import (
	"errors"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Fund sets credits aside for the next attempt of a pending job. It returns why the job must be
// held until there are enough, and the ledger's error. A job that a user or operator holds is
// funded when it is released.
func (x *Credits) Fund(e *Env, j *cluster.Job) (*command.Refusal, error) {
	if j.Hold == cluster.HeldByUser || j.Hold == cluster.HeldByAdmin {
		return nil, nil
	}
	if _, held := x.OpenLien(j.ID, j.Attempt+1); held {
		return nil, nil
	}
	claim, refusal := x.claimOf(e, j.Spec)
	if claim == nil {
		return refusal, nil
	}
	_, err := x.place(e, accounting.LienID{Job: j.ID, Attempt: j.Attempt + 1}, j.Spec, claim)
	return refusalOf(err), err
}

// jobsPerTurn is how many jobs of a payer are funded or refused in one turn.
const jobsPerTurn = 4

// Turn is the turn of a payer whose jobs wait for credits.
type Turn struct {
	Jobs           []cluster.JobID // to be funded, oldest first
	Funded, Failed int

	payer accounting.PayerID
	lacks []blocker
}

// NextTurn starts the turn of the payer that was checked longest ago, of those for whom something
// became free; found is false without one. The caller funds jobs until the turn is over, and
// then ends it. O(log n).
func (x *Credits) NextTurn(e *Env) (t Turn, found bool) {
	for {
		k, _, found := x.queue.First()
		if !found {
			return t, false
		}
		if t.payer, found = x.nextPayer(k.blocker, e.Index); found {
			break
		}
	}
	for k := range x.unfunded.From(waiting{payer: t.payer}) {
		if k.payer != t.payer || len(t.Jobs) == 2*jobsPerTurn {
			break
		}
		t.Jobs = append(t.Jobs, k.job)
	}
	x.trying = t.payer
	return t, true
}

// Over records what Fund returned for a job of the turn, and reports whether the turn is over.
func (t *Turn) Over(e *Env, spec *cluster.JobSpec, refusal *command.Refusal, err error) bool {
	if refusal == nil {
		t.Funded++
	} else {
		t.Failed++
		t.lacks = append(t.lacks, e.blockersOf(err, spec)...)
	}
	return t.Funded == jobsPerTurn || t.Failed == jobsPerTurn
}

// EndTurn queues the payer again if it got all that a turn allows, or else by what it lacks.
func (x *Credits) EndTurn(e *Env, t *Turn) {
	x.trying = ""
	if t.Funded == jobsPerTurn {
		x.enqueuePayer(t.payer, e.Index)
	} else {
		x.blockOn(t.payer, t.lacks)
	}
}

// blockersOf returns what must become available before another try can succeed.
func (e *Env) blockersOf(err error, spec *cluster.JobSpec) (lacks []blocker) {
	short, is := errors.AsType[*accounting.Shortfall](err)
	switch {
	case is && errors.Is(err, accounting.ErrCredits):
		for _, id := range e.Accounts.Chain(spec.Account, spec.Owner.User) {
			lacks = append(lacks, blocker{forCredits, id})
		}
		return lacks
	case is:
		return []blocker{{forBudget, short.Node}}
	}
	return []blocker{{kind: forOther}}
}

// RetryAll has every payer that waits queued after the command: prices, policy, accounts or nodes
// changed, and with them what jobs cost.
func (x *Credits) RetryAll() { x.retryAll = true }

// WatchFreed has the ledger record what the next command frees, if a payer waits for something.
func (x *Credits) WatchFreed() { x.ledger.Watch(x.waits.Len() > 0) }

// UnblockFreed queues the payers for whom the present command, or the time since before, freed
// something.
func (x *Credits) UnblockFreed(e *Env, before cluster.Instant) {
	x.unblockBudgets(e, before)
	for _, f := range x.ledger.Freed() {
		switch {
		case f.Node == "":
			x.retryAll = true
		case f.Credits:
			x.unblock(blocker{forCredits, f.Node}, e.Index)
		default:
			x.unblock(blocker{forBudget, f.Node}, e.Index)
		}
	}
	if x.retryAll {
		x.retryAll = false
		x.enqueueAll(e.Index)
	}
}

// unblockBudgets queues the payers that wait for the budget of another day or month.
func (x *Credits) unblockBudgets(e *Env, before cluster.Instant) {
	const day = 24 * time.Hour
	if x.waits.Len() == 0 || before.Time().Truncate(day).Equal(e.Now.Time().Truncate(day)) {
		return
	}
	var all []blocker
	for k := range x.members.From(member{blocker: blocker{kind: forBudget}}) {
		if k.kind != forBudget {
			break
		}
		if n := len(all); n == 0 || all[n-1] != k.blocker {
			all = append(all, k.blocker)
		}
	}
	for _, c := range all {
		if x.ledger.Payer(c.node).Budget.Window != accounting.Ever {
			x.unblock(c, e.Index)
		}
	}
}

// NextDue returns the earliest instant at which a tick would change a bill, a bucket or a job that
// waits for credits; [cluster.Never] for none. O(log n).
func (x *Credits) NextDue(now cluster.Instant) cluster.Instant {
	due := min(x.ledger.NextDue(), x.nextFundingTime(now))
	if _, ended, found := x.ledger.OldestProvisional(); found {
		due = min(due, ended.Add(Amendable+1))
	}
	return due
}

// nextFundingTime returns when jobs that wait for credits may get some without a command: in a
// second if some have not had their turn, when a bucket or a price begins, or with the next day or
// month of a budget.
func (x *Credits) nextFundingTime(at cluster.Instant) cluster.Instant {
	if x.unfunded.Len() == 0 {
		return cluster.Never
	}
	now := at.Time().UTC()
	if x.queue.Len() > 0 {
		return cluster.InstantOf(now.Truncate(time.Second).Add(time.Second))
	}
	return min(cluster.InstantOf(now.Truncate(24*time.Hour).Add(24*time.Hour)), x.ledger.NextDue())
}

// Advance advances the ledger's time if buckets or prices begin or end by now, or if waiting
// jobs depend on it.
func (x *Credits) Advance(now cluster.Instant) {
	if x.unfunded.Len() > 0 || x.ledger.NextDue() <= now {
		x.ledger.Advance(now)
	}
}
