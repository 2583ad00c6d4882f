package state

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// ledgerNow returns the ledger's time: it orders several commands of one instant.
func (s *State) ledgerNow() cluster.Instant { return max(s.now, s.credits.Now()) }

// logStamp is the stamp of what the log does once: the entries that submit, start and end a job
// place, start and settle its lien.
func (s *State) logStamp() accounting.Stamp {
	return accounting.Stamp{At: s.now, Key: "job", Natural: true}
}

// charged reports whether jobs of a specification are paid for: whether they request GPUs, or
// exclusive nodes with GPUs, in a partition with charge.
func (s *State) charged(spec *cluster.JobSpec) bool {
	if !s.policy.Credits.On || len(s.charging(spec)) == 0 {
		return false
	}
	if spec.Request.TotalGPUs() == 0 && spec.Request.Exclusive {
		s.rebuildPartitionIndex()
		return s.mostGPUs(spec, s.charging(spec)) > 0
	}
	return spec.Request.TotalGPUs() > 0
}

// charging returns the partitions of a job with charge.
func (t *tables) charging(spec *cluster.JobSpec) []string {
	return slices.DeleteFunc(spec.AllPartitions(), func(name string) bool { return !t.policy.Credits.Charges(name) })
}

// orderOf returns the request of a job in partitions as the ledger sees it: for the whole time
// limit, or for the window that a lien covers.
func (s *State) orderOf(spec *cluster.JobSpec, partitions []string) (accounting.Order, *command.Refusal) {
	limit := spec.TimeLimit
	if w := s.policy.Credits.LienWindow; w > 0 && (limit == 0 || limit > w) {
		limit = w
	}
	if limit == 0 {
		return accounting.Order{}, command.Refuse(command.InvalidArgument, "a job that is charged needs a time limit", "set one with --time")
	}
	types := spec.Request.GPUTypes
	if len(types) == 0 {
		if types = s.dearestFirst(partitions); len(types) == 0 {
			return accounting.Order{}, command.Refuse(command.Conflict, "no node of the partition has GPUs yet, so their price is unknown", "name a type with --gpus TYPE:N, or submit again later")
		}
	}
	return accounting.Order{Accepts: types, GPUs: int64(s.mostGPUs(spec, partitions)), Millis: limit.Milliseconds()}, nil
}

// mostGPUs returns the most GPUs that the job may get in partitions: an exclusive job gets all GPUs
// of its nodes.
func (s *State) mostGPUs(spec *cluster.JobSpec, partitions []string) int32 {
	most := spec.Request.TotalGPUs()
	if !spec.Request.Exclusive {
		return most
	}
	largest := int32(0)
	for _, name := range partitions {
		largest = max(largest, s.partitions.MostGPUs(name))
	}
	return max(most, largest*max(1, spec.Request.Nodes))
}

// dearestFirst returns the GPU types of partitions by price, the most expensive first, so that the
// lien suffices for any type that a job without a preference gets.
func (s *State) dearestFirst(partitions []string) []string {
	var types []string
	for _, name := range partitions {
		types = append(types, s.partitions.GPUTypes(name)...)
	}
	slices.Sort(types)
	types = slices.Compact(types)
	price := func(t string) accounting.Credits {
		p, err := s.credits.Price(t, s.ledgerNow())
		if err != nil {
			return -1
		}
		return p
	}
	slices.SortStableFunc(types, func(a, b string) int { return cmp.Compare(price(b), price(a)) })
	return types
}

// claimOf returns the lien that a job's next attempt needs, so that it may run in any of its
// partitions. Nil if it costs nothing.
func (s *State) claimOf(spec *cluster.JobSpec) (*accounting.Claim, *command.Refusal) {
	if !s.charged(spec) {
		return nil, nil
	}
	return s.claimIn(spec, s.charging(spec))
}

// claimIn returns the lien that it needs to run in some of its partitions.
func (s *State) claimIn(spec *cluster.JobSpec, partitions []string) (*accounting.Claim, *command.Refusal) {
	if spec.Account == "" {
		return nil, command.Refuse(command.InvalidArgument, "jobs are charged on this cluster, and this one names no account", "choose one with --account; gctl shares --me lists yours")
	}
	if err := cluster.CheckPayer("account", spec.Account); err != nil {
		return nil, command.Refuse(command.InvalidArgument, command.OneLine(err), "")
	}
	s.rebuildPartitionIndex()
	order, refusal := s.orderOf(spec, partitions)
	if refusal != nil {
		return nil, refusal
	}
	q, err := s.credits.Quote(order, s.ledgerNow())
	if err != nil {
		return nil, s.unpaid(err)
	}
	if q.Amount == 0 {
		return nil, nil
	}
	claim := &accounting.Claim{
		Chain: s.accounts.Chain(spec.Account, spec.Owner.User), Partition: partitions[0], QOS: spec.QOS,
		Rates: q.Rates, Amount: q.Amount, Floating: s.policy.Credits.Floating,
	}
	if len(spec.Others) > 0 {
		claim.Partitions = partitions
	}
	return claim, nil
}

// place places the lien of a job. If no buckets pay for all of its partitions, the lien covers the
// first one that they do pay for, and the job starts there.
func (s *State) place(id accounting.LienID, spec *cluster.JobSpec, claim *accounting.Claim) (accounting.Receipt, error) {
	claim.ID = id
	r, err := s.credits.Place(s.logStamp(), *claim)
	if !errors.Is(err, accounting.ErrCredits) || len(claim.Partitions) < 2 {
		return r, err
	}
	for i := range claim.Partitions {
		one, refusal := s.claimIn(spec, claim.Partitions[i:i+1])
		if refusal != nil || one == nil {
			continue
		}
		one.ID = id
		if r, err := s.credits.Place(s.logStamp(), *one); err == nil {
			return r, nil
		}
	}
	return r, err
}

// reserve places liens for the first attempts of jobs that are about to be stored: for all of them,
// or for none.
func (s *State) reserve(jobs []accepted, answer *command.Submitted) *command.Refusal {
	if !s.policy.Credits.On {
		return nil
	}
	before := s.credits.Clone()
	id := s.jobTables.next
	for _, a := range jobs {
		claim, refusal := s.claimOf(a.spec)
		for range max(1, len(a.all)) {
			if refusal == nil && claim != nil {
				r, err := s.place(accounting.LienID{Job: id, Attempt: 1}, a.spec, claim)
				refusal = s.unpaid(err)
				answer.SetAside += r.Held
				answer.Over = joinWarnings(answer.Over, r.Warnings)
			}
			if refusal != nil {
				s.credits = before
				return refusal
			}
			id++
		}
	}
	return nil
}

// joinWarnings keeps the newest warning of each account.
func joinWarnings(all, more []accounting.Warning) []accounting.Warning {
	for _, w := range more {
		all = slices.DeleteFunc(all, func(o accounting.Warning) bool { return o.Node == w.Node })
		all = append(all, w)
	}
	return all
}

// unpaid converts an error of the ledger to a refusal; nil for nil.
func (s *State) unpaid(err error) *command.Refusal {
	if err == nil {
		return nil
	}
	code, hint := command.Conflict, ""
	switch {
	case errors.Is(err, accounting.ErrCredits):
		code, hint = command.Exhausted, "request less time or fewer GPUs, or another account with --account; gctl credit balance shows the balances"
	case errors.Is(err, accounting.ErrBudget):
		code, hint = command.Exhausted, "wait until running jobs release their liens, or ask for a larger budget; gctl credit balance shows it"
	case errors.Is(err, accounting.ErrDebt):
		code, hint = command.Exhausted, "the account takes no more jobs until its debt is paid: gctl credit grant"
	case errors.Is(err, accounting.ErrNoPrice):
		code, hint = command.InvalidArgument, "an administrator sets one: gctl credit price TYPE CREDITS"
	case errors.Is(err, accounting.ErrAmount), errors.Is(err, accounting.ErrInvalid):
		code = command.InvalidArgument
	case errors.Is(err, accounting.ErrKey):
		return command.Refuse(command.Mismatch, "this key or request ID was used before for another change of credits", "gctl audit lists the changes; use a new --key for a new change")
	case errors.Is(err, accounting.ErrNoLien):
		code, hint = command.NotFound, "gctl credit statement ACCOUNT shows what was charged"
	case errors.Is(err, accounting.ErrNoBucket):
		code, hint = command.NotFound, "gctl credit balance --buckets lists them"
	case errors.Is(err, accounting.ErrRefund):
		hint = "gctl credit statement ACCOUNT shows charges and refunds"
	}
	return command.Refuse(code, command.OneLine(err), hint)
}

// reprice changes the lien of a job whose time limit, partition, QOS, account or size changes,
// completely or not at all. A running job keeps the prices of its quote.
func (s *State) reprice(old *cluster.Job, spec *cluster.JobSpec) *command.Refusal {
	if old.State.Holds() {
		n, held := s.lienOf(old.ID, old.Attempt)
		if !held || spec.TimeLimit == old.Spec.TimeLimit || s.policy.Credits.LienWindow > 0 {
			return nil
		}
		amount := scaled(n.Amount, spec.TimeLimit, old.Spec.TimeLimit)
		if n.Floating && spec.TimeLimit > 0 { // without a limit it is extended
			amount = max(1, n.Amount+s.credits.Lacks(&n, old.Started.Add(spec.TimeLimit)))
		}
		_, err := s.credits.Resize(s.logStamp(), n.ID, amount)
		return s.unpaid(err)
	}
	_, held := s.lienOf(old.ID, old.Attempt+1)
	same := spec.QOS == old.Spec.QOS && spec.Account == old.Spec.Account && slices.Equal(spec.AllPartitions(), old.Spec.AllPartitions()) &&
		spec.Request.Nodes == old.Spec.Request.Nodes && spec.Request.GPUsPerNode == old.Spec.Request.GPUsPerNode && spec.Request.GPUs == old.Spec.Request.GPUs
	if same && spec.TimeLimit == old.Spec.TimeLimit {
		return nil
	}
	if shorter := spec.TimeLimit > 0 && (old.Spec.TimeLimit == 0 || spec.TimeLimit < old.Spec.TimeLimit); same && shorter && !held {
		return nil // submitted before jobs were charged, or with a smaller lien
	}
	if !held && (old.Hold != cluster.NotHeld || !s.charged(spec)) {
		return nil // funded when it is released, or without charge
	}
	before := s.credits.Clone()
	s.withdrawLien(old)
	claim, refusal := s.claimOf(spec)
	if claim != nil {
		_, err := s.place(accounting.LienID{Job: old.ID, Attempt: old.Attempt + 1}, spec, claim)
		refusal = s.unpaid(err)
	}
	if refusal != nil {
		s.credits = before
	}
	return refusal
}

// scaled returns an amount in proportion to another time, rounded up.
func scaled(c accounting.Credits, to, from time.Duration) accounting.Credits {
	if to <= 0 || from <= 0 {
		return c
	}
	return accounting.Share(c, to.Milliseconds(), from.Milliseconds())
}

// checkCredits compares liens with jobs.
func (x *checking) checkCredits() {
	x.checkSoft()
	if err := x.credits.Check(); err != nil {
		x.fault("credits: %w", err)
	}
	for n := range x.credits.Open() {
		j, active := x.active(n.ID.Job)
		switch {
		case !active:
			x.fault("lien %s is open and its job is gone", n.ID)
		case j.State.Holds() && n.ID.Attempt != j.Attempt, !j.State.Holds() && n.ID.Attempt != j.Attempt+1:
			x.fault("lien %s is open, job %s is %s at attempt %d", n.ID, j.ID, j.State, j.Attempt)
		case j.State.Holds() != (len(n.Segments) > 0):
			x.fault("lien %s has %d segments, its job is %s", n.ID, len(n.Segments), j.State)
		}
	}
	for a := range x.accounts.All() {
		name := a.Name
		n, chain := x.credits.Payer(accounting.PayerID(name)), append(x.accounts.Chain(name, ""), "")
		if n != (accounting.Payer{}) && n.Parent != chain[1] {
			x.fault("account %s is below %q, in the ledger below %q", name, chain[1], n.Parent)
		}
	}
	x.checkUnproven()
	x.checkTurns()
	x.checkNarrow()
}

// moveCredits moves payers of the ledger to the present positions of their accounts, all at once:
// in between they are not a tree. The top accounts are below root while root is defined.
func (s *State) moveCredits(touched map[string]struct{}) {
	moved := maps.Clone(touched)
	if _, root := moved[cluster.RootAccount]; root {
		for a := range s.accounts.All() {
			if a.Parent == cluster.RootAccount {
				moved[a.Name] = none{}
			}
		}
	}
	var chains []accounting.PayerPath
	for _, name := range slices.Sorted(maps.Keys(moved)) {
		if s.accounts.Has(name) {
			chains = append(chains, s.accounts.Chain(name, ""))
		}
	}
	if _, err := s.credits.Move(s.logStamp(), chains...); err != nil {
		s.fault("accounts %v: %w", slices.Sorted(maps.Keys(moved)), err)
	}
}

// Credits returns the ledger of the view, which must not be written. O(1).
func (v *View) Credits() *accounting.Ledger { return v.credits }
