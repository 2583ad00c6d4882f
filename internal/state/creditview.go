package state

import (
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/accounts"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Deleted reports whether an account of the ledger, or a user in one, was deleted.
func (v *View) Deleted(id accounting.PayerID) bool {
	account, user := accounts.PayerOf(id)
	return v.accounts.Len() > 0 && (!v.accounts.Has(account) || user != "" && !v.accounts.Member(account, user))
}

// Usable returns the most that a new job of the first account of a chain may reserve: the available
// amount in buckets of the account and its ancestors that pay for the job, within every budget and
// debt. job gives what is known of the job: GPU types, partitions and QOS of a scope, each
// possibly empty. Buckets that pay only for some jobs count if they might pay for this one. O(buckets
// of the chain).
func (v *View) Usable(chain accounting.PayerPath, job *accounting.Scope, now cluster.Instant) accounting.Credits {
	return v.Credits().Usable(chain, now, func(b *accounting.Bucket) accounting.Credits {
		if !b.Scope.Allows(job) {
			return 0
		}
		return b.Avail
	})
}

// Quoted is the quote of a submission.
type Quoted struct {
	Claim   *accounting.Claim // of the first job that is charged; nil if none is
	Amount  accounting.Credits
	Usable  accounting.Credits // the amount available for the first job that is charged
	Refused *command.Refusal   // why they would be refused; nil if they would not be
	// AtLimit is the cost of the jobs if they run until their time limits, at the prices of Claim;
	// 0 if one has no limit. Ahead is the time that the liens cover, where that is less.
	AtLimit accounting.Credits
	Ahead   time.Duration
	// PaidIn is the partitions in which the first job that cannot be paid for in all of its own
	// would start.
	PaidIn []string
}

// Quote returns the liens of a user's jobs if they were submitted now, and whether they would be
// accepted. Nothing is stored and the view does not change, but only one call may run at a time on
// one view. O(jobs log n).
func (v *View) Quote(owner cluster.Identity, jobs []command.Submission) Quoted {
	s := newState(defaultLimits(), nil)
	s.tables = v.tables
	s.credits = v.Credits().Clone()
	s.credits.Advance(s.now)
	check := s.admission()
	q := quoting{State: s, id: s.jobTables.next}
	for i := range jobs {
		spec := jobs[i].Spec
		spec.Owner = owner
		checked, refusal, _ := s.check(&spec, jobs[i].DefaultTime, check)
		if refusal == nil {
			refusal = q.add(checked, max(1, countElements(jobs[i].Array)))
		}
		if q.Refused == nil {
			q.Refused = refusal
		}
	}
	if q.endless {
		q.AtLimit = 0
	}
	return q.Quoted
}

// quoting is a quote in progress, on a state that is not shared.
type quoting struct {
	*State
	Quoted
	id      cluster.JobID
	endless bool // one of them has no time limit
}

// add places liens for n jobs of a specification.
func (q *quoting) add(spec *cluster.JobSpec, times int64) *command.Refusal {
	claim, refusal := q.claimOf(spec)
	if refusal != nil || claim == nil {
		return refusal
	}
	before := q.credits.Clone()
	whole, first := claim, q.Claim == nil
	for range times {
		amount := claim.Amount
		if refusal == nil {
			lien := accounting.LienID{Job: q.id, Attempt: 1}
			r, err := q.place(lien, spec, claim)
			if refusal = q.unpaid(err); refusal == nil {
				amount = r.Held
				n, _ := q.credits.Lien(lien)
				n.Claim.Chain, whole = claim.Chain, &n.Claim
				if q.PaidIn == nil {
					q.PaidIn = q.paidBy(spec, lien)
				}
			}
		}
		if first {
			first, q.Claim, q.Usable = false, whole, before.Pays(whole)
		}
		atLimit, ahead := q.atLimit(spec, whole)
		q.Amount, q.AtLimit = q.Amount+amount, q.AtLimit+atLimit
		q.Ahead, q.endless = max(q.Ahead, ahead), q.endless || spec.TimeLimit == 0
		q.id++
	}
	return refusal
}

// atLimit returns the cost of a job at its time limit, and the time that its lien covers, where
// that is less.
func (s *State) atLimit(spec *cluster.JobSpec, claim *accounting.Claim) (accounting.Credits, time.Duration) {
	partitions := claim.Partitions
	if len(partitions) == 0 {
		partitions = []string{claim.Partition}
	}
	order, refusal := s.orderOf(spec, partitions)
	if refusal != nil {
		return 0, 0
	}
	ahead := time.Duration(order.Millis) * time.Millisecond
	if spec.TimeLimit == 0 {
		return 0, ahead
	}
	if order.Millis = spec.TimeLimit.Milliseconds(); spec.TimeLimit <= ahead {
		ahead = 0
	}
	whole, err := s.credits.Quote(order, s.ledgerNow())
	if err != nil {
		return 0, ahead
	}
	return whole.Amount, ahead
}

// countElements returns the number of jobs that an array makes, within bounds.
func countElements(ranges []command.IndexRange) (n int64) {
	for _, r := range ranges {
		n += elements(r)
	}
	return min(n, maxCommandJobs)
}

// DryRunResult is the result of a dry run of a submission.
type DryRunResult struct {
	// Snapshot is the state with the pending jobs of the submission; Job is the first of them.
	Snapshot *cluster.Snapshot
	Job      cluster.JobID
	Answer   *command.Submitted
}

// DryRun returns what a submission would lead to if it were committed now: its liens and a snapshot
// to plan it with, or the refusal. Nothing is stored and the view does not change, but only one
// call may run at a time on one view. O(jobs).
func (v *View) DryRun(c *command.SubmitJobs) (DryRunResult, *command.Refusal) {
	s := v.onTrial()
	again := *c
	again.Request = command.RequestID{}
	switch r := s.submit(&again).(type) {
	case *command.Submitted:
		return DryRunResult{Snapshot: (&View{tables: s.tables}).Snapshot(), Job: r.First[0], Answer: r}, nil
	case *command.Refusal:
		return DryRunResult{}, r
	}
	return DryRunResult{}, command.Refuse(command.Internal, "the dry run of the submission returned no answer", "")
}

// TryAccounts returns the refusal of a change of accounts if it were committed now; nil if it would
// be accepted. Nothing is stored and the view does not change, but as with DryRun only one call may
// run at a time on one view. O(jobs + accounts + users).
func (v *View) TryAccounts(c *command.EditAccounts) *command.Refusal {
	again := *c
	again.Request = command.RequestID{}
	refusal, _ := v.onTrial().editAccounts(&again).(*command.Refusal)
	return refusal
}

// onTrial returns a state equal to the view whose changes are dropped.
func (v *View) onTrial() *State {
	s := newState(defaultLimits(), nil)
	s.tables = v.tables // clones, so that writes are not visible elsewhere
	s.credits = v.credits.Clone()
	s.jobTables.dependents = map[cluster.JobID]int{}
	for j := range s.allActive {
		s.depend(j)
	}
	s.accounts.Recount(s.allActive)
	return s
}
