package faultsim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim/journalcheck"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// audit recomputes the books from the journal as it is written, and compares them with the state.
// It derives the rules from the journal alone. I1 to I14 are the invariants that docs/gsim.md
// lists.
type audit struct {
	x            *faultSim
	book         *journalcheck.Book
	row          []byte
	parents      map[string]string // of accounts, from the commands
	budgets      map[string]accounting.Budget
	liens        map[accounting.LienID]accounting.LienState
	jobs         map[cluster.JobID]*history
	finished     uint64
	refund       time.Duration // of the policy before the command
	returned     map[journalcheck.Attempt]int64
	adminRefunds map[journalcheck.Attempt]int64 // refunds by administrators
	lost         map[journalcheck.Attempt]int64 // by the present command: reserved credits that expired or were voided and not yet replaced
	open         map[journalcheck.Attempt]provisional
	metered      map[journalcheck.Attempt]map[uint64]int64 // GPU-milliseconds while running, by the epoch of the counter
}

// history is what the audit keeps of a job.
type history struct {
	attempt cluster.Attempt
	over    bool
	charged int64 // the sum of its bills, each when it was made
}

// provisional is a bill that waits for a node's report.
type provisional struct {
	millis   int64 // its largest possible amount
	is       int64 // its amount so far
	returned int64 // of that, refunded for good
	spared   int64 // GPU-milliseconds that are refunded of the whole
	saved    int64 // GPU-milliseconds until its last checkpoint: not refunded
}

func newAudit(x *faultSim) *audit {
	return &audit{
		x: x, book: journalcheck.New(), parents: map[string]string{}, budgets: map[string]accounting.Budget{},
		liens: map[accounting.LienID]accounting.LienState{}, jobs: map[cluster.JobID]*history{}, returned: map[journalcheck.Attempt]int64{}, adminRefunds: map[journalcheck.Attempt]int64{}, lost: map[journalcheck.Attempt]int64{}, open: map[journalcheck.Attempt]provisional{}, metered: map[journalcheck.Attempt]map[uint64]int64{},
		refund: x.State.View().Policy().Credits.FaultRefund,
	}
}

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrViolation}, args...)...)
}

// after checks what a command changed, and every Options.Every commands the whole state.
func (a *audit) after(c command.Command, r command.Result, e *state.Effects) error {
	a.x.summary.Checks.Commands++
	_, refused := r.(*command.Refusal)
	if refused {
		if err := harmless(c, e); err != nil {
			return err
		}
	} else if !a.x.repeating {
		a.learn(c, r)
	}
	if err := a.journal(e.Entries); err != nil {
		return err
	}
	for i := range e.Changed {
		if ch := &e.Changed[i]; ch.Kind == state.JobChanged {
			if err := a.job(c, ch.Old, ch.New); err != nil {
				return err
			}
		}
	}
	for i := range e.Finished {
		if err := a.end(&e.Finished[i]); err != nil {
			return err
		}
	}
	view := a.x.State.Peek()
	a.refund = view.Policy().Credits.FaultRefund
	if a.x.summary.Checks.Commands%max(1, a.x.Every) != 0 {
		return nil
	}
	return a.everything()
}

// everything recomputes the whole state.
func (a *audit) everything() error {
	a.x.summary.Checks.Whole++
	if err := a.x.State.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrViolation, err)
	}
	return a.balances(a.x.State.Peek().Credits())
}

// harmless checks I12: a refused command changes nothing except its request ID.
func harmless(c command.Command, e *state.Effects) error {
	for _, ch := range e.Changed {
		if ch.Kind == state.JobChanged && ch.Old != nil && ch.New != nil && ch.New.State == cluster.Pending && ch.Old.State == cluster.Pending {
			continue // a job's turn to reserve credits came
		}
		return violation("I12: %T was refused, and changed %+v", c, ch)
	}
	if len(e.Finished)+len(e.Blobs) > 0 {
		return violation("I12: %T was refused, and ended a job", c)
	}
	return nil
}

// learn stores what administrators and the meter said.
func (a *audit) learn(c command.Command, r command.Result) {
	switch c := c.(type) {
	case *command.EditAccounts:
		for i := range c.Edits {
			switch e := &c.Edits[i]; {
			case e.User != "":
				a.parents[e.Account+"/"+e.User] = e.Account
			case e.Parent != nil:
				a.parents[e.Account] = *e.Parent
			case e.Action == command.PutAccount:
				a.parents[e.Account] = ""
			}
		}
	case *command.MeterJobs:
		for _, x := range c.Samples {
			of := journalcheck.Attempt{Job: uint64(x.Job), Number: uint64(x.Attempt)}
			if a.metered[of] == nil {
				a.metered[of] = map[uint64]int64{}
			}
			a.metered[of][x.Epoch] = max(a.metered[of][x.Epoch], x.GPUms)
		}
	case *command.ChangeCredits:
		done, is := r.(*command.Credited)
		if !is || done.Again {
			return
		}
		switch c.Action {
		case command.RefundJob:
			a.adminRefunds[journalcheck.Attempt{Job: uint64(done.Lien.Job), Number: uint64(done.Lien.Attempt)}] += int64(done.Returned)
		case command.SetBudget:
			name := c.Account
			if c.User != "" {
				name += "/" + c.User
			}
			a.budgets[name] = accounting.Budget{Limit: c.Amount, Hard: c.Hard, Window: c.Window}
		}
	}
}

// journal adds new entries and checks I1, I2, I6, I8, I9 and I10 of each.
func (a *audit) journal(entries []accounting.Entry) error {
	clear(a.returned)
	clear(a.lost)
	for i := range entries {
		a.row = entries[i].AppendRow(a.row[:0])
		before := int64(0)
		of := journalcheck.Attempt{Job: uint64(entries[i].Lien.Job), Number: uint64(entries[i].Lien.Attempt)}
		if bill := a.book.Bills[of]; bill != nil {
			before = bill.GivenBack
		}
		e, err := a.book.Add(a.row)
		if err != nil {
			return violation("%w", err)
		}
		a.x.summary.Checks.Entries++
		if bill := a.book.Bills[of]; bill != nil && bill.GivenBack > before {
			a.returned[of] += bill.GivenBack - before
		}
		if err := a.within(e); err != nil {
			return err
		}
	}
	return nil
}

// within checks I5: a reservation exceeds no hard budget of a payer above. What an attempt gets in
// place of credits that expired or were voided is at most what it had. A late proof may add to a
// bill beyond a budget: it is charged at once, since a payer over budget reserves nothing (I6).
func (a *audit) within(e *journalcheck.Entry) error {
	if of, amount, is := e.LostUnder(); is {
		a.lost[of] += amount
		return nil
	}
	of, amount, chain, is := e.SetsAside()
	if !is {
		return nil
	}
	if a.lost[of] -= amount; a.lost[of] >= 0 {
		return nil
	}
	if _, waits := a.open[of]; waits {
		return nil
	}
	for _, name := range chain {
		b := a.budgets[name]
		if !b.Hard || b.Limit == 0 || b.Window != accounting.Ever {
			continue // the ledger alone knows what was spent this month
		}
		s := a.book.RollUp(a.parents)[name]
		if used := s.Held + s.Spent + s.Debt; used > int64(b.Limit) {
			return violation("I5: %d is set aside for attempt %v, and %s has used %d of %d", a.book.Bills[of].Holds(), of, name, used, b.Limit)
		}
	}
	return nil
}

// job follows a job: its attempts are numbered in sequence, and each is charged when it is over.
func (a *audit) job(c command.Command, old, j *cluster.Job) error {
	if j == nil {
		return nil
	}
	h := a.jobs[j.ID]
	if h == nil {
		return nil // submitted
	}
	if h.over {
		return violation("job %d changes after it has ended", j.ID)
	}
	if old != nil && !old.State.HasAllocation() && j.State.HasAllocation() {
		if j.Attempt != h.attempt+1 {
			return violation("job %d runs as attempt %d after attempt %d", j.ID, j.Attempt, h.attempt)
		}
		h.attempt = j.Attempt
	}
	if old != nil && old.State.HasAllocation() && !j.State.HasAllocation() {
		return a.bill(h, old, j, saidOf(c, old))
	}
	return nil
}

// bill compares the charge of an ended attempt with the time that it had its GPUs: interval × price
// of what nodes report, less what a fault destroyed. If the end was reported late, the reported or
// the metered time counts.
func (a *audit) bill(h *history, old, j *cluster.Job, said said) error {
	of := journalcheck.Attempt{Job: uint64(j.ID), Number: uint64(old.Attempt)}
	b := a.book.Bills[of]
	h.charged += b.Charged()
	if b == nil || old.Spec.Request.TotalGPUs() == 0 {
		return nil
	}
	if holds := b.Holds(); holds != 0 {
		return violation("attempt %v is over and holds %d", of, holds)
	}
	outcome, ran, mine := j.State, j.Ended.Sub(j.Started), j.Requester == j.Spec.Owner.User
	if n := len(j.Attempts); j.Attempts != nil && j.Attempts[n-1].Attempt == old.Attempt {
		last := j.Attempts[n-1]
		outcome, ran, mine = last.Outcome, last.Ended.Sub(last.Started), old.Requester == j.Spec.Owner.User
	}
	if old.Members != nil {
		return a.billElastic(of, old, ran)
	}
	gpus := int64(0)
	for i := range old.Alloc.Nodes {
		gpus += int64(len(old.Alloc.Nodes[i].GPUs))
	}
	least, most := ran, ran
	if outcome == cluster.NodeFailed && !said.lost && !said.began {
		least, most = 0, 0
	}
	if said.never && ran > late {
		least = 0
	}
	if reported := said.ran; reported > 0 && ran-reported > late {
		metered := int64(0)
		for _, count := range a.metered[of] {
			metered += count
		}
		least, most = reported, min(ran, max(reported, time.Duration(metered/gpus)*time.Millisecond))
		a.x.count("late_ends")
	}
	delete(a.metered, of)
	if limit := old.Spec.TimeLimit; limit > 0 {
		least, most = min(least, limit), min(most, limit)
	}
	all, is := gpus*most.Milliseconds(), b.Millis()
	lien, _ := a.x.State.Peek().Credits().Lien(accounting.LienID{Job: j.ID, Attempt: old.Attempt})
	if is > all || !said.lost && b.Due(is) < b.Due(gpus*least.Milliseconds()) {
		return violation("attempt %v, %s, had %d GPUs for %s to %s and was charged for %d GPU-milliseconds", of, outcome, gpus, least, most, is)
	}
	spared := int64(0)
	if outcome == cluster.NodeFailed || outcome == cluster.Preempted && !mine {
		spared = gpus * a.refund.Milliseconds()
	}
	saved := gpus * old.Saved().Sub(old.Started).Milliseconds()
	destroyed := func(millis int64) int64 { // what the last spared milliseconds since its last checkpoint were charged
		return b.Due(millis) - b.Due(max(min(saved, millis), millis-spared))
	}
	if back := a.returned[of]; back != min(destroyed(is), b.Charged()+back) {
		return violation("attempt %v, %s after %s: refunded %d, destroyed %d of the charge", of, outcome, ran, back, destroyed(is))
	}
	if lien.State == accounting.Provisional {
		a.open[of] = provisional{all, is, a.returned[of], spared, saved}
	}
	return nil
}

// billElastic bounds the charge of an ended attempt of an elastic job: it had at most its maximum of nodes.
func (a *audit) billElastic(of journalcheck.Attempt, old *cluster.Job, ran time.Duration) error {
	r := &old.Spec.Request
	all := int64(r.MaxNodes) * int64(r.GPUsPerNode) * ran.Milliseconds()
	is := a.book.Bills[of].Millis()
	delete(a.metered, of)
	if is > all {
		return violation("attempt %v of an elastic job had at most %d nodes for %s and was charged for %d GPU-milliseconds", of, r.MaxNodes, ran, is)
	}
	lien, _ := a.x.State.Peek().Credits().Lien(accounting.LienID{Job: old.ID, Attempt: old.Attempt})
	if lien.State == accounting.Provisional {
		a.open[of] = provisional{all, is, a.returned[of], all, 0}
	}
	return nil
}

// late is the most delay of a reported end that does not change its bill.
const late = time.Minute

// said is what the nodes of an ended attempt report.
type said struct {
	lost  bool          // a node cannot report the end of its part
	began bool          // its script began on a node
	never bool          // it was stopped on all before it began
	ran   time.Duration // the longest reported run time of the script
}

func saidOf(c command.Command, old *cluster.Job) said {
	all := said{lost: lostBy(c, old), never: true}
	for i, task := range old.Tasks.All() {
		t, ran := *task, task.Ran
		if r, is := c.(*command.ReportTasks); is && r.Node == t.Node && t.Phase < cluster.TaskEnded {
			for _, last := range r.Tasks {
				if last.Job == old.ID && last.Attempt == old.Attempt && last.Task.Phase >= cluster.TaskEnded {
					t, ran = last.Task, last.Ran
				}
			}
		}
		if i > 0 && !old.Spec.EveryNode {
			break
		}
		all.began, all.never = all.began || t.Started > 0, all.never && t.Cause == cluster.Stopped && t.Started == 0 && ran <= 0
		if t.Cause != cluster.TaskLost && t.Phase >= cluster.TaskEnded {
			all.ran = max(all.ran, ran, t.Ended.Sub(t.Started))
		}
	}
	return all
}

// lostBy reports whether a node cannot report the end of its part of an attempt, since a command
// declared the node or the task lost.
func lostBy(c command.Command, old *cluster.Job) bool {
	for _, t := range old.Tasks.All() {
		if t.Cause == cluster.TaskLost || t.Phase < cluster.TaskEnded && goneBy(c, t.Node, old) {
			return true
		}
	}
	return false
}

func goneBy(c command.Command, node string, j *cluster.Job) bool {
	switch c := c.(type) {
	case *command.SetLiveness:
		return slices.ContainsFunc(c.Nodes, func(l command.NodeLiveness) bool { return l.Node == node && l.Liveness == cluster.Dead })
	case *command.RegisterNode:
		return c.Node.Name == node
	case *command.UpdateNodes:
		return c.Action == command.RemoveNodes && slices.Contains(c.Names, node)
	case *command.ReportTasks:
		return c.Node == node && !slices.ContainsFunc(c.Tasks, func(t command.TaskReport) bool {
			return t.Job == j.ID && t.Attempt == j.Attempt && t.Task.Phase > cluster.TaskWanted
		})
	}
	return false
}

// end checks I14: the record of a job agrees with the journal, and each job ends once.
func (a *audit) end(f *state.Finished) error {
	if f.Seq != a.finished+1 {
		return violation("finished job %d has number %d after %d", f.Job.ID, f.Seq, a.finished)
	}
	a.finished++
	j, err := command.DecodeJob(f.Record)
	if err != nil {
		return violation("record of job %d: %w", f.Job.ID, err)
	}
	h := a.jobs[j.ID]
	if h == nil || h.over {
		return violation("job %d ended a second time, or never began", j.ID)
	}
	if h.over = true; j.Charged != h.charged {
		return violation("I14: job %d was charged %d by its record, and %d by the journal", j.ID, j.Charged, h.charged)
	}
	return nil
}

// finalBill checks a provisional bill that is final now. The refund of what was added is at most
// what the fault destroyed and was not refunded before.
func (a *audit) finalBill(of journalcheck.Attempt, p provisional, fault func(string, ...any)) {
	b := a.book.Bills[of]
	is := b.Millis()
	more := max(0, min(is-max(p.is, p.saved), p.spared-max(0, p.is-p.saved)))
	forgive := p.returned + b.Due(is) - b.Due(is-more)
	if is > p.millis || b.GivenBack-a.adminRefunds[of] > forgive {
		fault("attempt %v was charged for %d GPU-milliseconds of %d in the end, and refunded %d of %d", of, is, p.millis, b.GivenBack, forgive)
	}
}

// balances checks I1 to I4, I6 and I7: the ledger agrees with the journal.
func (a *audit) balances(l *accounting.Ledger) error {
	var found []error
	fault := func(format string, args ...any) {
		if len(found) < 10 {
			found = append(found, violation(format, args...))
		}
	}
	if sum := a.book.Total(); sum != 0 {
		fault("I1: all accounts together have %d", sum)
	}
	n, held := 0, int64(0)
	for b := range l.Buckets() {
		n++
		says := journalcheck.BucketSums{Amount: int64(b.Amount), Available: int64(b.Avail), Held: int64(b.Held), Spent: int64(b.Spent), Expired: int64(b.Expired), Void: int64(b.Void)}
		is := a.book.Buckets[uint64(b.ID)]
		switch {
		case is == nil || *is != says:
			fault("I2: bucket %d says %+v, the journal %+v", b.ID, says, is)
		case is.Amount != is.Available+is.Held+is.Spent+is.Expired+is.Void:
			fault("I2: bucket %d has %+v", b.ID, *is)
		default:
			held += is.Held
		}
	}
	if n != len(a.book.Buckets) {
		fault("I2: there are %d buckets, in the journal %d", n, len(a.book.Buckets))
	}
	a.accounts(l, held, fault)
	a.attempts(l, held, fault)
	return errors.Join(found...)
}

// accounts checks I3 and I4.
func (a *audit) accounts(l *accounting.Ledger, held int64, fault func(string, ...any)) {
	sums, top := a.book.RollUp(a.parents), int64(0)
	for id, n := range l.Payers() {
		is, says := sums[string(id)], journalcheck.PayerSums{Held: int64(n.Held), Spent: int64(n.Spent), Debt: int64(n.Debt)}
		if is != says {
			fault("I4: %s says %+v, the journal %+v", id, says, is)
		}
		if string(n.Parent) != a.parents[string(id)] {
			fault("I4: %s is below %q, it was put below %q", id, n.Parent, a.parents[string(id)])
		}
		if n.Parent == "" {
			top += says.Held
		}
	}
	if top != held {
		fault("I3: the accounts at the top hold %d, buckets %d", top, held)
	}
}

// attempts checks I3, I6 and I7.
func (a *audit) attempts(l *accounting.Ledger, held int64, fault func(string, ...any)) {
	there := map[accounting.LienID]accounting.LienState{}
	for n := range l.Liens() {
		of := journalcheck.Attempt{Job: uint64(n.ID.Job), Number: uint64(n.ID.Attempt)}
		was, known := a.liens[n.ID]
		if known && was != n.State && was != accounting.Open && (was != accounting.Provisional || n.State != accounting.Settled) {
			fault("I7: attempt %s was %s and is %s", n.ID, was, n.State)
		}
		there[n.ID] = n.State
		b := a.book.Bills[of]
		if b == nil {
			b = &journalcheck.Bill{}
		}
		if int64(n.Holds()) != b.Holds() || int64(n.Paid()) != b.Charged() || n.State != accounting.Open && b.Holds() != 0 {
			fault("I6: attempt %s is %s, holds %d and paid %d; in the journal %d and %d", n.ID, n.State, n.Holds(), n.Paid(), b.Holds(), b.Charged())
		}
		held -= b.Holds()
		if p, waits := a.open[of]; waits && n.State == accounting.Settled {
			delete(a.open, of)
			a.finalBill(of, p, fault)
		}
	}
	a.liens = there
	if held != 0 {
		fault("I3: buckets hold %d more than attempts", held)
	}
}
