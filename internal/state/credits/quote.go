package credits

import (
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Quote is the quote of a submission.
type Quote struct {
	Claim   *accounting.Claim // of the first job that is charged; nil if none is
	Amount  accounting.Credits
	Usable  accounting.Credits // the amount available for the first job that is charged
	Refused *command.Refusal   // why they would be refused; nil if they would not be
	// AtLimit is what they come to if they run until their time limits, at the prices of Claim;
	// 0 where one has none. Ahead is for how long ahead Amount is set aside, where that is less.
	AtLimit accounting.Credits
	Ahead   time.Duration
	// PaidIn is the partitions in which the first job that is not paid for in all of its own
	// would start.
	PaidIn []string
}

// Quoter adds up what jobs would set aside.
type Quoter struct {
	Quote
	Credits *Credits // in which they set it aside; not shared
	Env     *Env
	ID      cluster.JobID // of the next job
	endless bool          // one of them has no time limit
}

// Add sets credits aside for as many jobs of a specification, as far as there are credits.
func (q *Quoter) Add(spec *cluster.JobSpec, times int64) *command.Refusal {
	x, e := q.Credits, q.Env
	claim, refusal := x.claimOf(e, spec)
	if refusal != nil || claim == nil {
		return refusal
	}
	before := x.ledger.Clone()
	whole, first := claim, q.Claim == nil
	for range times {
		amount := claim.Amount
		if refusal == nil {
			lien := accounting.LienID{Job: q.ID, Attempt: 1}
			r, err := x.place(e, lien, spec, claim)
			if refusal = refusalOf(err); refusal == nil {
				amount = r.Held
				n, _ := x.ledger.Lien(lien)
				n.Claim.Chain, whole = claim.Chain, &n.Claim
				if q.PaidIn == nil {
					q.PaidIn = paidBy(e.Policy, spec, &n)
				}
			}
		}
		if first {
			first, q.Claim, q.Usable = false, whole, before.Pays(whole)
		}
		atLimit, ahead := x.atLimit(e, spec, whole)
		q.Amount, q.AtLimit = q.Amount+amount, q.AtLimit+atLimit
		q.Ahead, q.endless = max(q.Ahead, ahead), q.endless || spec.TimeLimit == 0
		q.ID++
	}
	if q.endless {
		q.AtLimit = 0
	}
	return refusal
}

// atLimit returns the cost of a job at its time limit, and the time that its lien covers, where
// that is less.
func (x *Credits) atLimit(e *Env, spec *cluster.JobSpec, claim *accounting.Claim) (accounting.Credits, time.Duration) {
	partitions := claim.Partitions
	if len(partitions) == 0 {
		partitions = []string{claim.Partition}
	}
	order, refusal := x.orderOf(e, spec, partitions)
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
	whole, err := x.ledger.Quote(order, x.clock(e.Now))
	if err != nil {
		return 0, ahead
	}
	return whole.Amount, ahead
}
