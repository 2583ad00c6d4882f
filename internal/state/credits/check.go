package credits

import (
	"fmt"
	"iter"
	"slices"

	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Check returns every invariant that does not hold between the tables and the active jobs. O(n + jobs).
func (x *Credits) Check(e *Env, active iter.Seq[*cluster.Job]) []error {
	c := &checker{Credits: x, Env: e, jobs: map[cluster.JobID]*cluster.Job{}}
	c.found = append(slices.Clone(x.faults), x.ledger.Check(), x.bills.Check(), x.waits.Check(), x.roundRobins.Check())
	for j := range active {
		c.jobs[j.ID] = j
	}
	c.checkLiens()
	c.checkPayers()
	c.checkBills()
	c.checkQueue()
	c.checkFunding()
	c.checkNarrow()
	return c.found
}

// checker is a check of the tables in progress.
type checker struct {
	*Credits
	*Env
	jobs  map[cluster.JobID]*cluster.Job
	found []error
}

func (x *checker) report(format string, args ...any) {
	x.found = append(x.found, fmt.Errorf(format, args...))
}

// checkLiens compares open liens with jobs.
func (x *checker) checkLiens() {
	for n := range x.ledger.OpenLiens() {
		j, active := x.jobs[n.ID.Job]
		switch {
		case !active:
			x.report("lien %s is open and its job is gone", n.ID)
		case j.State.HasAllocation() && n.ID.Attempt != j.Attempt, !j.State.HasAllocation() && n.ID.Attempt != j.Attempt+1:
			x.report("lien %s is open, job %s is %s at attempt %d", n.ID, j.ID, j.State, j.Attempt)
		case j.State.HasAllocation() != (len(n.Segments) > 0):
			x.report("lien %s has %d segments, its job is %s", n.ID, len(n.Segments), j.State)
		}
	}
}

// checkPayers compares payers with accounts, and soft budgets with their index.
func (x *checker) checkPayers() {
	for a := range x.Accounts.All() {
		n, chain := x.ledger.Payer(accounting.PayerID(a.Name)), append(x.Accounts.Chain(a.Name, ""), "")
		if n != (accounting.Payer{}) && n.Parent != chain[1] {
			x.report("account %s is below %q, in the ledger below %q", a.Name, chain[1], n.Parent)
		}
	}
	soft := 0
	for id, n := range x.ledger.Payers() {
		if n.Budget.Limit > 0 && !n.Budget.Hard {
			soft++
			if !x.soft.Has(id) {
				x.report("the soft budget of %s is not listed", id)
			}
		}
	}
	if soft != x.soft.Len() {
		x.report("%d soft budgets are listed, want %d", x.soft.Len(), soft)
	}
}

// checkBills compares provisional bills with the ledger.
func (x *checker) checkBills() {
	for id := range x.bills.All() {
		if n, found := x.ledger.Lien(id); !found || n.State != accounting.Provisional {
			x.report("attempt %s has a provisional bill, and its lien is %s", id, n.State)
		}
	}
	if n := len(x.ledger.Provisionals(cluster.Never)); n != x.bills.Len() {
		x.report("%d liens are provisional, %d bills are", n, x.bills.Len())
	}
}

// checkQueue compares the funding queue with the jobs that wait for credits.
func (x *checker) checkQueue() {
	for _, j := range x.jobs {
		if waits(j) && !x.unfunded.Has(waiting{payerOf(j), j.ID}) {
			x.report("job %d waits for credits and is not listed", j.ID)
		}
	}
	for k := range x.unfunded.All() {
		if j := x.jobs[k.job]; !waits(j) || payerOf(j) != k.payer || !x.waits.Has(k.payer) {
			x.report("job %d of %s is listed as waiting for credits", k.job, k.payer)
		}
	}
	members, rounds := 0, 0
	for payer, blockers := range x.waits.All() {
		members += len(blockers)
		for _, c := range blockers {
			if !x.members.Has(member{c, payer}) {
				x.report("%s waits for what it is not listed with", payer)
			}
		}
	}
	for c, at := range x.roundRobins.All() {
		if at.turn > 0 {
			rounds++
			if !x.queue.Has(queueKey{at.turn, c}) {
				x.report("the round of %v is not listed", c)
			}
		}
	}
	if members != x.members.Len() || rounds != x.queue.Len() {
		x.report("%d payers wait, %d are listed; %d rounds are under way, %d are listed", members, x.members.Len(), rounds, x.queue.Len())
	}
}

// checkFunding tries whether a payer that is not queued could have a job funded already.
func (x *checker) checkFunding() {
	ledger := x.ledger
	if ledger.NextDue() <= x.Now {
		return // a price or a bucket begins: the due tick queues the payers
	}
	defer func() { x.ledger = ledger }()
	for payer, blockers := range x.waits.All() {
		due := !x.hasWaiting(payer)
		for _, c := range blockers {
			at, _ := x.roundRobins.Get(c)
			due = due || at.turn > 0
		}
		if due {
			continue
		}
		tries := 0
		for k := range x.unfunded.From(waiting{payer: payer}) {
			if tries++; k.payer != payer || tries > jobsPerTurn {
				break
			}
			x.ledger = ledger.Clone()
			if refusal, _ := x.Fund(x.Env, x.jobs[k.job]); refusal == nil {
				x.report("job %d of %s could be funded, but still waits", k.job, payer)
			}
		}
	}
}

// checkNarrow finds jobs for which passes see other partitions than those that are paid for.
func (x *checker) checkNarrow() {
	count := 0
	for id, j := range x.jobs {
		if j.State != cluster.Pending {
			continue
		}
		is, want := j, x.paidView(x.Policy, j)
		if n, narrowed := x.narrow.Get(id); narrowed {
			is = n
			count++
		}
		if is.Spec.Partition != want.Spec.Partition || !slices.Equal(is.Spec.OtherPartitions, want.Spec.OtherPartitions) || is.Version != j.Version {
			x.report("job %d is planned in %s, and paid for in %s", id, is.Spec.AllPartitions(), want.Spec.AllPartitions())
		}
	}
	if count != x.narrow.Len() {
		x.report("%d jobs that are not pending are planned in some of their partitions", x.narrow.Len()-count)
	}
}
