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

// Usable is what a new job of the first account of a chain may set aside at most: what
// buckets of it and of those above it have that pay for the job, within every budget and debt.
// Of the job it says what is known: types of GPU, partitions and QOS of a scope, each a job
// that names nothing of the kind; what pays for some jobs only counts where it might pay for
// this one. O(buckets of the chain).
func (v *View) Usable(chain accounting.PayerPath, job *accounting.Scope, now cluster.Instant) accounting.Credits {
	return v.Credits().Usable(chain, now, func(b *accounting.Bucket) accounting.Credits {
		if !b.Scope.Allows(job) {
			return 0
		}
		return b.Avail
	})
}

// Quoted is what jobs would set aside.
type Quoted struct {
	Claim   *accounting.Claim // of the first job that is paid for; nil when none is
	Amount  accounting.Credits
	Usable  accounting.Credits // what there is for the first that is paid for
	Refused *command.Refusal   // why they would not be taken; nil when they would
	// AtLimit is what they come to if they run until their time limits, at the prices of Claim;
	// 0 where one has none. Ahead is for how long ahead Amount is set aside, where that is less.
	AtLimit accounting.Credits
	Ahead   time.Duration
	// PaidIn is the partitions in which the first job that is not paid for in all of its own
	// would start.
	PaidIn []string
}

// Quote tells what jobs of a user would set aside if they were submitted now, and
// whether they could. Nothing is kept, and the view does not change; but only one call
// may run at a time on one view. O(jobs log n).
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

// add sets credits aside for as many jobs of a specification.
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

// atLimit is what a job comes to at its time limit, and for how long ahead its claim is,
// where that is less.
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

// countElements is how many jobs an array makes, within bounds.
func countElements(ranges []command.IndexRange) (n int64) {
	for _, r := range ranges {
		n += elements(r)
	}
	return min(n, maxCommandJobs)
}

// DryRunResult is what a submission would come to.
type DryRunResult struct {
	// Snapshot is the state with the jobs in it, as they would wait; Job is the first.
	Snapshot *cluster.Snapshot
	Job      cluster.JobID
	Answer   *command.Submitted
}

// DryRun tells what a submission would come to if it were agreed now: what is set aside for
// it and a snapshot to plan it by, or why it would be refused. Nothing is kept, and the
// view does not change; but only one call may run at a time on one view. O(jobs).
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
	return DryRunResult{}, command.Refuse(command.Internal, "the submission came to nothing that is known", "")
}

// TryAccounts tells why a change of accounts would be refused if it were agreed now; nil when
// it would not be. Nothing is kept, and the view does not change; as with Try, only one call
// may run at a time on one view. O(jobs + accounts + users).
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
