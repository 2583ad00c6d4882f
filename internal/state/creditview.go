package state

import (
	"math"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// PayerOf takes the name of a ledger's account apart: an account, or a user in it.
func PayerOf(id accounting.NodeID) (account, user string) {
	account, user, _ = strings.Cut(string(id), "/")
	return account, user
}

// ChainOf is who a user's jobs in an account are charged to, and all above them; with
// user "" it begins with the account. O(depth).
func (v *View) ChainOf(account, user string) accounting.Chain { return v.chainOf(account, user) }

// Usable is what new jobs of the first account of a chain may set aside at most: what
// it and those above it have, within every budget and debt. Buckets that pay only for
// some jobs count. O(buckets of the chain).
func (v *View) Usable(chain accounting.Chain, now cluster.Instant) accounting.Credits {
	most := accounting.Credits(math.MaxInt64)
	var sum accounting.Credits
	l := v.Credits()
	for _, id := range chain {
		n := l.Node(id)
		if n.Owes > 0 {
			return 0
		}
		if n.Budget.Hard && n.Budget.Limit > 0 {
			most = min(most, n.Budget.Limit-n.Used(now))
		}
		for b := range l.BucketsOf(id) {
			if b.Usable(now) {
				sum += b.Avail
			}
		}
	}
	return max(0, min(most, sum))
}

// Quoted is what jobs would set aside.
type Quoted struct {
	Claim   *accounting.Claim // of the first job that is paid for; nil when none is
	Amount  accounting.Credits
	Usable  accounting.Credits // what there is for the first that is paid for
	Refused *command.Refusal   // why they would not be taken; nil when they would
	// PaidIn is the partitions in which the first job that is not paid for in all of its own
	// would start.
	PaidIn []string
}

// Quote tells what jobs of a user would set aside if they were submitted now, and
// whether they could. Nothing is kept, and the view does not change; but only one call
// may run at a time on one view. O(jobs log n).
func (v *View) Quote(owner cluster.Identity, jobs []command.Submission) Quoted {
	s := newState(defaultLimits())
	s.tables = v.tables
	s.credits = v.Credits().Clone()
	var q Quoted
	id := s.nextJob
	for i := range jobs {
		spec := jobs[i].Spec
		spec.Owner = owner
		checked, refusal, _ := s.check(&spec, jobs[i].DefaultTime)
		var claim *accounting.Claim
		if refusal == nil {
			claim, refusal = s.claimOf(checked)
		}
		if q.Claim == nil && claim != nil {
			q.Claim, q.Usable = claim, v.Usable(claim.Chain, s.now)
		}
		for range max(1, countElements(jobs[i].Array)) {
			if claim == nil {
				break
			}
			amount := claim.Amount
			if refusal == nil {
				r, err := s.place(accounting.LienID{Job: id, Attempt: 1}, checked, claim)
				if refusal = s.unpaid(err); refusal == nil {
					amount = r.Held
					if q.PaidIn == nil {
						q.PaidIn = s.paidBy(checked, accounting.LienID{Job: id, Attempt: 1})
					}
				}
			}
			q.Amount += amount
			id++
		}
		if q.Refused == nil {
			q.Refused = refusal
		}
	}
	return q
}

// countElements is how many jobs an array makes, within bounds.
func countElements(ranges []command.IndexRange) (n int64) {
	for _, r := range ranges {
		n += elements(r)
	}
	return min(n, maxCommandJobs)
}
