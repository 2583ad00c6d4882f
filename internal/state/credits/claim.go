package credits

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// charging returns the partitions in which jobs of a specification are charged: those with charge,
// if the jobs request GPUs, or exclusive nodes with GPUs.
func (e *Env) charging(spec *cluster.JobSpec) []string {
	if !e.Policy.Credits.On {
		return nil
	}
	charging := slices.DeleteFunc(spec.AllPartitions(), func(name string) bool { return !e.Policy.Credits.Charges(name) })
	if len(charging) == 0 || e.mostGPUs(spec, charging) == 0 {
		return nil
	}
	return charging
}

// orderOf returns the request of a job in partitions as the ledger sees it: for the whole time
// limit, or for the window that a lien covers.
func (x *Credits) orderOf(e *Env, spec *cluster.JobSpec, partitions []string) (accounting.QuoteRequest, *command.Refusal) {
	limit := spec.TimeLimit
	if w := e.Policy.Credits.LienWindow; w > 0 && (limit == 0 || limit > w) {
		limit = w
	}
	if limit == 0 {
		return accounting.QuoteRequest{}, command.Refuse(command.InvalidArgument, "a job that is charged needs a time limit", "set one with --time")
	}
	types := spec.Request.GPUTypes
	if len(types) == 0 {
		if types = x.byPrice(e, partitions); len(types) == 0 {
			return accounting.QuoteRequest{}, command.Refuse(command.Conflict, "no node of the partition has GPUs yet, so their price is unknown", "request a type with --gpus TYPE:N, or retry later")
		}
	} else {
		types = x.withParents(e, types, partitions)
	}
	return accounting.QuoteRequest{Accepts: types, GPUs: int64(e.mostGPUs(spec, partitions)), Millis: limit.Milliseconds()}, nil
}

// mostGPUs returns the most GPUs that the job may get in partitions: an exclusive job gets all GPUs
// of its nodes.
func (e *Env) mostGPUs(spec *cluster.JobSpec, partitions []string) int32 {
	spec = spec.OnNodes(max(spec.Request.Nodes, spec.Request.MaxNodes))
	most := spec.Request.TotalGPUs()
	if !spec.Request.Exclusive {
		return most
	}
	largest := int32(0)
	for _, name := range partitions {
		largest = max(largest, e.Partitions.MostGPUs(name))
	}
	return max(most, largest*max(1, spec.Request.Nodes))
}

// byPrice returns the GPU types of partitions by price, the most expensive first, so that the
// lien suffices for any type that a job without a preference gets.
func (x *Credits) byPrice(e *Env, partitions []string) []string {
	var types []string
	for _, name := range partitions {
		types = append(types, e.Partitions.GPUTypes(name)...)
	}
	types = slices.DeleteFunc(types, cluster.IsMIGProfile)
	return x.sortByPrice(e, types)
}

// withParents replaces the MIG profiles among requested types by the names under which the instances of partitions
// are charged, the most expensive first. A profile without instances remains. O(types × types of the partitions).
func (x *Credits) withParents(e *Env, types, partitions []string) []string {
	if !slices.ContainsFunc(types, cluster.IsMIGProfile) {
		return types
	}
	var all []string
	for _, t := range types {
		var instances []string
		for _, name := range partitions {
			for _, priced := range e.Partitions.PricedTypes(name) {
				if cluster.IsMIGProfile(t) && cluster.TypeOfPriced(priced) == t {
					instances = append(instances, priced)
				}
			}
		}
		if len(instances) == 0 {
			instances = []string{t}
		}
		all = append(all, x.sortByPrice(e, instances)...)
	}
	return all
}

// sortByPrice returns names under which GPUs are charged by price, the most expensive first, each one once.
func (x *Credits) sortByPrice(e *Env, types []string) []string {
	slices.Sort(types)
	types = slices.Compact(types)
	price := func(t string) accounting.Credits {
		p, err := x.ledger.Price(t, x.clock(e.Now))
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
func (x *Credits) claimOf(e *Env, spec *cluster.JobSpec) (*accounting.Claim, *command.Refusal) {
	if charging := e.charging(spec); len(charging) > 0 {
		return x.claimIn(e, spec, charging)
	}
	return nil, nil
}

// claimIn returns the lien that a job needs to run in some of its partitions.
func (x *Credits) claimIn(e *Env, spec *cluster.JobSpec, partitions []string) (*accounting.Claim, *command.Refusal) {
	if spec.Account == "" {
		return nil, command.Refuse(command.InvalidArgument, "jobs are charged on this cluster, and the job has no account", "choose one with --account; gctl shares --me lists yours")
	}
	if err := cluster.CheckPayer("account", spec.Account); err != nil {
		return nil, command.Refuse(command.InvalidArgument, command.OneLine(err), "")
	}
	order, refusal := x.orderOf(e, spec, partitions)
	if refusal != nil {
		return nil, refusal
	}
	q, err := x.ledger.Quote(order, x.clock(e.Now))
	if err != nil {
		return nil, refusalOf(err)
	}
	if q.Amount == 0 {
		return nil, nil
	}
	claim := &accounting.Claim{
		Chain: e.Accounts.Chain(spec.Account, spec.Owner.User), Partition: partitions[0], QOS: spec.QOS,
		Rates: q.Rates, Amount: q.Amount, Floating: e.Policy.Credits.Floating,
	}
	if len(spec.OtherPartitions) > 0 {
		claim.Partitions = partitions
	}
	return claim, nil
}

// place places the lien of a job. If no buckets pay for all of its partitions, the lien covers the
// first one that they do pay for, and the job starts there.
func (x *Credits) place(e *Env, id accounting.LienID, spec *cluster.JobSpec, claim *accounting.Claim) (accounting.Receipt, error) {
	claim.ID = id
	r, err := x.ledger.CreateLien(logStamp(e.Now), *claim)
	if !errors.Is(err, accounting.ErrCredits) || len(claim.Partitions) < 2 {
		return r, err
	}
	for i := range claim.Partitions {
		one, refusal := x.claimIn(e, spec, claim.Partitions[i:i+1])
		if refusal != nil || one == nil {
			continue
		}
		one.ID = id
		if r, err := x.ledger.CreateLien(logStamp(e.Now), *one); err == nil {
			return r, nil
		}
	}
	return r, err
}

// Reserve sets credits aside for the first attempts of jobs that are about to be stored, from id
// on: for all of them, or for none. jobs yields specifications and how many jobs have each.
func (x *Credits) Reserve(e *Env, id cluster.JobID, jobs iter.Seq2[*cluster.JobSpec, int], answer *command.Submitted) *command.Refusal {
	if !e.Policy.Credits.On {
		return nil
	}
	before := x.ledger.Clone()
	for spec, times := range jobs {
		claim, refusal := x.claimOf(e, spec)
		for range times {
			if refusal == nil && claim != nil {
				r, err := x.place(e, accounting.LienID{Job: id, Attempt: 1}, spec, claim)
				refusal = refusalOf(err)
				answer.SetAside += r.Held
				answer.Over = joinWarnings(answer.Over, r.Warnings)
			}
			if refusal != nil {
				x.ledger = before
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

// refusalOf converts an error of the ledger to a refusal; nil for nil.
func refusalOf(err error) *command.Refusal {
	if err == nil {
		return nil
	}
	code, hint := command.Conflict, ""
	switch {
	case errors.Is(err, accounting.ErrCredits):
		code, hint = command.Exhausted, "request less time or fewer GPUs, or another account with --account; gctl credit balance shows the balances"
	case errors.Is(err, accounting.ErrBudget):
		code, hint = command.Exhausted, "wait until running jobs release their liens, or request a larger budget; gctl credit balance shows it"
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

// Reprice changes the lien of a job whose time limit, partition, QOS, account or size changes,
// completely or not at all. A running job keeps the prices of its quote.
func (x *Credits) Reprice(e *Env, old *cluster.Job, spec *cluster.JobSpec) *command.Refusal {
	if old.State.HasAllocation() {
		n, held := x.OpenLien(old.ID, old.Attempt)
		if !held || spec.TimeLimit == old.Spec.TimeLimit || e.Policy.Credits.LienWindow > 0 {
			return nil
		}
		amount := scaled(n.Amount, spec.TimeLimit, old.Spec.TimeLimit)
		if n.Floating && spec.TimeLimit > 0 { // without a limit it is extended
			amount = max(1, n.Amount+x.ledger.MissingCredits(&n, old.Started.Add(spec.TimeLimit)))
		}
		_, err := x.ledger.Resize(logStamp(e.Now), n.ID, amount)
		return refusalOf(err)
	}
	_, held := x.OpenLien(old.ID, old.Attempt+1)
	same := spec.QOS == old.Spec.QOS && spec.Account == old.Spec.Account && slices.Equal(spec.AllPartitions(), old.Spec.AllPartitions()) &&
		spec.Request.Nodes == old.Spec.Request.Nodes && spec.Request.MaxNodes == old.Spec.Request.MaxNodes && spec.Request.GPUsPerNode == old.Spec.Request.GPUsPerNode && spec.Request.GPUs == old.Spec.Request.GPUs
	if same && spec.TimeLimit == old.Spec.TimeLimit {
		return nil
	}
	if shorter := spec.TimeLimit > 0 && (old.Spec.TimeLimit == 0 || spec.TimeLimit < old.Spec.TimeLimit); same && shorter && !held {
		return nil // submitted before jobs were charged, or with a smaller lien
	}
	if !held && (old.Hold != cluster.NotHeld || len(e.charging(spec)) == 0) {
		return nil // funded when it is released, or without charge
	}
	before := x.ledger.Clone()
	x.Withdraw(e.Now, old)
	claim, refusal := x.claimOf(e, spec)
	if claim != nil {
		_, err := x.place(e, accounting.LienID{Job: old.ID, Attempt: old.Attempt + 1}, spec, claim)
		refusal = refusalOf(err)
	}
	if refusal != nil {
		x.ledger = before
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
